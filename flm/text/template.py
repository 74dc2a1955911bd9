"""Chat messages to a prompt: the model's own template, with text in a message kept text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flm.errors import InvalidRequestError
from flm.log import logger
from flm.text.continuation import continued
from flm.text.messages import (
    Message,
    normalise,
)
from flm.text.parsers.dialects import ToolDialect
from flm.text.rendering import Inputs, Template
from flm.text.thinking import thinking_switch
from flm.text.tokenizer import Tokenizer
from flm.text.unshown import Unshown, unshown

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
TextCheck = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as text (for people) and as token ids (for the model)."""

    text: str
    ids: tuple[int, ...]


def _accept(_text: str) -> None:
    """Refuse nothing."""


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
        self._main = Template(self.source, tokenizer)
        tool_source = None if named is None else named.get("tool_use")
        self._with_tools = self._main if tool_source is None else Template(tool_source, tokenizer)

        templates = {self._main, self._with_tools}
        self.variables = frozenset().union(*(template.variables for template in templates))

    @property
    def thinking_switch(self) -> str:
        """The template's variable that turns thinking on and off."""
        return thinking_switch(self.source)

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
        return self._with_tools.dialect

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        kwargs: Mapping[str, Any] | None = None,
        check: TextCheck = _accept,
    ) -> RenderedPrompt:
        """The prompt of ``messages``.

        It begins with BOS if the template writes one, as in transformers; the default templates
        leave that to the tokenizer's own wish. Tools, calls and results are written as text where
        the template knows none. ``check`` may refuse the text before it is tokenised.

        Raises:
            InvalidRequestError: the messages are malformed or the template refuses them.
        """
        inputs = Inputs(normalise(messages), list(tools), _variables(kwargs), add_generation_prompt)
        return self._prompt(self._render(inputs), check)

    def render_continued(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        kwargs: Mapping[str, Any] | None = None,
        check: TextCheck = _accept,
    ) -> RenderedPrompt:
        """The prompt that goes on where the text of the last message ends (see continuation.py).

        Raises:
            InvalidRequestError: as ``render``, or the text is not found in the rendered chat.
        """
        variables = _variables(kwargs)

        def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
            return self._render(
                Inputs(list(messages), list(tools), variables, add_generation_prompt)
            )

        return self._prompt(continued(render, normalise(messages)), check)

    def unshown(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Unshown:
        """What of a request that can be rendered its prompt does not show."""
        variables = _variables(kwargs)

        def render(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str | None:
            try:
                return self._render(Inputs(list(messages), list(tools), variables, False))
            except InvalidRequestError:
                return None

        return unshown(render, messages, normalise(messages), tools)

    def _render(self, inputs: Inputs) -> str:
        template = self._with_tools if inputs.tools else self._main
        return template.render(inputs)

    def _prompt(self, private: str, check: TextCheck) -> RenderedPrompt:
        text = self._tokenizer.to_public(private)
        check(text)
        ids = self._tokenizer.encode_private(private)
        if self.is_default:
            ids = self._tokenizer.with_bos(ids)
        return RenderedPrompt(text, tuple(ids))


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
