"""Whether a model thinks before it answers, found out from its chat template alone."""

from functools import cache
from typing import Any

from flm.errors import FlmError
from flm.text.jinja import TemplateRefusalError, compile_template, environment, run
from flm.text.parsers import detect_reasoning
from flm.text.parsers.styles import HARMONY
from flm.types import ThinkMode

SWITCHES = ("enable_thinking", "thinking")
"""The names that templates have for the switch, the usual one first."""


@cache
def thinking_switch(template_source: str) -> str:
    """The variable that turns thinking on and off; the usual one where none does."""
    return next(
        (name for name in SWITCHES if _acts(template_source, name)),
        SWITCHES[0],
    )


@cache
def probe_thinking(template_source: str) -> ThinkMode:
    """What the switch does to the prompt.

    It changes the prompt: the model thinks or not as it says, and without it as the prompt without
    it shows. It changes nothing and the prompt opens a reasoning block: the model always thinks.
    Otherwise the template merely knows the tags, from earlier turns as a rule.
    """
    style = detect_reasoning(template_source)
    if style is None:
        return "none"
    if style == HARMONY:
        return "always"
    switch = thinking_switch(template_source)
    on = _prompt(template_source, {switch: True})
    off = _prompt(template_source, {switch: False})
    if on is None or off is None:
        return "none"
    if on == off:
        return "always" if on.rstrip().endswith(style.open_tag) else "none"
    return "off" if _prompt(template_source, {}) == off else "on"


def _acts(template_source: str, name: str) -> bool:
    on = _prompt(template_source, {name: True})
    return on is not None and on != _prompt(template_source, {name: False})


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
