"""The fields of Ollama's bodies that take values of several kinds."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from flm.errors import InvalidRequestError
from flm.server.schemas.generation import EFFORT_ALIASES, checked
from flm.types import OutputConstraint

_EFFORTS = tuple(name for name in EFFORT_ALIASES if name != "none")
_DURATION = r"^[-+]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^[-+]?[0-9]+(\.[0-9]+)?$"
_FORMAT_SCHEMA = {"anyOf": [{"enum": ["", "json"]}, {"type": "object"}, {"type": "null"}]}
_THINK_SCHEMA = {"anyOf": [{"type": ["boolean", "null"]}, {"enum": list(_EFFORTS)}]}
_KEEP_SCHEMA = {
    "anyOf": [{"type": ["number", "null"]}, {"type": "string", "pattern": _DURATION}],
}
_NOTHING = {
    "type": ["array", "null"],
    "maxItems": 0,
    "description": "HTTP 400: no model here sees.",
}
_NO_TEXT = {"type": ["string", "null"], "maxLength": 0}


def read_format(value: Any) -> OutputConstraint | None:
    """What ``format`` asks for; None for text.

    Raises:
        InvalidRequestError: it is something else.
    """
    if value in (None, ""):
        return None
    if value != "json" and not isinstance(value, dict):
        raise InvalidRequestError('format must be "json" or a JSON Schema.', param="format")
    return OutputConstraint("json", None if value == "json" else value, "format")


def _read_think(value: Any) -> None:
    is_effort = isinstance(value, str) and value in _EFFORTS
    if not is_effort and not isinstance(value, bool | None):
        raise InvalidRequestError(
            f"think must be true, false, or one of {', '.join(_EFFORTS)}.", param="think"
        )


def _read_keep_alive(value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_duration = isinstance(value, str) and re.fullmatch(_DURATION, value) is not None
    if value is not None and not is_number and not is_duration:
        raise InvalidRequestError(
            'keep_alive must be seconds or a duration such as "5m".', param="keep_alive"
        )


def is_zero(keep_alive: Any) -> bool:
    """True when no time at all is asked for, in whatever unit."""
    text = str(keep_alive)
    return keep_alive is not None and not re.search("[1-9]", text)


def _refuse_images(value: Any) -> Any:
    if value not in (None, []):
        raise PydanticCustomError("images", "cannot be read: no model here sees; leave them out")
    return value


def _refuse_suffix(value: Any) -> Any:
    if value not in (None, ""):
        raise PydanticCustomError(
            "suffix", "cannot be honoured: the models here cannot fill a gap before a text"
        )
    return value


Format = Annotated[Any, BeforeValidator(checked(read_format)), WithJsonSchema(_FORMAT_SCHEMA)]
Think = Annotated[Any, BeforeValidator(checked(_read_think)), WithJsonSchema(_THINK_SCHEMA)]
KeepAlive = Annotated[Any, BeforeValidator(checked(_read_keep_alive)), WithJsonSchema(_KEEP_SCHEMA)]
Images = Annotated[Any, BeforeValidator(_refuse_images), WithJsonSchema(_NOTHING)]
Suffix = Annotated[Any, BeforeValidator(_refuse_suffix), WithJsonSchema(_NO_TEXT)]
