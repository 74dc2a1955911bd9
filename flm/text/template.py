"""Chat messages to a prompt: the model's own template, with text in a message kept text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jinja2
import jinja2.meta

from flm.errors import InvalidRequestError
from flm.log import logger
from flm.text.continuation import continued
from flm.text.jinja import TemplateRefusalError, compile_template, environment, run
from flm.text.messages import (
    Message,
    fold_system,
    normalise,
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
from flm.text.tool_prompt import has_calls, with_calls_as_text, with_tools_described
from flm.types import TokenizerData

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Used for a model without a template whose vocabulary has these two markers."""
PLAIN = (
    "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
"""Used for any other model without a template."""
_OWN_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
_UNRENDERABLE = (TemplateRefusalError, InvalidRequestError)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as text (for people) and as token ids (for the model)."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What one rendering gets from the request."""

    messages: list[Message]
    tools: list[Any]
    kwargs: Mapping[str, Any]
    add_generation_prompt: bool

    def changed(self, text: RequestText, change: Change) -> "_Inputs":
        return _Inputs(
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


class ChatTemplate:
    """A model's chat template. Immutable; may be used from several threads at once.

    ``source`` is the template's text; None gives a documented default. ``named`` are further
    templates of the same model, of which ``tool_use`` is taken when a request has tools.
    ``variables`` are the names they read from outside.

    Raises:
        ModelFileError: a template's text cannot be read.
    """

    def __init__(
        self,
        source: str | None,
        tokenizer: Tokenizer,
        *,
        named: Mapping[str, str] | None = None,
    ) -> None:
        self.is_default = source is None
        self.source = _default_source(tokenizer) if source is None else source
        self._tokenizer = tokenizer
        self._main = _Template(self.source, tokenizer)
        tool_source = None if named is None else named.get("tool_use")
        self._with_tools = self._main if tool_source is None else _Template(tool_source, tokenizer)

        templates = {self._main, self._with_tools}
        self.variables = frozenset().union(*(template.variables for template in templates))

    @classmethod
    def from_data(cls, data: TokenizerData, tokenizer: Tokenizer) -> "ChatTemplate":
        """The templates that a model's files carry.

        Raises:
            ModelFileError: a template's text cannot be read.
        """
        return cls(data.chat_template, tokenizer, named=data.named_templates)

    @property
    def knows_tools(self) -> bool:
        """True when the template shows tools; else they are described in the Hermes form."""
        return self._with_tools.knows_tools

    @property
    def tool_source(self) -> str:
        """The text of the template that is taken when a request has tools."""
        return self._with_tools.source

    @property
    def tool_dialect(self) -> ToolDialect:
        """How the model writes tool calls. Hermes, when its template knows no tools."""
        return detect_tool_dialect(self.tool_source) if self.knows_tools else "hermes"

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        kwargs: Mapping[str, Any] | None = None,
    ) -> RenderedPrompt:
        """The prompt of ``messages``.

        It begins with BOS if the template writes one, as in transformers; the default templates
        leave that to the tokenizer's own wish. Tools, calls and results are written as text where
        the template knows none.

        Raises:
            InvalidRequestError: the messages are malformed or the template refuses them.
        """
        inputs = _Inputs(
            normalise(messages), list(tools), _variables(kwargs), add_generation_prompt
        )
        return self._prompt(self._render(inputs))

    def render_continued(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> RenderedPrompt:
        """The prompt that goes on where the text of the last message ends (see continuation.py).

        Raises:
            InvalidRequestError: as ``render``, or the text is not found in the rendered chat.
        """
        variables = _variables(kwargs)

        def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
            return self._render(
                _Inputs(list(messages), list(tools), variables, add_generation_prompt)
            )

        return self._prompt(continued(render, normalise(messages)))

    def _render(self, inputs: _Inputs) -> str:
        template = self._with_tools if inputs.tools else self._main
        messages = inputs.messages
        if has_calls(messages) and not (template.knows_calls or template.knows_tools):
            messages = with_calls_as_text(messages)
        if inputs.tools and not template.knows_tools:
            messages = with_tools_described(messages, inputs.tools)
            return template.render(replace(inputs, messages=messages, tools=[]))
        return template.render(replace(inputs, messages=messages))

    def _prompt(self, private: str) -> RenderedPrompt:
        ids = self._tokenizer.encode_private(private)
        if self.is_default:
            ids = self._tokenizer.with_bos(ids)
        return RenderedPrompt(self._tokenizer.to_public(private), tuple(ids))


class _Template:
    """One template's text, compiled."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self.source = source
        self._tokenizer = tokenizer
        self._env = environment()
        self._compiled = compile_template(self._env, source)
        parsed = self._env.parse(source)
        self._text = RequestText(template_names(parsed))
        self.variables = frozenset(jinja2.meta.find_undeclared_variables(parsed))

    def render(self, inputs: _Inputs) -> str:
        """The text in which control tokens stand under their private names.

        What a template refuses is tried in the forms that it may accept: without a system role,
        with short ids of calls.
        """
        if self._wants_text_arguments and any("tool_calls" in m for m in inputs.messages):
            inputs = replace(inputs, messages=with_string_arguments(inputs.messages))
        try:
            return self._render(inputs)
        except TemplateRefusalError as refusal:
            return self._render_adjusted(inputs, refusal)

    def _render_adjusted(self, inputs: _Inputs, refusal: TemplateRefusalError) -> str:
        tried = [inputs.messages]
        for adjust in (with_short_ids, fold_system, lambda m: fold_system(with_short_ids(m))):
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

    def _render(self, inputs: _Inputs) -> str:
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

    def _run(self, template: jinja2.Template, inputs: _Inputs, markers: Mapping[str, str]) -> str:
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

    def _shaded(self, inputs: _Inputs) -> _Shading | None:
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

    def _builds_markers(self, inputs: _Inputs) -> bool:
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

    # --- tools ---------------------------------------------------------------------------------

    @cached_property
    def knows_tools(self) -> bool:
        """True when the template shows the tools of a request to the model."""
        function = {"name": "probe_name", "description": "probe", "parameters": {}}
        user: Message = {"role": "user", "content": "probe"}
        system: Message = {"role": "system", "content": "probe"}
        for messages in ([user], [system, user]):
            inputs = _Inputs(messages, [{"type": "function", "function": function}], {}, True)
            try:
                if "probe_name" in self._run(self._compiled, inputs, self._markers):
                    return True
            except _UNRENDERABLE:
                continue
        return False

    @cached_property
    def knows_calls(self) -> bool:
        """True when the template shows the calls of earlier turns."""
        probes = (self._probe({"probe": "value"}), self._probe('{"probe": "value"}'))
        return any(text is not None and "value" in text for text in probes)

    @cached_property
    def _wants_text_arguments(self) -> bool:
        """True when the template prints arguments as they are, so that they must be JSON text."""
        as_object = self._probe({"probe": "value"})
        if as_object is None:
            return self._probe('{"probe": "value"}') is not None
        return "'probe'" in as_object

    def _probe(self, arguments: Any) -> str | None:
        call = {"id": "probe0000", "type": "function"}
        function = {"name": "probe_name", "arguments": arguments}
        messages: list[Message] = [
            {"role": "user", "content": "probe"},
            {"role": "assistant", "content": "", "tool_calls": [{**call, "function": function}]},
        ]
        inputs = _Inputs(messages, [], {}, add_generation_prompt=False)
        try:
            return self._run(self._compiled, inputs, self._markers)
        except _UNRENDERABLE:
            return None


def _inseparable(markers: Sequence[str]) -> InvalidRequestError:
    return InvalidRequestError(
        "The model's chat template rewrites the text of these messages and builds its own markup "
        f"from pieces, so that the two cannot be told apart; remove {min(markers)} and the like "
        "from the messages.",
        param="messages",
    )


def _variables(kwargs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    kwargs = {} if kwargs is None else kwargs
    taken = sorted(_OWN_VARIABLES & kwargs.keys())
    if taken:
        raise InvalidRequestError(
            f"chat_template_kwargs cannot set {', '.join(taken)}; the server does.",
            param="chat_template_kwargs",
        )
    return kwargs


def _default_source(tokenizer: Tokenizer) -> str:
    has_chatml = {"<|im_start|>", "<|im_end|>"} <= set(tokenizer.markers)
    name = "ChatML" if has_chatml else "plain 'role: content' lines"
    logger.warning("The model has no chat template; chats are rendered as %s.", name)
    return CHATML if has_chatml else PLAIN
