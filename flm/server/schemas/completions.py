"""The body of ``POST /v1/completions``."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from flm.server.schemas.common import CommonBody
from flm.server.schemas.generation import Unmet
from flm.server.schemas.types import TokenId
from flm.types import Prompt as AnyPrompt

MAX_LOGPROBS = 5

_TokenIds = Annotated[list[TokenId], Field(min_length=1)]


def _prompt_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "string"
    if not isinstance(value, list) or not value:
        return None
    if isinstance(value[0], str):
        return "strings"
    return "id lists" if isinstance(value[0], list) else "ids"


Prompt = Annotated[
    Annotated[str, Tag("string")]
    | Annotated[list[str], Tag("strings")]
    | Annotated[_TokenIds, Tag("ids")]
    | Annotated[list[_TokenIds], Tag("id lists")],
    Discriminator(
        _prompt_kind,
        custom_error_type="prompt_type",
        custom_error_message="must be a string, an array of token ids, or a non-empty array of "
        "either",
    ),
]


class CompletionBody(CommonBody):
    """A completion request. The prompt is read as it is, without a chat template."""

    prompt: Prompt = Field(description="Text or token ids, or a list of either.")
    echo: bool | None = Field(None, description="Give the prompt back before the new text.")
    logprobs: Annotated[int, Field(strict=True, ge=0, le=MAX_LOGPROBS)] | None = Field(
        None, description="Alternatives at each position, 0 to 5; with echo, of the prompt too."
    )
    suffix: str | None = Field(None, description="Recorded as dropped.")

    @property
    def num_logprobs(self) -> int | None:
        """Alternatives wanted at each position; None: no log probabilities."""
        return self.logprobs

    @property
    def gives_prompt_back(self) -> bool:
        """True when the reply begins with the prompt."""
        return self.echo is True

    @property
    def prompts(self) -> tuple[AnyPrompt, ...]:
        """The prompts, one or many, as strings or token ids."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        if _prompt_kind(self.prompt) == "ids":
            return (tuple(item for item in self.prompt if isinstance(item, int)),)
        return tuple(tuple(item) if isinstance(item, list) else str(item) for item in self.prompt)

    def unmet(self) -> Iterator[Unmet]:
        """The declared fields that ask for what is not done."""
        yield from super().unmet()
        if self.suffix:
            reason = "The model continues the prompt; it cannot fill a gap before a suffix."
            yield Unmet("suffix", reason, self.suffix)
