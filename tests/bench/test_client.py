import pytest

from flm.bench.client import OpenAIClient
from flm.bench.errors import BenchError
from flm.bench.prompts import WORDS, Fit, Prompts
from flm.bench.reply import Reply
from tests.support.fake_openai import OVERHEAD, Behaviour, fake_openai

ASK = [{"role": "user", "content": "one two three"}]


def test_tokens_are_counted_by_usage_and_times_are_in_order() -> None:
    with fake_openai(Behaviour(cached_tokens=4)) as fake:
        client = OpenAIClient(fake.base_url + "/v1/")
        reply = client.generate(ASK, 20)
        client.close()
    assert client.model == "fake-1"
    assert (reply.prompt_tokens, reply.cached_tokens) == (3 + OVERHEAD, 4)
    assert reply.completion_tokens == 20
    assert reply.text.split() == [f"t{number}" for number in range(20)]
    assert 0 < reply.first_token_s <= reply.last_token_s
    assert reply.prefill_tps == (3 + OVERHEAD - 4) / reply.first_token_s
    (body,) = fake.behaviour.bodies
    assert body["stream_options"] == {"include_usage": True}
    assert body["ignore_eos"] is True
    assert body["temperature"] == 0


def test_a_server_that_knows_no_extension_is_asked_again_without_and_only_once() -> None:
    with fake_openai(Behaviour(rejects_extensions=True, natural_len=5)) as fake:
        client = OpenAIClient(fake.base_url)
        lengths = [client.generate(ASK, 20).completion_tokens for _ in range(2)]
        client.close()
    assert lengths == [5, 5]
    assert ["ignore_eos" in body for body in fake.behaviour.bodies] == [True, False, False]


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (Behaviour(fails_with=500), "HTTP 500.*out of order"),
        (Behaviour(fails_with=400), "HTTP 400.*out of order"),
        (Behaviour(sends_usage=False), "sends no usage"),
        (Behaviour(breaks_off=True), "the engine died"),
    ],
)
def test_failures_say_what_is_wrong(behaviour: Behaviour, message: str) -> None:
    with fake_openai(behaviour) as fake:
        client = OpenAIClient(fake.base_url)
        with pytest.raises(BenchError, match=message):
            client.generate(ASK, 3)
        client.close()


def test_a_request_that_is_wrong_itself_changes_nothing_for_the_next() -> None:
    with fake_openai(Behaviour(fails_with=400)) as fake:
        client = OpenAIClient(fake.base_url)
        with pytest.raises(BenchError):
            client.generate(ASK, 20)
        fake.behaviour.fails_with = None
        assert client.generate(ASK, 20).completion_tokens == 20
        client.close()


def test_no_server_is_an_error_with_a_remedy() -> None:
    with fake_openai() as fake:
        gone = fake.base_url
    with pytest.raises(BenchError, match="Is the server running"):
        OpenAIClient(gone)


def test_one_token_has_no_decode_speed() -> None:
    reply = Reply("x", 10, 0, 1, first_token_s=0.5, last_token_s=0.5)
    assert reply.decode_tps == 0.0
    assert reply.prefill_tps == 20.0


def test_decode_speed_leaves_the_first_token_out() -> None:
    reply = Reply("x", 10, 0, 11, first_token_s=1.0, last_token_s=3.0)
    assert reply.decode_tps == 5.0


@pytest.mark.parametrize(("overhead", "per_word"), [(0, 1), (30, 1), (12, 2)])
def test_a_fit_hits_the_wanted_number_of_tokens(overhead: int, per_word: int) -> None:
    def count(text: str) -> int:
        return overhead + per_word * len(text.split())

    prompts = Prompts(seed=1)
    fit = prompts.fit(count)
    assert fit == Fit(overhead, per_word)
    assert abs(count(prompts.text(fit.words_for(512))) - 512) < per_word


def test_texts_of_equal_length_have_about_as_many_tokens_where_words_are_several() -> None:
    def count(text: str) -> int:
        return sum(len(word) for word in text.split())

    prompts = Prompts(seed=2)
    fit = prompts.fit(count)
    found = [count(prompts.text(fit.words_for(2000))) for _ in range(50)]
    assert max(abs(number - 2000) for number in found) < 32


def test_a_wish_below_the_overhead_gives_one_word() -> None:
    assert Fit(overhead=100, per_word=1).words_for(10) == 1


def test_prompts_differ_early_and_repeat_with_their_seed() -> None:
    prompts = Prompts(seed=3)
    texts = [prompts.text(50) for _ in range(100)]
    assert len({tuple(text.split()[:8]) for text in texts}) == 100
    assert Prompts(seed=3).text(50) == texts[0]
    assert set(texts[0].split()) <= set(WORDS)
