"""``flm ask`` and ``flm plan``: one question to any provider, and what it would be changed to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flm.cli.console import note, say, say_json, say_table
from flm.cli.options import json_flag, option
from flm.config import DEFAULT_HOST, DEFAULT_PORT
from flm.errors import FlmError

if TYPE_CHECKING:
    from flm.router import LMRouter, Request

MODEL_HELP = "provider:model, such as flm:smollm2:135m, or a name like claude-haiku-4-5."

System = Annotated[str | None, typer.Option("--system", help="Instructions.")]
Temperature = Annotated[float | None, typer.Option("--temperature", help="0 to 2.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Length limit in tokens.")]
TopP = Annotated[float | None, typer.Option("--top-p", help="0 to 1.")]
TopK = Annotated[int | None, typer.Option("--top-k", help="At least 1.")]
MinP = Annotated[float | None, typer.Option("--min-p", help="0 to 1.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Makes choices repeatable.")]
Stop = Annotated[list[str] | None, typer.Option("--stop", help="Where to end; repeatable.")]
Effort = Annotated[
    str | None,
    typer.Option("--effort", help="Reasoning: off, minimal, low, medium, high, xhigh, max."),
]
Mode = Annotated[
    str, typer.Option("--adaptations", help="note, silent, or refuse instead of changing.")
]
Host = Annotated[str, option("host", help="Address of the local server.")]
Port = Annotated[int, option("port", "-p", help="Port of the local server.")]


def ask(
    model: Annotated[str, typer.Argument(help=MODEL_HELP)],
    question: Annotated[str, typer.Argument(help="What to ask.")],
    system: System = None,
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    effort: Effort = None,
    adaptations: Mode = "note",
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
) -> None:
    """Ask one question. Keys come from the environment; what was changed is told on stderr."""
    settings = {
        "temperature": temperature,
        "max_tokens": max_tokens,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": stop,
    }
    with _told():
        request = _request(model, question, system, effort, settings)
        with _router(adaptations, host, port) as router, router.stream(request) as stream:
            for text in stream.text():
                typer.echo(text, nl=False)
            typer.echo("")
            response = stream.response
    for entry in response.adaptations:
        note(f"{entry.field} was {entry.action.replace('_', ' ')}: {entry.reason}")
    if response.finish_reason != "stop":
        note(f"The answer ended because of: {response.finish_reason.replace('_', ' ')}.")


def plan(
    models: Annotated[list[str], typer.Argument(help=f"{MODEL_HELP} Several may be compared.")],
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    effort: Effort = None,
    as_json: Annotated[bool, json_flag()] = False,
) -> None:
    """Show what each provider's request would be changed to. Nothing is sent, no key is needed."""
    settings = {
        "temperature": temperature,
        "max_tokens": max_tokens,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": stop,
    }
    with _told(), _router("note", DEFAULT_HOST, DEFAULT_PORT) as router:
        rows = [row for model in models for row in _rows(router, model, effort, settings)]
    if as_json:
        say_json(rows)
    elif rows:
        _show(rows)
    else:
        say("Nothing would be changed.")


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("model", "setting", "action", "asked", "applied", "reason", box=None)
    for row in rows:
        cells = (row[name] for name in ("model", "field", "action", "asked", "applied", "reason"))
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    say_table(table)


def _rows(
    router: "LMRouter", model: str, effort: str | None, settings: dict[str, Any]
) -> list[dict[str, Any]]:
    from flm.router import UnsupportedFeatureError

    request = _request(model, "?", None, effort, settings)
    empty = {"model": model, "asked": None, "applied": None}
    try:
        return [{**empty, **entry.to_dict()} for entry in router.plan(request)]
    except UnsupportedFeatureError as error:
        return [{**empty, "field": error.feature, "action": "refused", "reason": error.message}]


def _request(
    model: str, question: str, system: str | None, effort: str | None, settings: dict[str, Any]
) -> "Request":
    from flm.router import Config, Message, Reasoning, Request

    reasoning = Reasoning(effort=effort) if effort is not None else None  # type: ignore[arg-type]
    config = Config(reasoning=reasoning, **settings)
    return Request(model=model, system=system, messages=(Message.user(question),), config=config)


def _router(adaptations: str, host: str, port: int) -> "LMRouter":
    from flm.cli.chat import base_url
    from flm.router import LMRouter, RouterConfig

    local = {"flm": f"{base_url(host, port)}/v1"}
    return LMRouter(RouterConfig(adaptations=adaptations, base_urls=local))  # type: ignore[arg-type]


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the router as errors of the command line."""
    from flm.router import RouterError

    try:
        yield
    except RouterError as error:
        raise FlmError(error.message) from error
    except (TypeError, ValueError) as error:
        raise FlmError(str(error)) from error
