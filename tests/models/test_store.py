import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from flm.config import model_dir
from flm.errors import ConfigError, DownloadError, ModelFileError, ModelNotFoundError
from flm.models.manifest import MANIFEST_NAME
from flm.models.sources.base import Silent
from flm.models.store import ModelStore, open_store
from tests.support.store import MemorySource, TinyStore


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return TinyStore(tmp_path / "models")


def visible(root):
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


# --- names -------------------------------------------------------------------------------------


def test_an_installed_tag_resolves_to_its_file_and_its_defaults(tiny):
    tiny.store.pull("tiny:1m", Silent())
    model = tiny.store.resolve("tiny:1m")
    assert (model.name, model.path.name) == ("tiny:1m", "tiny.gguf")
    assert model.path.read_bytes() == b"GGUF" * 100
    assert model.sampling is not None
    assert model.sampling.temperature == 0.5
    assert (model.default_ctx_len, model.max_ctx_len, model.max_prefill_len) == (512, 1000, 4096)


def test_a_digest_tells_one_model_from_another(tiny):
    for name in ("tiny:1m", "tiny:2m"):
        tiny.store.pull(name, Silent())
    one, two = (tiny.store.resolve(name).digest for name in ("tiny:1m", "tiny:2m"))
    assert one == hashlib.sha256(b"GGUF" * 100).hexdigest()
    assert (len(two), two != one) == (64, True)
    manifest = tiny.store.installed()[1].manifest
    swapped = replace(manifest, files=manifest.files[::-1])
    assert len(manifest.files) > 1
    assert swapped.digest == two
    assert replace(manifest, files=manifest.files[1:]).digest != two


def test_a_tag_without_its_size(tiny):
    tiny.store.pull("tiny", Silent())
    assert tiny.store.resolve("tiny").name == "tiny:1m"


def test_a_folder_model_resolves_to_its_folder(tiny):
    tiny.store.pull("tiny:2m", Silent())
    path = tiny.store.resolve("tiny:2m").path
    assert (path / "sub" / "x.jinja").read_bytes() == b"x"


def test_a_tag_that_is_not_installed_says_how_to_get_it(tiny):
    with pytest.raises(ModelNotFoundError, match="flm pull tiny:1m"):
        tiny.store.resolve("tiny")
    assert tiny.store.is_missing("tiny")


@pytest.mark.parametrize("name", ["tiny:3m", "tny:1m", "TINY:1M"])
def test_an_unknown_name_gets_near_names(tiny, name):
    with pytest.raises(ModelNotFoundError, match=r"Did you mean .*tiny:1m.*flm list"):
        tiny.store.resolve(name)


@pytest.mark.parametrize(
    "name",
    ["", " ", "zzz", "a/b/c", "a//b", "../b:x.gguf\0", "\0", "x" * 5000, "a/..b", "org/n:", "é/b"],
)
@pytest.mark.parametrize(
    "method", ["resolve", "resolve_installed", "is_missing", "remove", "check"]
)
def test_a_name_that_can_be_nothing_is_not_found(tiny, name, method):
    with pytest.raises(ModelNotFoundError):
        getattr(tiny.store, method)(name)


def test_a_path_to_a_gguf_file(tiny, tmp_path):
    (tmp_path / "my.gguf").write_bytes(b"x")
    for name in ("my.gguf", "./my.gguf", str(tmp_path / "my.gguf")):
        model = tiny.store.resolve(name)
        assert (model.name, model.path) == ("my", tmp_path / "my.gguf")
        assert model.sampling is None
        assert not tiny.store.is_missing(name)


def test_a_path_to_a_hugging_face_folder(tiny, tmp_path):
    folder = tmp_path / "org" / "name"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"x")
    model = tiny.store.resolve("org/name")  # a path that is there comes before a hub id
    assert (model.name, model.path) == ("name", folder)


def test_a_folder_with_one_gguf_file_is_that_file(tiny, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "a.gguf").write_bytes(b"x")
    assert tiny.store.resolve("./f").path == folder / "a.gguf"
    (folder / "b.gguf").write_bytes(b"x")
    with pytest.raises(ModelFileError, match=r"a\.gguf, b\.gguf"):
        tiny.store.resolve("./f")


def test_a_tag_comes_before_a_path_of_the_same_name(tiny, tmp_path):
    (tmp_path / "tiny").mkdir()
    tiny.store.pull("tiny", Silent())
    assert tiny.store.resolve("tiny").name == "tiny:1m"
    with pytest.raises(ModelFileError, match="is not a model"):
        tiny.store.resolve("./tiny")


def test_paths_that_cannot_be_loaded(tiny, tmp_path):
    with pytest.raises(ModelNotFoundError, match="no file or folder"):
        tiny.store.resolve("./none.gguf")
    (tmp_path / "x.bin").write_bytes(b"x")
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        tiny.store.resolve("./x.bin")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFileError, match="is not a model"):
        tiny.store.resolve("./empty")


def test_names_from_outside_never_reach_the_file_system(tiny, tmp_path):
    (tmp_path / "my.gguf").write_bytes(b"x")
    for name in ("my.gguf", "./my.gguf", str(tmp_path / "my.gguf"), "~/my.gguf"):
        with pytest.raises(ModelNotFoundError):
            tiny.store.resolve_installed(name)


def test_a_hub_id_is_known_and_not_installed(tiny):
    for name in ("org/name", "org/name:q4.gguf"):
        assert tiny.store.is_missing(name)
        with pytest.raises(ModelNotFoundError, match=f"flm pull {name}"):
            tiny.store.resolve(name)
    assert tiny.store.reference("org/name:q4.gguf").source.file == "q4.gguf"


# --- pulling -----------------------------------------------------------------------------------


def test_a_second_pull_does_nothing_unless_forced(tiny):
    assert tiny.store.pull("tiny", Silent()).is_new
    again = tiny.store.pull("tiny", Silent())
    assert (again.is_new, again.size) == (False, 400)
    assert tiny.gguf.num_fetches == 1
    tiny.gguf.files = {"tiny.gguf": b"newer"}
    assert tiny.store.pull("tiny", Silent(), force=True).is_new
    assert tiny.store.resolve("tiny").path.read_bytes() == b"newer"


def test_nothing_but_the_model_is_left(tiny):
    tiny.store.pull("tiny", Silent())
    tiny.store.pull("tiny", Silent(), force=True)
    assert visible(tiny.root) == ["tiny--1m"]
    assert not list((tiny.root / ".staging").iterdir())
    assert not list((tiny.root / ".trash").iterdir())


def fail(dest, work):
    (dest / "tiny.gguf").write_bytes(b"half")
    raise DownloadError("broke off")


def test_a_failed_pull_installs_nothing_and_the_next_one_goes_on(tiny):
    tiny.gguf.on_fetch = fail
    with pytest.raises(DownloadError):
        tiny.store.pull("tiny", Silent())
    assert visible(tiny.root) == []
    assert tiny.store.installed() == ()
    seen = []
    tiny.gguf.on_fetch = lambda dest, work: seen.extend(path.name for path in dest.iterdir())
    tiny.store.pull("tiny", Silent())
    assert seen == ["tiny.gguf"]


def test_an_interrupted_pull_installs_nothing(tiny):
    def interrupt(dest, work):
        fail_free = dest / "tiny.gguf"
        fail_free.write_bytes(b"half")
        raise KeyboardInterrupt

    tiny.gguf.on_fetch = interrupt
    with pytest.raises(KeyboardInterrupt):
        tiny.store.pull("tiny", Silent())
    assert tiny.store.is_missing("tiny")
    tiny.gguf.on_fetch = None
    assert tiny.store.pull("tiny", Silent()).is_new


def test_a_failed_forced_pull_keeps_the_old_model(tiny):
    tiny.store.pull("tiny", Silent())
    tiny.gguf.on_fetch = fail
    with pytest.raises(DownloadError):
        tiny.store.pull("tiny", Silent(), force=True)
    assert tiny.store.resolve("tiny").path.read_bytes() == b"GGUF" * 100


def test_the_remains_of_another_revision_are_not_installed(tiny):
    tiny.gguf.on_fetch = lambda dest, work: (dest / "old.gguf").write_bytes(b"old")
    tiny.store.pull("tiny", Silent())
    names = sorted(path.name for path in (tiny.root / "tiny--1m").iterdir())
    assert names == sorted([MANIFEST_NAME, "tiny.gguf"])


def test_two_pulls_at_once_fetch_once(tiny):
    entered, go_on = threading.Event(), threading.Event()

    def wait(dest, work):
        entered.set()
        assert go_on.wait(10)

    tiny.gguf.on_fetch = wait
    results = []

    class Told(Silent):
        def begin(self, label, total):
            if "waiting for another process" in label:
                go_on.set()

    def pull():
        results.append(tiny.store.pull("tiny", Told()).is_new)

    threads = [threading.Thread(target=pull) for _ in range(2)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(20)
    assert sorted(results) == [False, True]
    assert tiny.gguf.num_fetches == 1


def test_pulling_a_path_makes_no_sense(tiny, tmp_path):
    (tmp_path / "my.gguf").write_bytes(b"x")
    with pytest.raises(ModelNotFoundError, match="nothing to pull"):
        tiny.store.pull("my.gguf", Silent())


def test_a_disk_error_is_reported_as_such(tiny):
    def full(dest, work):
        raise OSError(28, "No space left on device", "x")

    tiny.gguf.on_fetch = full
    with pytest.raises(DownloadError, match=r"No space left on device.*FLM_MODEL_PATH"):
        tiny.store.pull("tiny", Silent())


def test_a_store_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    store = TinyStore(tmp_path / "file" / "models").store
    with pytest.raises(ConfigError, match="FLM_MODEL_PATH"):
        store.pull("tiny", Silent())
    assert store.installed() == ()


def test_the_manifest_tells_where_it_came_from(tiny):
    tiny.store.pull("tiny", Silent())
    data = json.loads((tiny.root / "tiny--1m" / MANIFEST_NAME).read_text())
    assert (data["name"], data["revision"], data["source"]) == ("tiny:1m", "r1", {"kind": "memory"})
    assert data["files"][0]["size"] == 400
    assert data["installed_at"].endswith("+00:00")


# --- checking and removing ---------------------------------------------------------------------


def test_check_finds_each_damaged_file(tiny):
    tiny.store.pull("tiny:2m", Silent())
    folder = tiny.root / "tiny--2m"
    assert [file.problem for file in tiny.store.check("tiny:2m")] == [None, None, None]
    (folder / "config.json").write_bytes(b"[]")
    (folder / "model.safetensors").write_bytes(b"weight")
    (folder / "sub" / "x.jinja").unlink()
    problems = [file.problem for file in tiny.store.check("tiny:2m")]
    assert problems == [
        "config.json has the right size and a wrong hash",
        "model.safetensors has 6 bytes instead of 7",
        "x.jinja is missing",
    ]


def test_a_model_of_the_wrong_size_is_not_loaded_and_a_pull_repairs_it(tiny):
    tiny.store.pull("tiny", Silent())
    path = tiny.store.resolve("tiny").path
    path.write_bytes(b"short")
    with pytest.raises(ModelFileError, match=r"has 5 bytes instead of 400.*--force"):
        tiny.store.resolve("tiny")
    assert tiny.store.installed()[0].problem is not None
    assert tiny.store.pull("tiny", Silent()).is_new
    assert tiny.store.resolve("tiny").path.read_bytes() == b"GGUF" * 100


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "files": 3}']
)
def test_a_damaged_manifest_is_reported_and_hides_no_other_model(tiny, text, caplog):
    tiny.store.pull("tiny:1m", Silent())
    tiny.store.pull("tiny:2m", Silent())
    (tiny.root / "tiny--1m" / MANIFEST_NAME).write_text(text)
    for method in ("resolve", "check", "is_missing"):
        with pytest.raises(ModelFileError, match="damaged"):
            getattr(tiny.store, method)("tiny:1m")
    assert [model.name for model in tiny.store.installed()] == ["tiny:2m"]
    tiny.store.remove("tiny:1m")
    assert tiny.store.pull("tiny:1m", Silent()).is_new


def test_a_manifest_cannot_point_outside_its_folder(tiny):
    tiny.store.pull("tiny", Silent())
    path = tiny.root / "tiny--1m" / MANIFEST_NAME
    path.write_text(path.read_text().replace("tiny.gguf", "../../secret.gguf"))
    with pytest.raises(ModelFileError, match="outside"):
        tiny.store.resolve("tiny")


def test_remove(tiny):
    tiny.store.pull("tiny:1m", Silent())
    tiny.store.pull("tiny:2m", Silent())
    assert tiny.store.remove("tiny:1m") > 400
    assert visible(tiny.root) == ["tiny--2m"]
    with pytest.raises(ModelNotFoundError, match=r"tiny:1m is not installed. Installed: tiny:2m"):
        tiny.store.remove("tiny:1m")


def test_remove_takes_the_remains_of_an_unfinished_pull(tiny):
    tiny.gguf.on_fetch = fail
    with pytest.raises(DownloadError):
        tiny.store.pull("tiny", Silent())
    assert tiny.store.remove("tiny") == 4
    with pytest.raises(ModelNotFoundError, match="No model is installed"):
        tiny.store.remove("tiny")


def test_a_model_that_is_being_pulled_is_not_removed(tiny):
    caught = []

    def remove(dest, work):
        with pytest.raises(ModelFileError, match="Another process is pulling") as error:
            TinyStore(tiny.root, MemorySource({})).store.remove("tiny:1m")
        caught.append(error)

    tiny.gguf.on_fetch = remove
    tiny.store.pull("tiny", Silent())
    assert len(caught) == 1


def test_a_path_is_not_removed(tiny, tmp_path):
    (tmp_path / "my.gguf").write_bytes(b"x")
    with pytest.raises(ModelNotFoundError, match="Delete it yourself"):
        tiny.store.remove("./my.gguf")
    assert (tmp_path / "my.gguf").exists()


def test_strangers_in_the_folder_are_left_alone(tiny):
    tiny.root.mkdir()
    (tiny.root / "notes.txt").write_text("mine")
    (tiny.root / "folder").mkdir()
    assert tiny.store.installed() == ()


def test_the_users_own_store(monkeypatch, tmp_path):
    monkeypatch.setenv("FLM_MODEL_PATH", str(tmp_path))
    store = open_store()
    assert isinstance(store, ModelStore)
    assert store.root == Path(model_dir()) == tmp_path
