"""JSON types as the fields use them: strict, and within what a field can hold."""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Int64 = Annotated[int, Field(strict=True, ge=-(2**63), le=2**63 - 1)]
NotNegative = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
TokenId = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]


class Schema(BaseModel):
    """An object in a request. Keys it does not know are kept apart, to be recorded."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, protected_namespaces=())


def declared(schema: Schema) -> dict[str, Any]:
    """The fields that are there and not null, as plain JSON values; unknown keys are left out."""
    pairs = ((name, getattr(schema, name)) for name in type(schema).model_fields)
    return {name: _plain(value) for name, value in pairs if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Schema):
        return declared(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def unknown_fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of the keys no schema knows: nested ones first, then those of
    ``schema`` itself in the body's order. Nested keys that hold nothing ask for nothing."""
    for name in type(schema).model_fields:
        yield from _unknown_in(getattr(schema, name), f"{prefix}{name}")
    extra = schema.model_extra if schema.model_extra is not None else {}
    if prefix:
        yield from unread_keys(extra, (), prefix.removesuffix("."))
        return
    for key, value in extra.items():
        if value is not None:
            yield key, value


def unread_keys(
    value: Mapping[str, Any], known: Collection[str], path: str
) -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of the keys beside ``known`` of the object at ``path``; those that
    hold nothing ask for nothing."""
    for key, own in value.items():
        if key not in known and own is not None and own not in ([], {}):
            yield f"{path}.{key}", own


def _unknown_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Schema):
        yield from unknown_fields(value, f"{path}.")
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        for index, item in enumerate(value):
            yield from _unknown_in(item, f"{path}[{index}]")
