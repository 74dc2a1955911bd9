"""Reading a request body: bytes, strict JSON, and the schema, with errors that name the field."""

import asyncio
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from anyio import to_thread
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from flm.errors import FlmError, InvalidJSONError, InvalidRequestError, ShuttingDownError
from flm.server.context import ServerContext

B = TypeVar("B", bound=BaseModel)

# Below this many bytes a thread costs more than it saves.
_INLINE_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class ReadBody(Generic[B]):
    """A parsed body. A large one is worked on in threads, off the event loop."""

    body: B
    is_large: bool


async def read_body(request: Request, schema: type[B], ctx: ServerContext) -> ReadBody[B]:
    """The body of ``request`` as ``schema``, whatever its content type says.

    Raises:
        InvalidJSONError: not a JSON object.
        InvalidRequestError: a field cannot be read; ``param`` is its dotted path.
        BodyTooLargeError: more bytes than the server reads.
        ShuttingDownError: the server is closing and the body is not there yet.
    """
    raw = await _whole(request, ctx)
    if len(raw) <= _INLINE_BYTES:
        return ReadBody(parse_body(raw, schema), is_large=False)
    body = await to_thread.run_sync(parse_body, raw, schema, limiter=ctx.limiter)
    return ReadBody(body, is_large=True)


async def _whole(request: Request, ctx: ServerContext) -> bytes:
    """Every byte; a client that is slow to send them does not keep a closing server."""
    reading = asyncio.create_task(request.body())
    closing = asyncio.create_task(ctx.service.closing())
    try:
        await asyncio.wait({reading, closing}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        raise ShuttingDownError("The server is shutting down; send the request again later.")
    finally:
        reading.cancel()
        closing.cancel()


def parse_body(raw: bytes, schema: type[B]) -> B:
    """``raw`` as ``schema``; fields that are null count as absent."""
    body = {key: value for key, value in parse_object(raw).items() if value is not None}
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise _field_error(error, body) from None


# --- JSON --------------------------------------------------------------------------------------


def parse_object(raw: bytes) -> dict[str, Any]:
    """Strict JSON (RFC 8259): no NaN, no lone surrogates, no key twice, no number that overflows,
    at most 200 levels deep.

    Raises:
        InvalidJSONError: ``raw`` is anything but such an object.
    """
    if not raw.strip():
        raise InvalidJSONError("The body is empty; send a JSON object.")
    try:
        # Two passes: this parser is the strict one, the other one can see keys that come twice.
        from_json(raw, allow_inf_nan=False, cache_strings="none")
        value = json.loads(
            raw.decode(), object_pairs_hook=_unique_keys, parse_float=_finite, parse_constant=_none
        )
    except (ValueError, RecursionError) as error:
        raise InvalidJSONError(f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InvalidJSONError(f"The body must be a JSON object, not {json_type(value)}.")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {_quoted(key)} comes twice in one object")
        seen.add(key)
    return result


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _none(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


# --- fields ------------------------------------------------------------------------------------

_WANTED = {
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be a boolean",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
_TAG_ERRORS = {"union_tag_invalid", "union_tag_not_found"}


def _field_error(error: ValidationError, body: dict[str, Any]) -> FlmError:
    details = error.errors(include_url=False)[0]
    param = _dotted(_path(details, body))
    if details["type"] in _TAG_ERRORS:
        return _tag_error(details, param)
    return InvalidRequestError(f"{param} {_complaint(details)}.", param=param)


def _complaint(details: ErrorDetails) -> str:
    kind, value = details["type"], details["input"]
    if kind == "missing":
        return "is required"
    if kind in {"too_short", "string_too_short"}:
        return "must not be empty"
    if kind == "float_type" and type(value) is int:
        return "must be a number that 64 bits can hold"
    if kind in _WANTED:
        return f"{_WANTED[kind]}, not {json_type(value)}"
    if kind == "literal_error":
        return f"must be {details['ctx']['expected']}, not {_quoted(value)}"
    if kind in {"greater_than_equal", "less_than_equal"}:
        bound = details["ctx"].get("ge", details["ctx"].get("le"))
        return f"must be {'at least' if 'ge' in details['ctx'] else 'at most'} {bound}"
    return details["msg"][:1].lower() + details["msg"][1:]


def _tag_error(details: ErrorDetails, param: str) -> FlmError:
    """An object whose ``role`` or ``type`` says which kind it is, and says none that we know."""
    key = details["ctx"]["discriminator"].strip("'")
    param = f"{param}.{key}"
    value = details["input"].get(key) if isinstance(details["input"], dict) else None
    if value is None:
        return InvalidRequestError(f"{param} is required.", param=param)
    if not isinstance(value, str):
        problem = f"must be a string, not {json_type(value)}"
        return InvalidRequestError(f"{param} {problem}.", param=param)
    known = details["ctx"]["expected_tags"]
    return InvalidRequestError(
        f"{param} {_quoted(value)} is not supported; use one of {known}.", param=param
    )


def _path(details: ErrorDetails, body: Any) -> list[str | int]:
    """Where in the body the error is: its location without the names of union members."""
    path: list[str | int] = []
    here: Any = body
    for step in details["loc"]:
        is_index = isinstance(step, int) and isinstance(here, list) and step < len(here)
        if is_index or (isinstance(here, dict) and step in here):
            path.append(step)
            here = here[step]
    if details["type"] == "missing":
        path.append(details["loc"][-1])
    return path


def _dotted(path: Iterable[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def json_type(value: Any) -> str:
    """What JSON calls a value, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "a string", int: "an integer", float: "a number", list: "an array"}
    return names.get(type(value), "an object")


def _quoted(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
