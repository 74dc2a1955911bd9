"""What this machine can compute with: the torch in use, its devices, and whether they work."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from flm.kernels.build import load_kernels


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One device. ``memory`` is in bytes (None: not known); ``problem`` is None when it works."""

    device: str
    name: str
    memory: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class TorchReport:
    """The torch in use, the kernels built on it, and the devices it sees."""

    version: str
    kernels: str
    num_threads: int
    cuda: str | None
    devices: tuple[DeviceReport, ...]


def probe() -> TorchReport:
    """Look at every device and run the two operations that a model cannot do without."""
    cuda = torch.version.cuda if torch.cuda.is_available() else None
    gpus = range(torch.cuda.device_count()) if cuda is not None else range(0)
    devices = (_report_cpu(), *(_report_gpu(index) for index in gpus))
    return TorchReport(torch.__version__, _kernels(), torch.get_num_threads(), cuda, devices)


def _kernels() -> str:
    found = load_kernels()
    return "native" if found.problem is None else f"plain torch, as {found.problem}"


def _report_cpu() -> DeviceReport:
    name = torch.backends.cpu.get_cpu_capability()
    return DeviceReport("cpu", name, None, _problem(torch.device("cpu")))


def _report_gpu(index: int) -> DeviceReport:
    device = torch.device("cuda", index)
    properties = torch.cuda.get_device_properties(index)
    return DeviceReport(str(device), properties.name, properties.total_memory, _problem(device))


def _problem(device: torch.device) -> str | None:
    """Multiply and attend with ones: the results are known exactly."""
    try:
        ones = torch.ones(1, 1, 4, 8, device=device)  # [batch, heads, positions, head_dim]
        product = functional.linear(ones, ones[0, 0])  # [1, 1, 4, 4]
        attended = functional.scaled_dot_product_attention(ones, ones, ones, is_causal=True)
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    is_right = bool((product == 8.0).all()) and torch.allclose(attended, ones)
    return None if is_right else "it computes wrong results"
