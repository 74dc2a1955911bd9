"""instructor: a nested pydantic model out of a small text, in its three modes."""

import sys
from typing import Any

import instructor
import openai
from judgelib.checks import REQUEST_TIMEOUT_S, Server, documented, main
from pydantic import BaseModel, ConfigDict, Field

TEXT = (
    "Extract the person: Anna Berg, 34 years old, lives in Oslo, Norway. She speaks Norwegian and "
    "English."
)
QUESTION = 'Name the capital of France. Reply as JSON: {"capital": ...}'


class Home(BaseModel):
    """Where a person lives."""

    city: str = Field(max_length=40)
    country: str = Field(max_length=40)


class Person(BaseModel):
    """A person in the text."""

    name: str = Field(max_length=40)
    age: int = Field(ge=0, le=120)
    home: Home
    languages: list[str] = Field(max_length=3)


class Anything(BaseModel):
    """Any JSON object: json_object promises no more."""

    model_config = ConfigDict(extra="allow")


def extract(server: Server, mode: Any, model: type[BaseModel], text: str = TEXT) -> None:
    """Ask once, without a second try that could hide a wrong first answer."""
    with openai.OpenAI(
        base_url=server.url, api_key=server.api_key, max_retries=0, timeout=REQUEST_TIMEOUT_S
    ) as plain:
        client = instructor.from_openai(plain, mode=mode)
        found = client.chat.completions.create(
            model=server.model,
            response_model=model,
            messages=[{"role": "user", "content": text}],
            temperature=0,
            max_tokens=400,
            max_retries=0,
        )
    assert isinstance(found, model)


def tools_mode(server: Server) -> None:
    """Mode TOOLS gives a nested model."""
    extract(server, instructor.Mode.TOOLS, Person)


def json_schema_mode(server: Server) -> None:
    """Mode JSON_SCHEMA gives a nested model."""
    extract(server, instructor.Mode.JSON_SCHEMA, Person)


def json_mode(server: Server) -> None:
    """Mode JSON gives a whole JSON object."""
    extract(server, instructor.Mode.JSON, Anything, QUESTION)


if __name__ == "__main__":
    sys.exit(main(tools_mode, json_schema_mode, json_mode, documented("instructor")))
