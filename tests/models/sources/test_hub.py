import hashlib
import random

import pytest

from flm.errors import DownloadError
from flm.models.sources import http
from flm.models.sources.base import Silent
from flm.models.sources.http import RemoteFile
from flm.models.sources.hub import HubSource, choose_files
from tests.support.fake_hub import COMMIT, fake_hub

BIG = random.Random(1).randbytes(300_000)
FOLDER = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b'{"version": "1.0"}',
    "chat_template.jinja": b"{{ messages }}",
    "additional_chat_templates/rag.jinja": b"rag",
    "model.safetensors": BIG,
    "README.md": b"# no",
    "consolidated.safetensors": BIG[:10],
    "original/params.json": b"{}",
    "onnx/model.onnx": b"no",
    "empty.json": b"",
}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "FIRST_WAIT_S", 0.001)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with fake_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repos = {"org/folder": FOLDER, "org/gguf": {"m-q4.gguf": BIG, "README.md": b"x"}}
        yield hub


@pytest.fixture
def places(tmp_path):
    dest, work = tmp_path / "dest", tmp_path / "work"
    dest.mkdir()
    work.mkdir()
    return dest, work


def fetch(repo, places, file=None):
    return HubSource(repo, file).fetch(*places, Silent())


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_fetched_with_what_it_needs_and_no_more(hub, places):
    receipt = fetch("org/folder", places)
    unwanted = {"README.md", "consolidated.safetensors", "original/params.json", "onnx/model.onnx"}
    assert names(places[0]) == set(FOLDER) - unwanted
    assert {file.path for file in receipt.files} == names(places[0])
    assert (places[0] / "model.safetensors").read_bytes() == BIG
    assert receipt.revision == COMMIT
    assert receipt.model_file is None
    by_path = {file.path: file for file in receipt.files}
    assert by_path["model.safetensors"].sha256 == hashlib.sha256(BIG).hexdigest()
    assert by_path["empty.json"].size == 0


def test_files_are_asked_for_by_commit(hub, places):
    fetch("org/folder", places)
    assert (
        hub.gets("model.safetensors")[0].path == f"/org/folder/resolve/{COMMIT}/model.safetensors"
    )


def test_the_only_gguf_is_taken(hub, places):
    receipt = fetch("org/gguf", places)
    assert receipt.model_file == "m-q4.gguf"
    assert names(places[0]) == {"m-q4.gguf"}


def test_a_transfer_that_breaks_off_goes_on_with_a_range(hub, places):
    hub.cuts["m-q4.gguf"] = [100_000, 50_000]
    fetch("org/gguf", places)
    assert (places[0] / "m-q4.gguf").read_bytes() == BIG
    ranges = [seen.range for seen in hub.gets("m-q4.gguf")]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_a_second_pull_goes_on_where_the_first_gave_up(hub, places):
    hub.cuts["m-q4.gguf"] = [120_000, *[0] * http.MAX_ATTEMPTS]
    with pytest.raises(DownloadError, match="pull again to go on"):
        fetch("org/gguf", places)
    assert names(places[0]) == set()
    hub.seen.clear()
    hub.cuts.clear()
    fetch("org/gguf", places)
    assert [seen.range for seen in hub.gets("m-q4.gguf")] == ["bytes=120000-"]
    assert (places[0] / "m-q4.gguf").read_bytes() == BIG


def test_a_whole_file_of_an_earlier_run_is_verified_and_kept(hub, places):
    fetch("org/gguf", places)
    hub.seen.clear()
    fetch("org/gguf", places)
    assert hub.gets("m-q4.gguf") == []


def test_damaged_remains_are_thrown_away_and_fetched_anew(hub, places):
    part = places[1] / COMMIT / "m-q4.gguf.part"
    part.parent.mkdir()
    part.write_bytes(b"\0" * 1000)
    fetch("org/gguf", places)
    assert [seen.range for seen in hub.gets("m-q4.gguf")] == ["bytes=1000-", None]
    assert (places[0] / "m-q4.gguf").read_bytes() == BIG


def test_remains_longer_than_the_file_are_thrown_away(hub, places):
    part = places[1] / COMMIT / "m-q4.gguf.part"
    part.parent.mkdir()
    part.write_bytes(BIG + b"more")
    fetch("org/gguf", places)
    assert (places[0] / "m-q4.gguf").read_bytes() == BIG


def test_a_server_without_ranges_starts_over(hub, places):
    hub.ignores_range = True
    hub.cuts["m-q4.gguf"] = [100_000]
    fetch("org/gguf", places)
    assert (places[0] / "m-q4.gguf").read_bytes() == BIG


def test_a_server_that_never_gets_further_is_given_up(hub, places):
    hub.ignores_range = True
    hub.cuts["m-q4.gguf"] = [1000] * 50
    with pytest.raises(DownloadError, match=r"broke off 5 times.*received 1000 bytes"):
        fetch("org/gguf", places)
    assert len(hub.gets("m-q4.gguf")) == 1 + http.MAX_ATTEMPTS


def test_a_wrong_hash_is_refused_and_the_file_removed(hub, places):
    hub.listed["m-q4.gguf"] = {"lfs": {"sha256": "0" * 64, "size": len(BIG), "pointerSize": 1}}
    with pytest.raises(DownloadError, match=r"m-q4\.gguf arrived damaged.*pull again"):
        fetch("org/gguf", places)
    assert names(places[0]) == set()
    assert names(places[1]) == set()


def test_a_wrong_git_hash_of_a_small_file_is_refused(hub, places):
    hub.listed["config.json"] = {"blobId": "0" * 40}
    with pytest.raises(DownloadError, match=r"config\.json arrived damaged"):
        fetch("org/folder", places)


@pytest.mark.parametrize("size", [len(BIG) - 1, len(BIG) + 1])
def test_a_wrong_size_is_refused(hub, places, size):
    hub.listed["m-q4.gguf"] = {"size": size}
    with pytest.raises(DownloadError, match=r"m-q4\.gguf"):
        fetch("org/gguf", places)
    assert names(places[0]) == set()


def test_an_unavailable_server_is_tried_again(hub, places):
    hub.statuses["m-q4.gguf"] = [503, 429]
    hub.headers = {"Retry-After": "0"}
    fetch("org/gguf", places)
    assert len(hub.gets("m-q4.gguf")) == 3


def test_a_server_that_stays_unavailable_is_reported(hub, places):
    hub.statuses["m-q4.gguf"] = [503] * 10
    with pytest.raises(DownloadError, match="HTTP 503"):
        fetch("org/gguf", places)


@pytest.mark.parametrize(
    ("status", "words"), [(401, "accept its terms"), (403, "HF_TOKEN"), (404, "HTTP 404")]
)
def test_a_refused_file_names_the_remedy(hub, places, status, words):
    hub.statuses["m-q4.gguf"] = [status]
    with pytest.raises(DownloadError, match=words):
        fetch("org/gguf", places)
    assert len(hub.gets("m-q4.gguf")) == 1


def test_an_unknown_repository(hub, places):
    with pytest.raises(DownloadError, match="no repository org/none"):
        fetch("org/none", places)


def test_a_gated_repository(hub, places):
    hub.statuses["/revision/main"] = [403]
    hub.headers = {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}
    with pytest.raises(DownloadError, match="is gated: accept its terms"):
        fetch("org/gguf", places)


def test_a_hub_that_fails(hub, places):
    hub.statuses["/revision/main"] = [500] * 20
    with pytest.raises(DownloadError, match="could not be asked for org/gguf"):
        fetch("org/gguf", places)


def test_no_hub_at_all(hub, monkeypatch, places):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="Check the network"):
        fetch("org/gguf", places)


def test_offline_mode_is_respected(hub, places, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE forbids it"):
        fetch("org/gguf", places)


def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(hub, places, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.redirects = True
    fetch("org/gguf", places)
    first, second = hub.gets("m-q4.gguf")
    assert first.authorization == "Bearer hf_secret"
    assert second.host.startswith("localhost")
    assert second.authorization is None


def test_a_file_outside_the_folder_is_refused(hub, places):
    hub.repos["org/evil"] = {"config.json": b"{}", "model.safetensors": b"x", "../../x.gguf": b"x"}
    with pytest.raises(DownloadError, match="outside the model's folder"):
        fetch("org/evil", places, "../../x.gguf")


def test_names_that_need_quoting(hub, places):
    hub.repos["org/odd"] = {"a b#1%?ü.gguf": b"abc"}
    fetch("org/odd", places)
    assert names(places[0]) == {"a b#1%?ü.gguf"}


def test_too_little_space(hub, places, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("U", (), {"free": 10})())
    with pytest.raises(DownloadError, match="FLM_MODEL_PATH"):
        fetch("org/gguf", places)


# --- the choice --------------------------------------------------------------------------------


def remote(*paths):
    return [RemoteFile(path, "http://x", 1) for path in paths]


def chosen(paths, file=None):
    return [item.path for item in choose_files(remote(*paths), "org/m", file)]


def test_shards_and_their_index_are_chosen():
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = "model.safetensors.index.json"
    found = chosen(["config.json", *shards, index, "consolidated.safetensors", "x.gguf"])
    assert found == sorted(["config.json", *shards, index])


def test_weights_of_another_name_are_chosen_when_there_are_no_others():
    paths = ["config.json", "weights.safetensors", "adapter_model.safetensors"]
    assert chosen(paths) == ["config.json", "weights.safetensors"]


def test_several_gguf_files_need_a_name():
    with pytest.raises(DownloadError, match=r"org/m:a\.gguf"):
        chosen(["a.gguf", "b.gguf"])
    assert chosen(["a.gguf", "b.gguf"], "b.gguf") == ["b.gguf"]


def test_a_missing_file_lists_those_that_are_there():
    with pytest.raises(DownloadError, match=r"It has: a\.gguf"):
        chosen(["a.gguf"], "c.gguf")
    with pytest.raises(DownloadError, match="no GGUF file at all"):
        chosen(["config.json"], "c.gguf")


def test_a_split_gguf_is_refused():
    with pytest.raises(DownloadError, match="one part of a split GGUF"):
        chosen(["m-00001-of-00002.gguf"])


@pytest.mark.parametrize("paths", [[], ["pytorch_model.bin", "config.json"], ["model.safetensors"]])
def test_nothing_to_load(paths):
    with pytest.raises(DownloadError, match="neither safetensors"):
        chosen(paths)
