"""The body of ``POST /api/cancel``."""

from typing import Annotated

from pydantic import Field

from flm.adaptation import Mode
from flm.server.schemas.types import Schema


class CancelBody(Schema):
    """Which request to end."""

    request_id: Annotated[str, Field(min_length=1)] = Field(
        description="What the request had as request_id, or the id of its reply (the header "
        "x-request-id)."
    )
    adaptations: Mode | None = Field(None, description="As in every other body.")
