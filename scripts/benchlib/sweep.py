"""``scripts/bench sweep``: throughput by number of clients, cost by length of the prompt; a table,
JSON and pictures."""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchlib import options
from benchlib.cli import add_targets, recipes_of
from benchlib.options import count
from benchlib.plan import Plan
from benchlib.report import cell, machine
from benchlib.scenarios import Bench, ask, fit_of
from benchlib.stats import Summary, summarise
from benchlib.targets import Target
from flm.bench.prompts import Fit, Prompts

Values = dict[int, list[float]]
CLIENTS = (1, 2, 4, 8, 16)
LENGTHS = (1000, 2000, 4000, 8000)
TITLES = {
    "clients": ("clients at once", "total tokens a second"),
    "prompt": ("tokens of the prompt", "seconds to the first token"),
}


def sweep(
    targets: Sequence[tuple[Target, Fit]],
    plan: Plan,
    prompts: Prompts,
    clients: Sequence[int],
    lengths: Sequence[int],
) -> list[dict[str, Values]]:
    """Values by kind and size for each target; they take turns at every size."""
    found: list[dict[str, Values]] = [{kind: defaultdict(list) for kind in TITLES} for _ in targets]
    for number in range(1, plan.repeat + 1):
        for size in clients:
            for (target, fit), values in zip(targets, found, strict=True):
                if size > 1 and not target.takes_many:
                    continue
                bench = Bench(target, fit, prompts, plan, defaultdict(list), number)
                questions = [ask(bench.text(plan.client_prompt_len)) for _ in range(size)]
                replies, took = bench.all_at_once(questions)
                total = sum(reply.completion_tokens for reply in replies)
                values["clients"][size].append(total / took)
        for size in lengths:
            for (target, fit), values in zip(targets, found, strict=True):
                reply = target.generate(ask(prompts.text(fit.words_for(size))), 1)
                values["prompt"][size].append(reply.first_token_s)
    return found


def draw(
    path: Path, kind: str, names: Sequence[str], found: Sequence[Mapping[int, list[float]]]
) -> None:
    """A small picture of one kind: medians as lines, every value as a point."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "flm", "font.size": 9}):
        figure = Figure(figsize=(5, 3.2), layout="constrained")
        axes = figure.subplots()
        for name, values in zip(names, found, strict=True):
            sizes = sorted(values)
            (line,) = axes.plot(
                sizes, [Summary(tuple(values[size])).median for size in sizes], label=name
            )
            for size in sizes:
                own = values[size]
                axes.scatter([size] * len(own), own, s=9, color=line.get_color())
        across, up = TITLES[kind]
        axes.set_xscale("log", base=2)
        ticks = sorted({size for values in found for size in values})
        axes.set_xticks(ticks, [str(size) for size in ticks])
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main(arguments: Sequence[str]) -> None:
    """Measure, print, write and draw."""
    parser = options.make_parser(
        "sweep", "Throughput by number of clients, and cost by length of the prompt."
    )
    options.add_model(parser)
    add_targets(parser)
    add = parser.add_argument
    add("--clients", type=count(1), action="append", help=f"repeatable {CLIENTS}")
    add("--prompt-len", type=count(1), action="append", help=f"repeatable {LENGTHS}")
    add("--repeat", type=count(1), default=2, help="rounds (2)")
    add("--images", type=Path, metavar="FOLDER", help="draw clients.svg and prompt.svg there")
    ours, serve_args = options.split(arguments)
    asked = parser.parse_args(ours)
    clients, lengths = asked.clients or CLIENTS, asked.prompt_len or LENGTHS
    plan = replace(Plan(), num_clients=max(clients), prompt_lens=tuple(lengths), shared_len=1)
    plan = replace(plan, repeat=asked.repeat)
    prompts = Prompts(secrets.randbits(32))
    recipes = recipes_of(asked, plan, serve_args)
    with ExitStack() as stack:
        targets = [stack.enter_context(recipe.start()) for recipe in recipes]
        seats = [(target, fit_of(target, prompts)) for target in targets]
        found = sweep(seats, plan, prompts, clients, lengths)
    names = [recipe.name for recipe in recipes]
    for kind in TITLES:
        Console().print(_table(kind, names, [values[kind] for values in found]))
        if asked.images is not None:
            asked.images.mkdir(parents=True, exist_ok=True)
            draw(asked.images / f"{kind}.svg", kind, names, [values[kind] for values in found])
    commands = [recipe.command for recipe in recipes]
    targets_found = [
        {"name": name, "command": command, **values}
        for name, command, values in zip(names, commands, found, strict=True)
    ]
    options.write_json(asked.json, {"machine": machine(), "targets": targets_found})


def _table(kind: str, names: Sequence[str], found: Sequence[Mapping[int, list[float]]]) -> Table:
    across, up = TITLES[kind]
    table = Table(title=f"{up}: median (smallest to largest)")
    for column in (across, *names):
        table.add_column(column, justify="right")
    for size in sorted({size for values in found for size in values}):
        table.add_row(str(size), *(cell(summarise(values.get(size, []))) for values in found))
    return table
