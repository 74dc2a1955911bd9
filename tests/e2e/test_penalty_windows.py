"""Which tokens are penalised, seen from both ends: over HTTP, and at the door of the sampler."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from flm.sampling import pipeline
from flm.sampling.batch import Sampled, SamplingRow
from tests.e2e.conftest import DEFAULTS, hot_folder, tiny_config
from tests.support.app import RunningApp, running_app
from tests.support.replies import CHAT, streamed, whole
from tests.support.scripted import saying
from tests.support.tiny import IM_END, tiny_tokenizer

PENALISED: dict[str, Any] = {
    "temperature": 0,
    "presence_penalty": 1.5,
    "frequency_penalty": 0.25,
    "repetition_penalty": 1.1,
    "ignore_eos": True,
    "return_token_ids": True,
}
STORY = "A word that only the prompt has, and some more of them so that blocks are filled."


@dataclass
class Watch:
    """Every row the engine had sampled, and every penalised row before and after."""

    rows: list[SamplingRow] = field(default_factory=list)
    windows: list[list[int]] = field(default_factory=list)
    before: list[torch.Tensor] = field(default_factory=list)
    after: list[torch.Tensor] = field(default_factory=list)

    def clear(self) -> None:
        for seen in (self.rows, self.windows, self.before, self.after):
            seen.clear()


@pytest.fixture
def watch() -> Iterator[Watch]:
    with watching() as seen:
        yield seen


@contextmanager
def watching() -> Iterator[Watch]:
    seen = Watch()
    sample, penalise = pipeline.Sampler.sample, pipeline.apply_penalties

    def watched_sample(
        sampler: pipeline.Sampler, logits: torch.Tensor, rows: Sequence[SamplingRow]
    ) -> list[Sampled]:
        seen.rows.extend(rows)
        seen.windows.extend(list(row.window) for row in rows)  # they go on
        return sample(sampler, logits, rows)

    def watched_penalties(logits: torch.Tensor, rows: Sequence[SamplingRow]) -> None:
        seen.before.extend(logits.clone())
        penalise(logits, rows)
        seen.after.extend(logits.clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.Sampler, "sample", watched_sample)
        patch.setattr(pipeline, "apply_penalties", watched_penalties)
        yield seen


def last(tokens: list[int], count: int) -> list[int]:
    """The last ``count`` of them; all for a negative count."""
    return tokens if count < 0 else tokens[max(len(tokens) - count, 0) :]


# --- the prompt does not count -----------------------------------------------------------------

CONVERSATION = [
    {"role": "system", "content": f"Be kind. {STORY}"},
    {"role": "user", "content": STORY},
    {"role": "assistant", "content": f"{STORY} Indeed."},
    {"role": "user", "content": "And now?"},
]
ENDPOINTS: list[dict[str, Any]] = [{"messages": CONVERSATION}, {"prompt": STORY}]


@pytest.mark.parametrize("prompt", ENDPOINTS, ids=["chat", "completions"])
@pytest.mark.parametrize("send", [whole, streamed])
def test_nothing_of_the_prompt_is_in_the_window(
    client: httpx.Client, watch: Watch, prompt: dict[str, Any], send: Any
) -> None:
    for number in range(2):
        watch.clear()
        reply = send(client, **prompt, **PENALISED, max_tokens=12, cache_prompt=False)
        tokens = reply.choices[0].token_ids
        assert len(tokens) == 12
        assert watch.windows == [tokens[:count] for count in range(12)], number


def test_a_word_of_the_prompt_alone_is_not_penalised(client: httpx.Client, watch: Watch) -> None:
    """A penalty that would rule every token of the window out leaves the prompt's alone."""
    (token_id,) = tiny_tokenizer().encode("a").ids
    body = {"prompt": [token_id] * 40, "temperature": 0, "max_tokens": 1, "return_token_ids": True}
    bias = {str(token_id): 60}
    reply = whole(client, **body, logit_bias=bias, presence_penalty=1000)
    assert reply.choices[0].token_ids == [token_id]
    longer = whole(client, **{**body, "max_tokens": 2}, logit_bias=bias, presence_penalty=1000)
    assert longer.choices[0].token_ids[0] == token_id != longer.choices[0].token_ids[1]


# --- how long it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("last_n", [0, 1, 5, 64, 70, -1])
@pytest.mark.parametrize("prompt", ENDPOINTS, ids=["chat", "completions"])
def test_the_window_is_the_last_generated_tokens(
    client: httpx.Client, watch: Watch, prompt: dict[str, Any], last_n: int
) -> None:
    # 64 is what there is without being asked for.
    asked = {} if last_n == 64 else {"repeat_last_n": last_n}
    reply = whole(client, **prompt, **PENALISED, **asked, max_tokens=80, cache_prompt=False)
    tokens = reply.choices[0].token_ids
    assert watch.windows == [last(tokens[:count], last_n) for count in range(80)]


def test_the_length_of_the_window_sticks(client: httpx.Client, watch: Watch) -> None:
    whole(client, messages=CONVERSATION, repeat_last_n=3, max_tokens=1)
    watch.clear()
    reply = whole(client, prompt=STORY, **PENALISED, max_tokens=8, seed=1)
    tokens = reply.choices[0].token_ids
    assert watch.windows == [last(tokens[:count], 3) for count in range(8)]
    (entry,) = [item for item in reply.adaptations if item["field"] == "repeat_last_n"]
    assert (entry["action"], entry["applied"]) == ("defaulted", 3)


# --- a conversation that goes on ---------------------------------------------------------------


def continued(client: httpx.Client, watch: Watch, **fields: Any) -> tuple[list[int], list[int]]:
    """A reply of 61 tokens, and the window with which a request starts that sends it back."""
    start = list(range(3, 40))
    body = {"prompt": start, **PENALISED, "max_tokens": 61}
    reply = whole(client, **body).choices[0].token_ids
    watch.clear()
    whole(client, **{**body, "prompt": [*start, *reply, 7, 8, 9], "max_tokens": 1, **fields})
    (window,) = watch.windows
    return reply, window


def test_the_end_of_a_reply_in_the_cache_is_in_the_window(
    client: httpx.Client, watch: Watch
) -> None:
    reply, window = continued(client, watch)
    assert window == reply


@pytest.mark.parametrize("num_words", [1, 5, 20, 33])
def test_in_a_chat_that_is_all_of_the_reply_its_end_token_included(
    client: httpx.Client, watch: Watch, num_words: int
) -> None:
    said = tiny_tokenizer().encode(" question" * num_words).ids
    body = {"messages": CONVERSATION, "presence_penalty": 0.5}
    with saying([*said, IM_END]):
        reply = whole(client, **body)
    assert reply.choices[0].finish_reason == "stop"
    watch.clear()
    turns = [
        *CONVERSATION,
        {"role": "assistant", "content": reply.text},
        {"role": "user", "content": "Go on."},
    ]
    whole(client, **{**body, "messages": turns}, max_tokens=1)
    assert watch.windows == [last([*said, IM_END], 64)]


@pytest.mark.parametrize("last_n", [0, 1, 7])
def test_a_smaller_window_acts_from_the_first_token(
    client: httpx.Client, watch: Watch, last_n: int
) -> None:
    _, whole_tail = continued(client, watch)
    client.delete("/v1/settings")
    _, window = continued(client, watch, repeat_last_n=last_n, cache_prompt=True)
    assert len(window) == last_n
    assert window == last(whole_tail, last_n)


@pytest.mark.parametrize("fields", [{"seed": 0}, {"seed": -5}, {"cache_prompt": False}], ids=str)
def test_a_seed_or_a_cold_prompt_starts_with_an_empty_window(
    client: httpx.Client, watch: Watch, fields: dict[str, Any]
) -> None:
    assert continued(client, watch, **fields)[1] == []


# --- reasoning ---------------------------------------------------------------------------------

REASONING = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Iterator[RunningApp]:
    """A model that opens every reply with its thoughts; random weights never close them."""
    model = hot_folder(tmp_path_factory.mktemp("models") / "thinking")
    (model / "chat_template.jinja").write_text(REASONING, encoding="utf-8")
    with running_app(tiny_config(model), store) as app:
        yield app


def test_reasoning_tokens_are_penalised_and_counted(thinking: RunningApp, watch: Watch) -> None:
    body = {"messages": CONVERSATION[:2], **PENALISED, "max_tokens": 10}
    with thinking.client() as client:
        data = client.post(CHAT, json=body).json()
    (choice,) = data["choices"]
    assert choice["message"]["reasoning_content"]
    assert choice["message"]["content"] == ""
    assert choice["finish_reason"] == "length"
    assert data["usage"]["completion_tokens"] == 10
    assert data["usage"]["completion_tokens_details"]["reasoning_tokens"] == 10
    assert watch.windows == [choice["token_ids"][:count] for count in range(10)]


# --- the real model ----------------------------------------------------------------------------

STRENGTHS: list[dict[str, float]] = [
    {"presence_penalty": 1.5},
    {"frequency_penalty": 0.5},
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 0.9},
]


def by_the_formula(logits: np.ndarray, window: Sequence[int], **strength: float) -> np.ndarray:
    """The logits, [V], as the documentation says they become."""
    changed = logits.astype(np.float64)
    ratio = strength.get("repetition_penalty", 1.0)
    for token_id, count in Counter(window).items():
        value = changed[token_id]
        value = value / ratio if value > 0 else value * ratio
        value -= strength.get("presence_penalty", 0.0)
        value -= strength.get("frequency_penalty", 0.0) * count
        changed[token_id] = value
    return changed


@pytest.mark.real
@pytest.mark.parametrize("strength", STRENGTHS, ids=str)
def test_the_real_models_logits_change_as_the_formula_says(
    real_app: RunningApp, watch: Watch, strength: dict[str, float]
) -> None:
    body = {**DEFAULTS, "prompt": "One two three, one two three,", **strength, "repeat_last_n": 4}
    fields = {"temperature": 0, "max_tokens": 10, "ignore_eos": True, "return_token_ids": True}
    with real_app.client() as client:
        reply = whole(client, **{**body, **fields})
    tokens = reply.choices[0].token_ids
    assert watch.windows == [last(tokens[:count], 4) for count in range(len(tokens))]
    # The first token has nothing to be penalised for.
    assert len(watch.before) == len(tokens) - 1
    for count, (before, after) in enumerate(zip(watch.before, watch.after, strict=True), start=1):
        window = last(tokens[:count], 4)
        expected = by_the_formula(before.numpy(), window, **strength)
        np.testing.assert_allclose(after.numpy(), expected, rtol=1e-6, atol=1e-6)
        untouched = np.setdiff1d(np.arange(len(expected)), window)
        assert np.array_equal(after.numpy()[untouched], before.numpy()[untouched])
        assert int(after.argmax()) == tokens[count]


@pytest.mark.real
@pytest.mark.parametrize(
    ("last_n", "num_tokens"), [(4, 16), pytest.param(64, 130, marks=pytest.mark.full)]
)
def test_over_http_every_token_of_the_real_model_is_the_one_the_formula_names(
    real_app: RunningApp, last_n: int, num_tokens: int
) -> None:
    """Log probabilities are raw, so from outside each greedy pick can be worked out by hand."""
    body = {
        **DEFAULTS,
        "messages": [{"role": "user", "content": "Count: one, two, one, two."}],
        "temperature": 0,
        "presence_penalty": 4.0,
        "repeat_last_n": last_n,
        "ignore_eos": True,
        "max_tokens": num_tokens,
        "logprobs": True,
        "top_logprobs": 20,
        "return_token_ids": True,
    }
    with real_app.client() as client:
        (choice,) = client.post(CHAT, json=body).json()["choices"]
    tokens, entries = choice["token_ids"], choice["logprobs"]["content"]
    assert len(tokens) == len(entries) == num_tokens
    named = dict(zip((entry["token"] for entry in entries), tokens, strict=True))
    # The window that was asked for, one without an end, and none.
    explained = dict.fromkeys((last_n, -1, 0), 0)
    for count, entry in enumerate(entries):
        tops = {item["token"]: item["logprob"] for item in entry["top_logprobs"]}
        for length in explained:
            window = set(last(tokens[:count], length))
            scores = {token: tops[token] - 4.0 * (named.get(token) in window) for token in tops}
            # Of equals within rounding, either may be chosen.
            is_best = scores.get(entry["token"], -np.inf) >= max(scores.values()) - 1e-4
            explained[length] += bool(is_best)
    assert explained[last_n] == num_tokens
    assert explained[-1] < num_tokens, "no token came back after it had left the window"
    assert explained[0] < num_tokens, "the penalty changed no choice"
