"""How to answer, in Anthropic's dialect: whether to reason, how much, and in which form."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from flm.errors import InvalidRequestError
from flm.server.schemas.conversation import ConversationBody
from flm.server.schemas.generation import Unmet
from flm.server.schemas.types import NotNegative, Schema
from flm.types import OutputConstraint


class Thinking(Schema):
    """Whether to reason before the answer."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: NotNegative | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Schema):
    """What the answer must be."""

    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(Schema):
    """How to answer."""

    effort: str | None = None
    format: OutputFormat | None = None


class ReasoningFields(ConversationBody):
    """Anthropic's names for ``think`` and ``reasoning_effort``, and the form of the answer."""

    thinking: Thinking | None = Field(
        None, description="think: enabled and adaptive are true, disabled is false. Sticks."
    )
    output_config: OutputConfig | None = Field(
        None,
        description="effort is reasoning_effort, and sticks; format: JSON that satisfies a schema.",
    )
    output_format: OutputFormat | None = Field(
        None, description="An older name of output_config.format."
    )

    @model_validator(mode="after")
    def _one_format(self) -> "ReasoningFields":
        config = self.output_config
        if self.output_format is not None and config is not None and config.format is not None:
            raise InvalidRequestError(
                "output_format is an older name of output_config.format; send one of them.",
                param="output_format",
            )
        return self

    @property
    def shows_thinking(self) -> bool:
        """False when the reply leaves the text of the thoughts out."""
        return self.thinking is None or self.thinking.display != "omitted"

    @property
    def constraint(self) -> OutputConstraint | None:
        """What the answer must be; None: any text."""
        if self.output_format is not None:
            return OutputConstraint("json", self.output_format.json_schema, "output_format.schema")
        config = self.output_config
        if config is None or config.format is None:
            return None
        return OutputConstraint("json", config.format.json_schema, "output_config.format.schema")

    @property
    def format_field(self) -> str:
        """The field that asks for ``constraint``; empty: none does."""
        return "" if self.constraint is None else self.constraint.param.removesuffix(".schema")

    @property
    def _effort(self) -> str | None:
        return None if self.output_config is None else self.output_config.effort

    @property
    def _is_off(self) -> bool:
        return self.thinking is not None and self.thinking.type == "disabled"

    def sticky_value(self, name: str) -> Any:
        """The value that the body carries for a field that sticks. Who disables thinking does not
        switch it on again with an effort."""
        if name == "think" and self.thinking is not None:
            return not self._is_off
        if name == "reasoning_effort":
            own = self.reasoning_effort if self._effort is None else self._effort
            return None if self._is_off else own
        return super().sticky_value(name)

    def asked_value(self, name: str) -> Any:
        """As ``sticky_value``, in the words of the body, for the record."""
        if name == "think" and self.thinking is not None:
            return self.thinking.type
        return super().asked_value(name)

    def own_name(self, name: str) -> str:
        """What this body calls a field: Anthropic's name, unless only ours was sent."""
        if name == "think":
            return "think" if self.thinking is None and self.think is not None else "thinking"
        if name == "reasoning_effort":
            has_ours = self._effort is None and self.reasoning_effort is not None
            return name if has_ours else "output_config.effort"
        return super().own_name(name)

    def unmet(self) -> Iterator[Unmet]:
        """The fields above that ask for what is not done."""
        yield from super().unmet()
        if self.thinking is not None:
            if self.think is not None and self.think == self._is_off:
                reason = f"thinking ({self.thinking.type}) was sent too and wins."
                yield Unmet("think", reason, self.think)
            if self.thinking.budget_tokens is not None:
                reason = "Thoughts have no limit of their own; they count in max_tokens."
                yield Unmet("thinking.budget_tokens", reason, self.thinking.budget_tokens)
            if self.thinking.display == "summarized":
                yield Unmet("thinking.display", "Thoughts are shown whole.", "summarized")
        yield from self._unmet_efforts()

    def _unmet_efforts(self) -> Iterator[Unmet]:
        if self._is_off:
            reason = "thinking is disabled, so there is nothing that it could be the effort of."
            sent = {
                "output_config.effort": self._effort,
                "reasoning_effort": self.reasoning_effort,
            }
            for name, effort in sent.items():
                if effort not in (None, "none"):
                    yield Unmet(name, reason, effort)
        elif self._effort is not None and self.reasoning_effort not in (None, self._effort):
            reason = f"output_config.effort ({self._effort}) was sent too and wins."
            yield Unmet("reasoning_effort", reason, self.reasoning_effort)
