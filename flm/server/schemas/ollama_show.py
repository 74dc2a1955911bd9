"""The body of Ollama's ``POST /api/show``."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from flm.adaptation import Mode
from flm.errors import InvalidRequestError
from flm.server.schemas.generation import Unread
from flm.server.schemas.types import Schema


class ShowBody(Schema):
    """Which model to show."""

    unread: ClassVar[Mapping[str, Unread]] = {
        "verbose": Unread(
            "The tables of the tokenizer are not shown.", lambda value: value is False
        )
    }

    model: str | None = Field(None, description="Required, here or as name.")
    name: str | None = Field(None, description="An older name of model.")
    adaptations: Mode | None = Field(None, description="As in every other body.")

    @model_validator(mode="after")
    def _names_one(self) -> "ShowBody":
        if self.model is None and self.name is None:
            raise InvalidRequestError("model is required.", param="model")
        return self

    @property
    def wanted(self) -> str:
        """The model's name."""
        return self.model if self.model is not None else str(self.name)
