"""Is what an evaluator reads from the server what it reads from transformers?

``python scripts/judges/lm_eval_parity.py`` runs lm-evaluation-harness over the same weights in
float32 twice: its ``hf`` model in this process, and its ``local-completions`` model against a
running ``flm serve``. The log-likelihood of every answer must be the same within ``TOLERANCE``.
Prints the largest difference; exit status 0 when all are within it, else 1.

``--server-python`` names the Python that has flm's own dependencies; default: this one.
"""

# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "torch==2.13.0",
#   "lm-eval[api]==0.4.13",
#   "transformers==5.24.0",
#   "accelerate==1.15.0",
#   "gguf==0.19.0",
# ]
# ///

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
TASKS = Path(__file__).resolve().parent / "lm_eval_task"
TASK = "flm_questions"
MODEL = "smollm2:135m"
TOLERANCE = 1e-3
START_S = 300.0

Scores = dict[str, tuple[float, bool]]
"""Log-likelihood of an answer, and whether it is the most likely one token by token."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two runs are apart. ``disagreements`` are answers that only one of them would have
    given greedily."""

    num_answers: int
    largest: float
    where: str
    disagreements: tuple[str, ...]

    @property
    def is_close(self) -> bool:
        """True when an evaluator could not tell the two apart."""
        return self.num_answers > 0 and self.largest <= TOLERANCE and not self.disagreements


def compare(one: Scores, other: Scores) -> Comparison:
    """Compare two runs over the same answers.

    Raises:
        ValueError: they are not over the same answers.
    """
    if one.keys() != other.keys():
        raise ValueError("the two runs have not scored the same answers")
    differences = {key: abs(one[key][0] - other[key][0]) for key in one}
    where = max(differences, key=lambda key: differences[key], default="")
    return Comparison(
        num_answers=len(one),
        largest=differences.get(where, 0.0),
        where=where,
        disagreements=tuple(key for key in one if one[key][1] != other[key][1]),
    )


def scores(results: Mapping[str, Any]) -> Scores:
    """Every answer's score from what ``simple_evaluate`` returns with its samples."""
    found: Scores = {}
    for sample in results["samples"][TASK]:
        choices = sample["doc"]["choices"]
        for choice, (logprob, is_greedy) in zip(choices, sample["filtered_resps"], strict=True):
            found[f"{sample['doc']['question']} {choice}"] = (float(logprob), bool(is_greedy))
    return found


# --- the two runs ------------------------------------------------------------------------------


def evaluate(model: str, arguments: Mapping[str, Any]) -> Scores:
    """One run of the harness over the questions beside this script."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    # The task names its file of questions relative to itself.
    with contextlib.chdir(TASKS):
        results = lm_eval.simple_evaluate(
            model=model,
            model_args=dict(arguments),
            tasks=[TASK],
            task_manager=TaskManager(include_path=str(TASKS)),
            log_samples=True,
            bootstrap_iters=0,
        )
    return scores(results)


def write_folder(gguf: Path, folder: Path) -> None:
    """The weights of a GGUF file, dequantised, as a Hugging Face folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    models: Any = AutoModelForCausalLM
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = models.from_pretrained(**source, dtype=torch.float32)
    # What was read is dequantised, but the library still takes it for a GGUF model.
    del model.config.quantization_config
    plain = models.from_config(model.config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def find_model(server_python: str) -> Path:
    """The GGUF file of the installed model.

    Raises:
        SystemExit: it is not installed.
    """
    code = (
        "from flm.config import model_dir\n"
        "from flm.models.catalog import load_catalog\n"
        "from flm.models.store import ModelStore\n"
        f"print(ModelStore(model_dir(), load_catalog()).resolve({MODEL!r}).path)\n"
    )
    found = subprocess.run(
        [server_python, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise SystemExit(f"{MODEL} is not there; run: flm pull {MODEL}\n{found.stderr}")
    return Path(found.stdout.strip())


@contextlib.contextmanager
def serving(server_python: str, folder: Path, log: Path) -> Iterator[str]:
    """``flm serve`` of a folder in float32; its address."""
    command = [server_python, "-m", "flm.cli.main", "serve", str(folder), "--dtype", "float32"]
    port = _free_port()
    options = ["--port", str(port), "--ctx-len", "2048"]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, *options], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, server, log)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        time.sleep(0.5)
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server-python", default=sys.executable)
    options = parser.parse_args(arguments)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["HF_HOME"] = f"{temporary}/cache"
        folder = Path(temporary) / "model"
        write_folder(find_model(options.server_python), folder)
        expected = evaluate("hf", {"pretrained": str(folder), "dtype": "float32", "device": "cpu"})
        with serving(options.server_python, folder, Path(temporary) / "log") as url:
            served = {
                "model": _served_model(url),
                "tokenizer": str(folder),
                "tokenizer_backend": "huggingface",
                "base_url": f"{url}/v1/completions",
                "num_concurrent": 1,
            }
            runs = {
                "token ids": evaluate("local-completions", served | {"batch_size": 1}),
                "token ids, 8 prompts a request": evaluate(
                    "local-completions", served | {"batch_size": 8}
                ),
                "texts": evaluate(
                    "local-completions", served | {"batch_size": 1, "tokenized_requests": False}
                ),
            }
    return report({name: compare(expected, found) for name, found in runs.items()})


def _served_model(url: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/models", timeout=30) as reply:
        return str(json.load(reply)["data"][0]["id"])


def report(comparisons: Mapping[str, Comparison]) -> int:
    """Print the result; the exit status."""
    for name, found in comparisons.items():
        print(
            f"{name}: {found.num_answers} log-likelihoods, largest difference {found.largest:.2e} "
            f"({found.where!r})"
        )
        for answer in found.disagreements:
            print(f"{name}: only one of the two would say {answer!r}")
    is_close = bool(comparisons) and all(found.is_close for found in comparisons.values())
    print(f"{'within' if is_close else 'NOT within'} {TOLERANCE:g}")
    return 0 if is_close else 1


if __name__ == "__main__":
    sys.exit(main())
