"""JSON types as the fields use them: strict, and within what a field can hold."""

from collections.abc import Iterator
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
    for key, value in extra.items():
        if value is not None and (not prefix or value not in ([], {})):
            yield f"{prefix}{key}", value


def _unknown_in(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Schema):
        yield from unknown_fields(value, f"{path}.")
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        for index, item in enumerate(value):
            yield from _unknown_in(item, f"{path}[{index}]")
