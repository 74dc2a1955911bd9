"""``flm validate``: can this machine serve?"""

import platform
from dataclasses import asdict
from typing import Annotated, Any

import typer

from flm.cli.console import say, say_json, size_text
from flm.cli.options import json_flag
from flm.version import __version__


def validate(as_json: Annotated[bool, json_flag()] = False) -> None:
    """Check torch, the devices and the installed models. Exit code 0 when all is well, else 1."""
    torch_part, models = _torch(), _models()
    devices_ok = all(device["problem"] is None for device in torch_part["devices"])
    models_ok = all(model["problem"] is None for model in models["installed"])
    report = {
        "ready": torch_part["problem"] is None and devices_ok and models_ok,
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch_part,
        "models": models,
    }
    if as_json:
        say_json(report)
    else:
        for line in _lines(report):
            say(line)
    raise typer.Exit(0 if report["ready"] else 1)


def _torch() -> dict[str, Any]:
    try:
        from flm.kernels.probe import probe

        return {**asdict(probe()), "problem": None}
    except (ImportError, OSError, RuntimeError) as error:
        # A torch for another machine fails in any of these ways while it is imported.
        problem = f"torch does not work here ({error}). Install it again for this machine."
        return {
            "version": None,
            "kernels": None,
            "num_threads": None,
            "cuda": None,
            "devices": [],
            "problem": problem,
        }


def _models() -> dict[str, Any]:
    from flm.models.store import open_store

    store = open_store()
    installed = [
        {
            "name": model.name,
            "path": str(model.path),
            "size": model.manifest.size,
            "problem": model.problem,
        }
        for model in store.installed()
    ]
    return {"path": str(store.root), "installed": installed}


def _lines(report: dict[str, Any]) -> list[str]:
    lines = [f"FLM v{report['version']} on {report['platform']}, Python {report['python']}"]
    lines += _torch_lines(report["torch"])
    models = report["models"]
    lines.append(f"models   {models['path']}")
    for model in models["installed"]:
        remedy = f"run: flm pull {model['name']} --force"
        lines.append(_line(model["name"], size_text(model["size"]), model["problem"], remedy))
    if not models["installed"]:
        lines.append("         none yet; `flm serve` downloads the model it needs")
    lines.append("Ready." if report["ready"] else "Not ready.")
    return lines


def _torch_lines(torch_part: dict[str, Any]) -> list[str]:
    if torch_part["problem"] is not None:
        return [f"FAILED   {torch_part['problem']}"]
    cuda = torch_part["cuda"] if torch_part["cuda"] is not None else "none"
    threads = torch_part["num_threads"]
    head = f"ok       torch {torch_part['version']} ({threads} threads, CUDA {cuda})"
    kernels = f"ok       kernels ({torch_part['kernels']})"
    return [head, kernels, *(_device_line(device) for device in torch_part["devices"])]


def _device_line(device: dict[str, Any]) -> str:
    memory = f", {size_text(device['memory'])}" if device["memory"] is not None else ""
    detail = f"{device['name']}{memory}"
    return _line(f"device {device['device']}", detail, device["problem"], "choose another --device")


def _line(what: str, detail: str, problem: str | None, remedy: str) -> str:
    if problem is None:
        return f"ok       {what} ({detail})"
    return f"FAILED   {what}: {problem}; {remedy}"
