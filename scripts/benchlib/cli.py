"""The command line of scripts/bench."""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchlib.errors import BenchError
from benchlib.measure import Plan, run
from benchlib.prompts import Prompts
from benchlib.report import as_json, table
from benchlib.targets import Recipe, flm_recipe, llama_recipe, transformers_recipe, url_recipe
from flm.cli.serve import pull, require_known
from flm.config import DEFAULT_MODEL
from flm.errors import FlmError
from flm.models.store import open_store

TARGETS = "flm, llama-server, transformers, or the base URL of a running server"
EPILOG = """
examples:
  scripts/bench                                   our server alone
  scripts/bench --peer transformers               beside transformers' own generate
  scripts/bench --peer llama-server --clients 16  beside llama.cpp on the same file
  scripts/bench --peer http://127.0.0.1:8000      beside any OpenAI-compatible server
  scripts/bench transformers                      the reference alone
  scripts/bench -- --dtype float32                arguments behind -- go to flm serve
"""


def _count(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from {minimum} up")
        return value

    return parse


def make_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure start-up, first token, prefill, decode, throughput and memory.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("target", nargs="?", default="flm", help=f"what to measure: {TARGETS}")
    add("--url", help="the same as giving the base URL as the target")
    add("--peer", action="append", default=[], help=f"measured in the same run: {TARGETS}")
    add("--model", help=f"a tag or a path; for a URL the name to send (default {DEFAULT_MODEL})")
    add("--prompt-len", type=_count(1), action="append", help="tokens; repeatable (512)")
    add("--decode-len", type=_count(2), default=128, help="new tokens of one client (128)")
    add("--clients", type=_count(0), default=8, help="clients at once, 0 for none (8)")
    add("--client-prompt-len", type=_count(1), default=64, help="prompt of each (64)")
    add("--client-tokens", type=_count(1), default=64, help="new tokens of each (64)")
    add("--cached-turn", action="store_true", help="also the second turn of a conversation")
    add("--repeat", type=_count(1), default=3, help="rounds (3)")
    add("--threads", type=_count(1), default=os.cpu_count() or 1, help="of what we start")
    add("--seed", type=_count(0), help="of the prompts; default: new ones in every run")
    add("--json", type=Path, metavar="FILE", help="write all values there too")
    return parser


def _gguf_of(model: str) -> Path:
    """The file of an installed model, which is fetched first where it is missing."""
    store = open_store()
    if require_known(store, model):
        pull(store, model)
    path = store.resolve(model).path
    if path.suffix != ".gguf":
        raise BenchError(f"{model} is no GGUF file; llama-server and transformers need one here.")
    return path


def _recipe(name: str, options: argparse.Namespace, serve_args: Sequence[str]) -> Recipe:
    model = DEFAULT_MODEL if options.model is None else options.model
    if name == "flm":
        return flm_recipe(model, options.threads, serve_args)
    if name == "llama-server":
        return llama_recipe(_gguf_of(model), options.threads, max(options.clients, 1))
    if name == "transformers":
        return transformers_recipe(_gguf_of(model), options.threads)
    return url_recipe(name, options.model)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours and what stands behind ``--``."""
    if "--" not in arguments:
        return list(arguments), []
    cut = list(arguments).index("--")
    return list(arguments[:cut]), list(arguments[cut + 1 :])


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        prompt_lens=tuple(dict.fromkeys(options.prompt_len or [512])),
        decode_len=options.decode_len,
        num_clients=options.clients,
        client_prompt_len=options.client_prompt_len,
        client_tokens=options.client_tokens,
        repeat=options.repeat,
        cached_turn=options.cached_turn,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 when all of it worked."""
    ours, serve_args = _split(sys.argv[1:] if arguments is None else arguments)
    options = make_parser().parse_args(ours)
    plan = _plan(options)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    progress = Console(stderr=True)
    first = options.target if options.url is None else options.url
    try:
        recipes = [_recipe(name, options, serve_args) for name in (first, *options.peer)]
        outcomes = run(recipes, plan, Prompts(seed), lambda text: progress.print(f"bench: {text}"))
    except (BenchError, FlmError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    Console().print(table(outcomes, plan))
    if options.json is not None:
        document = as_json(outcomes, plan, threads=options.threads, seed=seed)
        options.json.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    return 0
