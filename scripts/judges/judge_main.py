"""Other people's clients and test suites against a real ``flm serve smollm2:135m``."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from filelock import FileLock
from judgelib.checks import JudgeError, Server, serving
from judgelib.environment import judges_in
from judgelib.run import judge_all, summary

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit status 0 when no judge failed, 1 when one did, 2 when there was nothing to judge."""
    judges = judges_in(root)
    parser = argparse.ArgumentParser(
        prog="scripts/judge",
        description=__doc__,
        epilog="Each judge runs in an environment of its own, made on demand in .venv-judges.",
    )
    known = [judge.name for judge in judges]
    parser.add_argument("names", nargs="*", metavar="JUDGE", help=f"of {', '.join(known)}")
    parser.add_argument("--url", help="judge this server instead; its base URL with /v1")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"there is no judge {unknown[0]}; there are {', '.join(known)}")
    chosen = [judge for judge in judges if not options.names or judge.name in options.names]
    served = nullcontext(Server(options.url.rstrip("/"))) if options.url else serving()
    try:
        # Of two runs at once the second waits: they would make the same environments.
        with FileLock(root / ".venv-judges" / "lock"), served as server:
            verdicts = judge_all(chosen, server.url)
    except JudgeError as error:
        print(f"judge: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("judge: interrupted", file=sys.stderr)
        return 130
    print(f"\n{summary(verdicts)}")
    return 1 if any(verdict.outcome == "failed" for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
