"""Whether a model thinks before it answers, found out from its chat template alone."""

from functools import cache
from typing import Any

from flm.errors import FlmError
from flm.text.jinja import TemplateRefusalError, compile_template, environment, run
from flm.text.parsers import detect_reasoning
from flm.text.parsers.styles import HARMONY
from flm.types import ThinkMode


@cache
def probe_thinking(template_source: str) -> ThinkMode:
    """What the switch ``enable_thinking`` does to the prompt.

    It changes the prompt: the model thinks or not as it says, and without it as the prompt without
    it shows. It changes nothing and the prompt opens a reasoning block: the model always thinks.
    Otherwise the template merely knows the tags, from earlier turns as a rule.
    """
    style = detect_reasoning(template_source)
    if style is None:
        return "none"
    if style == HARMONY:
        return "always"
    on = _prompt(template_source, {"enable_thinking": True})
    off = _prompt(template_source, {"enable_thinking": False})
    if on is None or off is None:
        return "none"
    if on == off:
        return "always" if on.rstrip().endswith(style.open_tag) else "none"
    return "off" if _prompt(template_source, {}) == off else "on"


def reads_effort(template_source: str) -> bool:
    """True when the template passes ``reasoning_effort`` on to the model."""
    return "reasoning_effort" in template_source


def _prompt(template_source: str, switches: dict[str, Any]) -> str | None:
    variables = {
        "messages": [{"role": "user", "content": "probe"}],
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
        "bos_token": "",
        "eos_token": "",
        **switches,
    }
    try:
        return run(compile_template(environment(), template_source), variables)
    except (TemplateRefusalError, FlmError):
        return None
