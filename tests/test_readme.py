"""The README's Python examples are run against the real server; what they print is compared."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from flm.config import DEFAULT_PORT
from tests.support.server import running_server

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```\n+```text\n(?P<output>.*?)```", re.DOTALL)


@pytest.mark.real
def test_the_examples_print_what_the_readme_says(models_dir: Path) -> None:
    examples = list(EXAMPLE.finditer(README))
    assert len(examples) >= 3
    names: dict[str, object] = {}
    with running_server(["smollm2:135m"], {"FLM_MODEL_PATH": str(models_dir)}) as server:
        for example in examples:
            code = example["code"].replace(f"http://127.0.0.1:{DEFAULT_PORT}", server.base_url)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(code, names)
            assert printed.getvalue() == example["output"]
