"""``scripts/bench profile``: where the time of a decode step and of a prefill chunk goes.

The native part is measured inside, by kernels built with clocks in them. What Python adds is the
difference of three times: a token over HTTP, a step of the engine alone, a forward alone.
"""

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import torch
from rich.console import Console
from rich.table import Table

from benchlib.harness import Loaded, load
from benchlib.options import add_model, count, make_parser, path_of, write_json
from benchlib.targets import flm_recipe
from flm.bench.errors import BenchError
from flm.bench.prompts import Prompts
from flm.config import DEFAULT_MODEL, ServeConfig
from flm.engine.engine import Engine
from flm.engine.protocol import EngineConfig, EngineRequest, TokenOut
from flm.kernels.build import BuildError, build
from flm.kernels.library import Kernels
from flm.sampling.pipeline import Sampler
from flm.types import SamplingParams
from flm.wiring.numerics import BLOCK_SIZE

PHASES: Final = ("the rest", "products", "head", "attention", "norms and rounding", "waiting")
"""In the order of ``Phase`` in native/profile.h."""
REPEATS: Final = 3


class Clocks:
    """The kernels with clocks in them."""

    def __init__(self, path: Path) -> None:
        self.kernels = Kernels(path)
        self._take = ctypes.CDLL(str(path)).flm_profile_take
        self._take.restype = None
        self._take.argtypes = (ctypes.POINTER(ctypes.c_double),)

    def take(self) -> tuple[dict[str, float], float]:
        """Seconds of all threads in each phase, and of the forwards, since the last call."""
        out = (ctypes.c_double * (len(PHASES) + 1))()
        self._take(out)
        return dict(zip(PHASES, out, strict=False)), out[len(PHASES)]


def clocks() -> Clocks:
    """Built now if they have not been.

    Raises:
        BenchError: they cannot be.
    """
    try:
        return Clocks(build("-DFLM_PROFILE"))
    except BuildError as error:
        raise BenchError(f"The kernels cannot be built with clocks: {error}") from error


@dataclass(frozen=True, slots=True)
class Share:
    """Seconds of one step: ``phases`` are a thread's mean, ``wall`` is the whole call."""

    wall: float
    phases: Mapping[str, float]


def shares(inside: Clocks, act: Callable[[], object], num_steps: int) -> Share:
    """Where the time of ``act`` goes, which makes ``num_steps`` of one kind."""
    inside.take()
    began = time.perf_counter()
    act()
    wall = time.perf_counter() - began
    phases, forwards = inside.take()
    threads = sum(phases.values()) / forwards
    found = {name: spent / threads / num_steps for name, spent in phases.items()}
    found["around the forward"] = (wall - forwards) / num_steps
    return Share(wall / num_steps, found)


def decode_steps(model: Loaded, start: int, num_steps: int) -> None:
    """That many decode steps of one sequence."""
    for position in range(start, start + num_steps):
        model.decode(1, position)


def median_wait(times: Sequence[float]) -> float:
    """Between neighbouring times. A median, as other work on the machine makes a few waits long."""
    return statistics.median(after - before for before, after in pairwise(times))


def forward_step_s(model: Loaded, start: int, num_steps: int) -> float:
    """Seconds of a decode step's forward."""
    times = [time.perf_counter()]
    for position in range(start, start + num_steps):
        model.decode(1, position)
        times.append(time.perf_counter())
    return median_wait(times)


def engine_step_s(model: Loaded, prompt_len: int, num_steps: int) -> float:
    """Seconds of a decode step of the engine: plan, forward, sample, settle."""
    limits = EngineConfig(block_size=BLOCK_SIZE, num_blocks=model.num_blocks, log_prefill=False)
    engine = Engine(model.runner, limits, sampler=Sampler(model.numerics.kernels))
    prompt = tuple(range(1, prompt_len + 1))
    greedy = SamplingParams(temperature=0.0)
    engine.submit(EngineRequest("bench", prompt, greedy, max_new_tokens=num_steps + 1))
    times: list[float] = []
    while engine.has_work:
        events = engine.step()
        times += [time.perf_counter() for event in events if isinstance(event, TokenOut)]
    return median_wait(times)


def http_token_s(model: str, threads: int, prompt_len: int, num_steps: int) -> float:
    """Seconds of a token of one client over HTTP."""
    recipe = flm_recipe(model, threads, 16384, ())
    with recipe.start() as target:
        prompts = Prompts(0)
        times = []
        for _ in range(REPEATS + 1):
            text = [{"role": "user", "content": prompts.text(prompt_len)}]
            times.append(median_wait(target.generate(text, num_steps + 1).times))
    return statistics.median(times[1:])


@torch.inference_mode()
def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = make_parser("profile", "Where the time of a decode step and a prefill chunk goes.")
    add_model(parser)
    parser.add_argument("--context", type=count(1), default=64, help="tokens before decoding (64)")
    parser.add_argument("--chunk", type=count(1), default=512, help="tokens of the chunk (512)")
    parser.add_argument("--steps", type=count(2), default=128, help="decode steps (128)")
    asked = parser.parse_args(arguments)
    path, config = path_of(asked.model), ServeConfig(threads=asked.threads)
    inside = clocks()
    room = max(asked.chunk, asked.context + asked.steps) + 2 * BLOCK_SIZE
    timed = load(path, config, room, inside.kernels)
    if timed.numerics.kernels is None:
        raise BenchError("The native kernels do not serve this model here; there is no profile.")
    timed.read(range(1, asked.chunk + 1))
    chunk = shares(inside, lambda: timed.read(range(1, asked.chunk + 1), 0, 1), 1)
    timed.read(range(1, asked.context + 1))
    decode = shares(inside, lambda: decode_steps(timed, asked.context, asked.steps), asked.steps)
    plain = load(path, config, room)
    plain.read(range(1, asked.context + 1))
    forward_s = forward_step_s(plain, asked.context, asked.steps)
    engine_s = engine_step_s(plain, asked.context, asked.steps)
    name = DEFAULT_MODEL if asked.model is None else asked.model
    http_s = http_token_s(name, asked.threads, asked.context, asked.steps)
    token = {
        "forward": forward_s,
        "scheduler and sampler": engine_s - forward_s,
        "text, threads, HTTP and the client": http_s - engine_s,
    }
    title = f"{path.name}, {asked.threads} threads"
    tables = {
        f"{title}: a decode step at {asked.context} tokens": decode.phases,
        f"{title}: a chunk of {asked.chunk} tokens": chunk.phases,
        f"{title}: a token over HTTP": token,
    }
    for heading, parts in tables.items():
        Console().print(_table(heading, parts))
    write_json(asked.json, {heading: dict(parts) for heading, parts in tables.items()})


def _table(title: str, parts: Mapping[str, float]) -> Table:
    found = Table(title=title)
    found.add_column("")
    found.add_column("ms", justify="right")
    found.add_column("%", justify="right")
    whole = sum(parts.values())
    for name, spent in (*parts.items(), ("all", whole)):
        found.add_row(name, f"{1e3 * spent:.3f}", f"{100 * spent / whole:.1f}")
    return found
