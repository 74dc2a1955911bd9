"""Options and look-ups that the commands of scripts/bench share."""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flm.bench.errors import BenchError
from flm.cli.serve import pull, require_known
from flm.config import DEFAULT_MODEL, KvDtype, ServeConfig
from flm.models.files import open_model
from flm.models.store import open_store
from flm.wiring.numerics import choose_numerics


def count(minimum: int) -> Callable[[str], int]:
    """A type for whole numbers from ``minimum`` up."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from {minimum} up")
        return value

    return parse


def make_parser(command: str, description: str, epilog: str | None = None) -> Any:
    """A parser with what every command takes."""
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {command}".rstrip(),
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=count(1), default=os.cpu_count() or 1, help="all cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values there too")
    return parser


def add_model(parser: argparse.ArgumentParser) -> None:
    """``--model``."""
    parser.add_argument(
        "--model",
        help=f"a tag or a path; for a URL the name to send (default {DEFAULT_MODEL})",
    )


def add_kv_dtypes(parser: argparse.ArgumentParser) -> None:
    """``--kv-dtype``, repeatable."""
    parser.add_argument(
        "--kv-dtype",
        action="append",
        choices=("auto", "float32", "bfloat16", "float16", "int8"),
        default=[],
        help="format of the KV cache; repeatable (bfloat16 and int8 with the native kernels)",
    )


def kv_dtypes_of(asked: Any, path: Path) -> list[KvDtype]:
    """The formats asked for, else those that serve this model here in the fast mode."""
    if asked.kv_dtype:
        return list(asked.kv_dtype)
    numerics = choose_numerics(ServeConfig(), open_model(path).config)
    return ["auto"] if numerics.kernels is None else ["bfloat16", "int8"]


def path_of(model: str | None) -> Path:
    """The files of an installed model, which is fetched first where it is missing."""
    name = DEFAULT_MODEL if model is None else model
    store = open_store()
    if require_known(store, name):
        pull(store, name)
    return store.resolve(name).path


def gguf_of(model: str | None) -> Path:
    """The same, when it is a GGUF file.

    Raises:
        BenchError: it is not.
    """
    path = path_of(model)
    if path.suffix != ".gguf":
        raise BenchError(f"{model} is no GGUF file; llama-server and transformers need one here.")
    return path


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours and what stands behind ``--``."""
    if "--" not in arguments:
        return list(arguments), []
    cut = list(arguments).index("--")
    return list(arguments[:cut]), list(arguments[cut + 1 :])


def write_json(path: Path | None, document: object) -> None:
    """Write a document, if a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
