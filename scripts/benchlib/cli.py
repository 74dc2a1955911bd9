"""The command line of scripts/bench."""

import argparse
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from rich.console import Console

from benchlib import options
from benchlib.measure import run
from benchlib.options import count
from benchlib.plan import Plan
from benchlib.report import as_json, facts, table
from benchlib.scenarios import SCENARIOS
from benchlib.targets import (
    Recipe,
    flm_recipe,
    llama_recipe,
    speculating,
    transformers_recipe,
    url_recipe,
)
from flm.bench.prompts import Prompts
from flm.config import DEFAULT_MODEL
from flm.errors import FlmError

TARGETS = "flm, llama-server, transformers, or the base URL of a running server"
COMMANDS: Final[Mapping[str, str]] = {
    "sampler": "what sampling a row costs, by setting",
    "quality": "how far the fast mode's predictions are from the exact mode's",
    "cache": "what formats of the KV cache take and how fast they are",
    "sweep": "throughput by number of clients, and cost by length of the prompt",
    "profile": "where the time of a token goes",
}
EPILOG = """
examples:
  scripts/bench                                   our server alone
  scripts/bench --peer llama-server --minutes 15  beside llama.cpp on the same file
  scripts/bench --peer transformers --only decode beside transformers' own generate
  scripts/bench --peer http://127.0.0.1:8000      beside any OpenAI-compatible server
  scripts/bench -- --dtype float32                arguments behind -- go to flm serve

other commands, each with a --help of its own:
""" + "\n".join(f"  scripts/bench {name:8} {what}" for name, what in COMMANDS.items())


def make_parser() -> Any:
    """All options of the measurement itself."""
    parser = options.make_parser(
        "", "Measure start-up, first token, prefill, decode, throughput and memory.", EPILOG
    )
    options.add_model(parser)
    add_targets(parser)
    default, add = Plan(), parser.add_argument
    names = ["startup", *SCENARIOS]
    add("--only", action="append", choices=names, default=[], help="not all, but this; repeatable")
    add("--prompt-len", type=count(1), action="append", help="tokens; repeatable (512 and 4000)")
    add("--decode-len", type=count(2), default=default.decode_len, help="new tokens of one client")
    add("--clients", type=count(0), default=default.num_clients, help="at once, 0 for none (8)")
    add("--client-prompt-len", type=count(1), default=default.client_prompt_len, help="of each")
    add("--client-tokens", type=count(1), default=default.client_tokens, help="new ones of each")
    add("--shared-len", type=count(1), default=default.shared_len, help="a common system prompt")
    add("--turn-len", type=count(1), default=default.turn_len, help="a conversation's first turn")
    add("--arrival-len", type=count(1), default=default.arrival_len, help="a prompt beside others")
    add("--repeat", type=count(1), default=default.repeat, help="rounds (3)")
    add("--minutes", type=float, help="start no round that would not end in this time")
    add("--seed", type=count(0), help="of the prompts; default: new ones in every run")
    return parser


def add_targets(parser: argparse.ArgumentParser) -> None:
    """What is measured, and beside what."""
    add = parser.add_argument
    add("target", nargs="?", default="flm", help=f"what to measure: {TARGETS}")
    add("--url", help="the same as giving the base URL as the target")
    add("--peer", action="append", default=[], help=f"measured in the same run: {TARGETS}")
    add("--llama-server", metavar="PROGRAM", help="a llama-server of your own as that peer")


def recipes_of(asked: Any, plan: Plan, serve_args: Sequence[str]) -> list[Recipe]:
    """The target and its peers."""
    first = asked.target if asked.url is None else asked.url
    return [_recipe(name, asked, plan, serve_args) for name in (first, *asked.peer)]


def _recipe(name: str, asked: Any, plan: Plan, serve_args: Sequence[str]) -> Recipe:
    if name == "flm":
        model = DEFAULT_MODEL if asked.model is None else asked.model
        path = options.path_of(asked.model)
        recipe = flm_recipe(model, asked.threads, plan.kv_tokens, serve_args)
        return replace(recipe, weight_bytes=path.stat().st_size) if path.is_file() else recipe
    if name not in ("llama-server", "transformers"):
        return url_recipe(name, asked.model)
    gguf = options.gguf_of(asked.model)
    if name == "transformers":
        recipe = transformers_recipe(gguf, asked.threads)
    else:
        slots = max(plan.num_clients, 1)
        recipe = llama_recipe(gguf, asked.threads, slots, plan.kv_tokens, asked.llama_server)
    return replace(recipe, weight_bytes=gguf.stat().st_size)


def _plan(asked: Any) -> Plan:
    default = Plan()
    return Plan(
        prompt_lens=tuple(dict.fromkeys(asked.prompt_len or default.prompt_lens)),
        decode_len=asked.decode_len,
        num_clients=asked.clients,
        client_prompt_len=asked.client_prompt_len,
        client_tokens=asked.client_tokens,
        shared_len=asked.shared_len,
        turn_len=asked.turn_len,
        arrival_len=asked.arrival_len,
        repeat=asked.repeat,
        only=frozenset(asked.only),
        minutes=asked.minutes,
    )


def _measure(arguments: Sequence[str]) -> None:
    ours, serve_args = options.split(arguments)
    asked = make_parser().parse_args(ours)
    plan = _plan(asked)
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    progress = Console(stderr=True)
    recipes = recipes_of(asked, plan, serve_args)
    guessing = [] if not plan.wants("repeat") else [speculating(recipe) for recipe in recipes]
    recipes += [recipe for recipe in guessing if recipe is not None]
    result = run(
        recipes,
        plan,
        Prompts(seed),
        lambda text: progress.print(f"bench: {text}"),
        threads=asked.threads,
    )
    Console().print(table(result, plan))
    for line in facts(result, asked.threads):
        print(line)
    options.write_json(asked.json, as_json(result, plan, threads=asked.threads, seed=seed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when all of it worked."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    act: Callable[[Sequence[str]], None] = _measure
    if given and given[0] in COMMANDS:
        act = import_module(f"benchlib.{given.pop(0)}").main
    try:
        act(given)
    except FlmError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
