"""The command of docs/router.md, run against the real server with the real model."""

import re
import shlex
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import spawn
from tests.support.server import RunningServer

pytestmark = pytest.mark.real

PAGE = (Path(__file__).parents[2] / "docs" / "router.md").read_text(encoding="utf-8")
CONSOLE = re.compile(r"```console\n\$ flm (?P<command>.*)\n(?P<output>(?:.*\n)+?)```")


def test_the_command_prints_what_the_page_says(
    real_server: RunningServer, real_client: httpx.Client
) -> None:
    examples = list(CONSOLE.finditer(PAGE))
    assert examples
    for example in examples:
        args = shlex.split(example["command"])
        outcome = spawn(*args, FLM_SERVE_PORT=str(real_server.port))
        assert outcome.out + outcome.err == example["output"]
