"""Runs the judges one after the other and says what each found."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from judgelib.environment import Judge, UnavailableError, ensure

JUDGE_TIMEOUT_S = 3600.0
# What could lead a client elsewhere than to the server it judges, or change what it sends there.
_PRIVATE_PREFIXES = (
    "ANTHROPIC_",
    "AZURE_",
    "CANITOOLCALL_",
    "FLM_",
    "INSTRUCTOR_",
    "LANGCHAIN_",
    "LANGSMITH_",
    "LITELLM_",
    "OPENAI_",
    "PYDANTIC_AI_",
    "PYTHON",
)

Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one judge; ``note`` is the line for the summary."""

    name: str
    outcome: Outcome
    note: str


def judge_all(judges: Sequence[Judge], url: str) -> list[Verdict]:
    """Every judge's verdict on the server at ``url``."""
    verdicts = []
    for judge in judges:
        print(f"\n-- {judge.name}", flush=True)
        verdicts.append(judge_one(judge, url))
    return verdicts


def judge_one(judge: Judge, url: str) -> Verdict:
    """Run one judge in its environment; what it prints goes through to our stdout."""
    try:
        ensure(judge)
    except UnavailableError as error:
        print(f"skipped {error}", flush=True)
        return Verdict(judge.name, "skipped", str(error))
    begin = time.monotonic()
    # A folder of its own: some clients write beside where they are started.
    with (
        tempfile.TemporaryDirectory(prefix="flm-judge-") as folder,
        subprocess.Popen(
            [str(judge.python), str(judge.script), url],
            cwd=folder,
            env={**private_environment(os.environ), "HOME": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        timer = threading.Timer(JUDGE_TIMEOUT_S, process.kill)
        timer.start()
        try:
            passed, failed = _count(process.stdout or ())
            status = process.wait()
        finally:
            timer.cancel()
            process.kill()
    note = f"{passed} passed, {failed} failed, {time.monotonic() - begin:.0f} s"
    if status == 0 and passed and not failed:
        return Verdict(judge.name, "passed", note)
    return Verdict(judge.name, "failed", f"{note}, exit status {status}")


def _count(lines: Iterable[str]) -> tuple[int, int]:
    """Lines of passed and of failed checks; every line is printed as it comes."""
    passed = failed = 0
    for line in lines:
        print(line, end="", flush=True)
        passed += line.startswith("ok ")
        failed += line.startswith("FAILED ")
    return passed, failed


def private_environment(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` without what a client could take for its settings; proxies included."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(_PRIVATE_PREFIXES) and not name.lower().endswith("_proxy")
    }


def summary(verdicts: Sequence[Verdict]) -> str:
    """A line for each judge and one for all."""
    width = max((len(item.name) for item in verdicts), default=0)
    lines = [f"{item.name:{width}}  {item.outcome:7}  {item.note}" for item in verdicts]
    counts = [
        f"{sum(item.outcome == outcome for item in verdicts)} {outcome}"
        for outcome in ("passed", "failed", "skipped")
    ]
    return "\n".join([*lines, f"judges: {', '.join(counts)}"])
