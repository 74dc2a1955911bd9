import pytest

from flm.bench.client import OpenAIClient
from flm.bench.contexts import (
    CONTEXTS,
    DECODE_LEN,
    SPARE,
    Spread,
    contexts_within,
    measure,
    spread,
)
from flm.bench.errors import BenchError
from flm.bench.prompts import Prompts
from tests.support.fake_openai import fake_openai


def test_a_context_is_filled_by_the_prompt_and_the_reply() -> None:
    with fake_openai() as fake:
        client = OpenAIClient(fake.base_url)
        found = list(measure(client, (1024, 2048), 3, Prompts(1)))
        client.close()
    assert [speed.context_len for speed in found] == [1024, 2048]
    for speed in found:
        assert speed.prompt_tokens == speed.context_len - DECODE_LEN - SPARE
        assert speed.ttft.mean > 0
        assert speed.prefill.mean > 0
        assert speed.decode.mean > 0
    texts = [body["messages"][0]["content"] for body in fake.behaviour.bodies]
    assert len(set(texts)) == len(texts) == 3 + 2 * 3
    assert {body["max_tokens"] for body in fake.behaviour.bodies[3:]} == {DECODE_LEN}


def test_a_server_that_tells_no_context_length_is_an_error() -> None:
    with fake_openai() as fake:
        client = OpenAIClient(fake.base_url)
        with pytest.raises(BenchError, match="tells no context length"):
            client.context_len()
        client.close()


def test_contexts_end_with_the_models() -> None:
    assert contexts_within(8192) == (1024, 2048, 4096, 8192)
    assert contexts_within(10**6) == CONTEXTS
    with pytest.raises(BenchError, match="larger --ctx-len"):
        contexts_within(512)


def test_the_spread_of_one_value_is_none() -> None:
    assert spread([3.0]) == Spread(3.0, 0.0)
    assert spread([1.0, 3.0]) == Spread(2.0, pytest.approx(2**0.5))
