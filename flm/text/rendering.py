"""One chat template, compiled: messages to text with private names of control tokens."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jinja2
import jinja2.meta

from flm.errors import InvalidRequestError
from flm.text.abilities import Abilities, probe
from flm.text.history import (
    fold_late_system,
    fold_results,
    has_calls,
    split_calls,
    split_text,
    with_calls_as_text,
    with_results_as_text,
)
from flm.text.jinja import TemplateRefusalError, compile_template, environment, run
from flm.text.messages import (
    Message,
    fold_system,
    with_short_ids,
    with_string_arguments,
)
from flm.text.parsers.dialects import ToolDialect, detect_tool_dialect
from flm.text.provenance import (
    Change,
    RequestText,
    Shade,
    TooManyCharactersError,
    name_markers,
    template_names,
)
from flm.text.tokenizer import Tokenizer, check_text
from flm.text.tool_prompt import with_tools_described

_UNRENDERABLE = (TemplateRefusalError, InvalidRequestError)
_ADJUSTMENTS: tuple[Callable[[Sequence[Message]], list[Message]], ...] = (
    with_short_ids,
    fold_late_system,
    lambda messages: fold_late_system(with_short_ids(messages)),
    fold_system,
    lambda messages: fold_system(with_short_ids(messages)),
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What one rendering gets from the request."""

    messages: list[Message]
    tools: list[Any]
    kwargs: Mapping[str, Any]
    add_generation_prompt: bool

    def changed(self, text: RequestText, change: Change) -> "Inputs":
        """The same with every text of the request changed."""
        return Inputs(
            messages=[text.change_message(item, change) for item in self.messages],
            tools=text.change(self.tools, change),
            kwargs={key: text.change(item, change) for key, item in self.kwargs.items()},
            add_generation_prompt=self.add_generation_prompt,
        )

    def parts(self) -> tuple[Any, ...]:
        """Everything that may hold text of the request."""
        roleless = [{**message, "role": ""} for message in self.messages]
        roles = [message["role"] for message in self.messages]
        return (roleless, roles, self.tools, list(self.kwargs.values()))


@dataclass(frozen=True, slots=True)
class _Shading:
    shade: Shade
    shaded: str

    @property
    def lifted(self) -> str:
        return self.shade.lift(self.shaded)


class Template:
    """One template's text, compiled."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self.source = source
        self._tokenizer = tokenizer
        self._env = environment()
        self._compiled = compile_template(self._env, source)
        parsed = self._env.parse(source)
        self._text = RequestText(template_names(parsed))
        self.variables = frozenset(jinja2.meta.find_undeclared_variables(parsed))

    def render(self, inputs: Inputs) -> str:
        """The text in which control tokens stand under their private names.

        What a template leaves out is put where it shows it; what it refuses is tried in the forms
        that it may accept: with a later system text in the user's turn, without a system role,
        with short ids of calls.
        """
        messages = self._shown(inputs.messages, has_tools=bool(inputs.tools))
        if inputs.tools and not self._abilities.tools:
            messages = with_tools_described(messages, inputs.tools)
            inputs = replace(inputs, tools=[])
        inputs = replace(inputs, messages=messages)
        try:
            return self._render(inputs)
        except TemplateRefusalError as refusal:
            return self._render_adjusted(inputs, refusal)

    def _shown(self, messages: list[Message], *, has_tools: bool) -> list[Message]:
        """``messages`` in a form in which the template leaves nothing out."""
        can = self._abilities
        if not can.system:
            messages = fold_system(messages)
        elif not can.late_system:
            messages = fold_late_system(messages)
        if not has_calls(messages):
            return messages
        if not can.calls or (has_tools and not can.tools):
            shows_results = can.tools and can.results
            return with_calls_as_text(
                messages, self.dialect, self._tokenizer.to_private, results=not shows_results
            )
        if can.text_apart:
            messages = split_text(messages)
        if not can.many_calls:
            messages = split_calls(messages)
        if can.responses:
            messages = fold_results(messages)
        elif not can.results:
            messages = with_results_as_text(messages)
        return with_string_arguments(messages) if can.text_arguments else messages

    def _render_adjusted(self, inputs: Inputs, refusal: TemplateRefusalError) -> str:
        tried = [inputs.messages]
        for adjust in _ADJUSTMENTS:
            messages = adjust(inputs.messages)
            if messages in tried:
                continue
            tried.append(messages)
            try:
                return self._render(replace(inputs, messages=messages))
            except _UNRENDERABLE:
                pass  # the refusal of the messages as they were sent says more
        raise InvalidRequestError(
            f"The model's chat template refuses these messages: {refusal}", param="messages"
        ) from refusal

    def _render(self, inputs: Inputs) -> str:
        plain = self._run(self._compiled, inputs, self._markers)
        check_text(plain)
        shading = self._shaded(inputs)
        if shading is not None and shading.lifted == plain:
            return shading.shade.lift(self._tokenizer.to_private(shading.shaded))
        private = self._run(self._named_compiled, inputs, self._private_markers)
        if not self._tokenizer.find_markers(private) or not self._builds_markers(inputs):
            return private
        found = self._tokenizer.find_markers(plain)
        if shading is None or self._tokenizer.find_markers(shading.shaded) != found:
            raise _inseparable(found)
        return self._tokenizer.to_private(plain)

    def _run(self, template: jinja2.Template, inputs: Inputs, markers: Mapping[str, str]) -> str:
        variables = {
            "documents": None,
            **inputs.kwargs,
            **markers,
            "messages": inputs.messages,
            "tools": inputs.tools or None,
            "add_generation_prompt": inputs.add_generation_prompt,
        }
        return run(template, variables)

    # --- markup or text? (see provenance.py) ---------------------------------------------------

    def _shaded(self, inputs: Inputs) -> _Shading | None:
        """The rendering of the shaded request; None when the template cannot render it."""
        try:
            shade = Shade(self._text.find(inputs.parts()))
            changed = inputs.changed(self._text, shade.shade)
            return _Shading(shade, self._run(self._compiled, changed, self._markers))
        except (*_UNRENDERABLE, TooManyCharactersError):
            return None
        except RecursionError as error:
            raise InvalidRequestError(
                "The messages, tools or chat_template_kwargs are nested too deeply; flatten them.",
                param="messages",
            ) from error

    def _builds_markers(self, inputs: Inputs) -> bool:
        """True when markers stand in the prompt that neither a text nor one string of the
        template accounts for (or when that cannot be found out)."""
        neutral = inputs.changed(self._text, lambda text: re.sub(r"\S", "x", text))
        try:
            private = self._run(self._named_compiled, neutral, self._private_markers)
        except _UNRENDERABLE:
            return True
        return bool(self._tokenizer.find_markers(private))

    @cached_property
    def _named_compiled(self) -> jinja2.Template:
        tree = name_markers(self._env.parse(self.source), self._tokenizer.to_private)
        return compile_template(self._env, tree)

    @cached_property
    def _markers(self) -> dict[str, str]:
        """The variables that stand for tokens, where the model has them."""
        bos = self._tokenizer.marker(self._tokenizer.bos_id)
        eos = self._tokenizer.marker(self._tokenizer.eos_id)
        pairs = {"bos_token": bos, "eos_token": eos}
        return {name: text for name, text in pairs.items() if text is not None}

    @cached_property
    def _private_markers(self) -> dict[str, str]:
        return {name: self._tokenizer.to_private(text) for name, text in self._markers.items()}

    # --- what it shows -------------------------------------------------------------------------

    @property
    def knows_tools(self) -> bool:
        """True when it shows tools."""
        return self._abilities.tools

    @cached_property
    def dialect(self) -> ToolDialect:
        """How the model writes calls: as its template has them, or as it is told to."""
        found = detect_tool_dialect(self.source)
        # Harmony is how such a model writes everything, not calls alone.
        return found if found == "harmony" or self._abilities.tools else "hermes"

    @cached_property
    def _abilities(self) -> Abilities:
        def render(messages: Sequence[Message], tools: Sequence[Any]) -> str | None:
            inputs = Inputs(list(messages), list(tools), {}, add_generation_prompt=False)
            try:
                return self._run(self._compiled, inputs, self._markers)
            except _UNRENDERABLE:
                return None

        return probe(render)


def _inseparable(markers: Sequence[str]) -> InvalidRequestError:
    return InvalidRequestError(
        "The model's chat template rewrites the text of these messages and builds its own markup "
        f"from pieces, so that the two cannot be told apart; remove {min(markers)} and the like "
        "from the messages.",
        param="messages",
    )
