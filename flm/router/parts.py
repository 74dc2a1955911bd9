"""What messages are made of."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from flm.router import checks


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text."""

    type: ClassVar[str] = "text"
    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError("TextPart.text must be a string.")


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning of the model. ``signature`` lets its provider take it back unchanged."""

    type: ClassVar[str] = "thinking"
    text: str
    signature: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError("ThinkingPart.text must be a string.")
        checks.word("ThinkingPart.signature", self.signature)


@dataclass(frozen=True, slots=True)
class RefusalPart:
    """The model declined, in its own words."""

    type: ClassVar[str] = "refusal"
    text: str

    def __post_init__(self) -> None:
        if checks.word("RefusalPart.text", self.text) is None:
            raise TypeError("RefusalPart.text must be a string.")


@dataclass(frozen=True, slots=True)
class CitationPart:
    """A source that the model named; at least one of the three is there."""

    type: ClassVar[str] = "citation"
    url: str | None = None
    title: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if not (self.url or self.title or self.text):
            raise ValueError("CitationPart needs a url, a title or a text.")


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A file in a message: exactly one of ``data`` (base64), ``url``, ``file_id``, ``path``."""

    type: ClassVar[str] = "binary"
    default_media_type: ClassVar[str] = "application/octet-stream"
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    path: str | None = None
    media_type: str | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        data: Any = self.data
        path: Any = self.path
        if isinstance(data, bytes):
            object.__setattr__(self, "data", base64.b64encode(data).decode())
        if isinstance(path, Path):
            object.__setattr__(self, "path", str(path))
        given = [form for form in ("data", "url", "file_id", "path") if getattr(self, form)]
        if len(given) != 1:
            raise ValueError(f"{name} takes exactly one of data, url, file_id and path.")
        checks.word(f"{name}.{given[0]}", getattr(self, given[0]))
        checks.word(f"{name}.media_type", self.media_type)
        if self.media_type is None:
            object.__setattr__(self, "media_type", self.default_media_type)

    @property
    def form(self) -> str:
        """How it is given to a provider: ``data``, ``url`` or ``file_id``."""
        if self.url is not None:
            return "url"
        return "file_id" if self.file_id is not None else "data"

    def base64(self) -> str:
        """The content in base64; a ``path`` is read now.

        Raises:
            OSError: the file cannot be read.
        """
        if self.path is not None:
            return base64.b64encode(Path(self.path).read_bytes()).decode()
        return self.data if self.data is not None else ""

    def data_url(self) -> str:
        """The ``url``, or the content as one."""
        return self.url or f"data:{self.media_type};base64,{self.base64()}"


@dataclass(frozen=True, slots=True)
class ImagePart(MediaPart):
    """A picture."""

    type: ClassVar[str] = "image"
    default_media_type: ClassVar[str] = "image/png"
    detail: str | None = None

    def __post_init__(self) -> None:
        MediaPart.__post_init__(self)
        checks.word("ImagePart.detail", self.detail, ("low", "high", "auto"))


@dataclass(frozen=True, slots=True)
class AudioPart(MediaPart):
    """Sound."""

    type: ClassVar[str] = "audio"
    default_media_type: ClassVar[str] = "audio/wav"


@dataclass(frozen=True, slots=True)
class VideoPart(MediaPart):
    """A film."""

    type: ClassVar[str] = "video"
    default_media_type: ClassVar[str] = "video/mp4"


@dataclass(frozen=True, slots=True)
class DocumentPart(MediaPart):
    """A document."""

    type: ClassVar[str] = "document"
    default_media_type: ClassVar[str] = "application/pdf"


@dataclass(frozen=True, slots=True)
class BinaryPart(MediaPart):
    """Any other file."""


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """The model calls a tool. ``signature`` lets its provider take the call back."""

    type: ClassVar[str] = "tool_call"
    id: str
    name: str
    input: dict[str, Any]
    signature: str | None = None

    def __post_init__(self) -> None:
        for field in ("id", "name"):
            if checks.word(f"ToolCallPart.{field}", getattr(self, field)) is None:
                raise TypeError(f"ToolCallPart.{field} must be a string.")
        copy = checks.json_object("ToolCallPart.input", self.input)
        object.__setattr__(self, "input", copy if copy is not None else {})


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a tool answered to the call ``id``; ``name`` is the tool's."""

    type: ClassVar[str] = "tool_result"
    id: str
    content: str
    name: str | None = None
    is_error: bool = False

    def __post_init__(self) -> None:
        if checks.word("ToolResultPart.id", self.id) is None:
            raise TypeError("ToolResultPart.id must be a string.")
        if not isinstance(self.content, str):
            raise TypeError("ToolResultPart.content must be a string.")
        checks.word("ToolResultPart.name", self.name)


Part = (
    TextPart | ThinkingPart | RefusalPart | CitationPart | MediaPart | ToolCallPart | ToolResultPart
)
PART_TYPES: tuple[type, ...] = (
    TextPart,
    ThinkingPart,
    RefusalPart,
    CitationPart,
    MediaPart,
    ToolCallPart,
    ToolResultPart,
)


def parts_of(path: str, value: Any) -> tuple[Part, ...]:
    """``value`` as parts: a string is text, one part stands for a tuple of one.

    Raises:
        TypeError: something in it is no part.
        ValueError: there is nothing in it.
    """
    if isinstance(value, (str, *PART_TYPES)):
        value = (value,)
    if not isinstance(value, Iterable) or isinstance(value, dict | bytes):
        raise TypeError(f"{path} must be text or parts, not {type(value).__name__}.")
    found = tuple(TextPart(item) if isinstance(item, str) else item for item in value)
    for item in found:
        if not isinstance(item, PART_TYPES):
            raise TypeError(f"{path} holds a {type(item).__name__}, which is no part of a message.")
    if not found:
        raise ValueError(f"{path} must not be empty.")
    return found
