"""One sequence under a grammar: reasoning first, then the grammar, then the end."""

import json
import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flm.errors import InternalError
from flm.text.grammar import (
    GrammarCompiler,
    GrammarMatcher,
    Sandbox,
    Vocabulary,
    vocabulary_of,
)
from flm.text.tokenizer import Tokenizer
from tests.support.vocabularies import data_of, sentencepiece_json
from tests.text.grammar.follow import (
    PADDING,
    allowed_ids,
    byte_ids,
    cut_at_random,
    is_allowed,
    new_matcher,
    takes,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "array", "items": {"type": "integer"}},
    },
}


def test_the_mask_covers_the_logits_and_nothing_beyond_the_vocabulary(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    grammar = compiler.compile_regex("[^]*", param="x")
    for padding in (0, 1, 7, 500):
        num_logits = tokenizer.vocab_size + padding
        mask = grammar.matcher(vocab_size=num_logits).mask()
        assert mask is not None
        assert len(mask) == (num_logits + 7) // 8
        ids = allowed_ids(grammar.matcher(vocab_size=num_logits))
        assert max(ids) < tokenizer.vocab_size


def test_free_text_has_no_control_tokens_but_the_end(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = new_matcher(compiler.compile_regex("[^]*", param="x"), tokenizer)
    assert set(allowed_ids(matcher)) & tokenizer.control_ids == tokenizer.eos_ids


def test_behind_the_grammar_only_the_end_may_follow(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = new_matcher(compiler.compile_choice(["ab"], param="x"), tokenizer)
    assert takes(matcher, byte_ids(tokenizer, "a"))
    assert not matcher.is_complete
    assert takes(matcher, byte_ids(tokenizer, "b"))
    assert matcher.is_complete
    for _ in range(3):
        assert set(allowed_ids(matcher)) == tokenizer.eos_ids
        matcher.accept(min(tokenizer.eos_ids))


def test_a_sequence_may_have_ends_of_its_own(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    own = byte_ids(tokenizer, "!")[0]
    grammar = compiler.compile_regex("a+", param="x")
    matcher = grammar.matcher(vocab_size=tokenizer.vocab_size, eos_ids=frozenset({own}))
    assert not is_allowed(matcher, own)
    assert takes(matcher, byte_ids(tokenizer, "a"))
    assert is_allowed(matcher, own)
    assert not is_allowed(matcher, min(tokenizer.eos_ids))
    matcher.accept(own)
    assert allowed_ids(matcher) == [own]


def test_end_tokens_without_logits_stay_out(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    far = tokenizer.vocab_size + PADDING + 800
    grammar = compiler.compile_choice(["a"], param="x")
    matcher = grammar.matcher(vocab_size=tokenizer.vocab_size, eos_ids=frozenset({far}))
    takes(matcher, byte_ids(tokenizer, "a"))
    assert allowed_ids(matcher) == []


@pytest.mark.parametrize("text", ["b", "a"])
def test_a_token_outside_the_grammar_is_an_error(
    compiler: GrammarCompiler, tokenizer: Tokenizer, text: str
) -> None:
    matcher = new_matcher(compiler.compile_choice(["a"], param="x"), tokenizer)
    token_id = byte_ids(tokenizer, text)[0]
    if text == "a":
        matcher.accept(token_id)
    with pytest.raises(InternalError, match=f"does not allow token {token_id}"):
        matcher.accept(token_id)
    for beyond in (tokenizer.vocab_size, tokenizer.vocab_size + 10**6):
        with pytest.raises(InternalError):
            matcher.accept(beyond)
    # What was refused changed nothing.
    assert takes(matcher, [] if text == "a" else byte_ids(tokenizer, "a"))
    assert matcher.is_complete


def test_the_end_is_no_token_of_an_unfinished_text(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = new_matcher(compiler.compile_choice(["ab"], param="x"), tokenizer)
    with pytest.raises(InternalError):
        matcher.accept(min(tokenizer.eos_ids))


def test_matchers_of_one_grammar_are_independent(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    grammar = compiler.compile_choice(["ab", "cd"], param="x")
    one, other = new_matcher(grammar, tokenizer), new_matcher(grammar, tokenizer)
    assert takes(one, byte_ids(tokenizer, "ab"))
    assert takes(other, byte_ids(tokenizer, "cd"))
    assert takes(new_matcher(grammar, tokenizer), byte_ids(tokenizer, "a"))


# --- behind a reasoning block ------------------------------------------------------------------


def check_free(matcher: GrammarMatcher, tokenizer: Tokenizer) -> None:
    """Every token may come but one that ends the reply without what the grammar is for."""
    every = set(range(tokenizer.vocab_size))
    assert set(allowed_ids(matcher)) & every == every - tokenizer.eos_ids


def test_the_grammar_begins_behind_the_reasoning_block(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    close = tuple(byte_ids(tokenizer, "</t>"))
    grammar = compiler.compile_choice(["yes"], param="x")
    matcher = grammar.matcher(vocab_size=tokenizer.vocab_size, start_after_ids=close)
    for token_id in byte_ids(tokenizer, "no </t </<//t></t"):
        check_free(matcher, tokenizer)
        matcher.accept(token_id)
    assert not matcher.is_complete
    matcher.accept(close[-1])
    assert not is_allowed(matcher, byte_ids(tokenizer, "n")[0])
    assert takes(matcher, byte_ids(tokenizer, "yes"))
    assert matcher.is_complete


@pytest.mark.parametrize("opening", ["<", "<t>"])
def test_a_block_may_open_first(
    compiler: GrammarCompiler, tokenizer: Tokenizer, opening: str
) -> None:
    open_ids, close = tuple(byte_ids(tokenizer, opening)), tuple(byte_ids(tokenizer, ">"))
    grammar = compiler.compile_choice(["yes"], param="x")

    def matcher() -> object:
        return grammar.matcher(
            vocab_size=tokenizer.vocab_size, start_after_ids=close, open_ids=open_ids
        )

    straight = matcher()
    assert takes(straight, byte_ids(tokenizer, "yes"))
    assert straight.is_complete
    thinking = matcher()
    assert takes(thinking, open_ids)
    check_free(thinking, tokenizer)
    assert takes(thinking, byte_ids(tokenizer, "hm> "[:3]))
    assert takes(thinking, byte_ids(tokenizer, "yes"))
    late = matcher()
    assert takes(late, byte_ids(tokenizer, "y"))
    assert not is_allowed(late, open_ids[0])
    if len(open_ids) > 1:
        half = matcher()
        half.accept(open_ids[0])
        assert allowed_ids(half) == [open_ids[1]]
        with pytest.raises(InternalError):
            half.accept(open_ids[-1] if open_ids[1] != open_ids[-1] else close[0])


# --- tokens --------------------------------------------------------------------------------------


@given(
    name=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12),
    numbers=st.lists(st.integers(-(10**9), 10**9), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_every_way_to_cut_a_text_in_tokens_is_allowed(
    compiler: GrammarCompiler, tokenizer: Tokenizer, name: str, numbers: list[int], seed: int
) -> None:
    text = json.dumps({"name": name, "n": numbers}, ensure_ascii=False)
    matcher = new_matcher(compiler.compile_json(SCHEMA, param="x"), tokenizer)
    assert takes(matcher, cut_at_random(tokenizer, text, random.Random(seed)))
    assert matcher.is_complete


@given(text=st.text(max_size=12), seed=st.integers(0, 2**32))
def test_vocabularies_with_byte_tokens(sandbox: Sandbox, text: str, seed: int) -> None:
    """There most characters are a token and a sequence of byte tokens, and some are both."""
    tokenizer = sentencepiece()
    compiler = GrammarCompiler(vocabulary_of(tokenizer), sandbox)
    matcher = new_matcher(compiler.compile_regex("[^]*!", param="x"), tokenizer)
    assert takes(matcher, cut_at_random(tokenizer, f"{text}!", random.Random(seed)))
    assert matcher.is_complete
    twin = new_matcher(compiler.compile_regex("[^]*!", param="x"), tokenizer)
    assert takes(twin, tokenizer.encode(f"{text}!"))


@cache
def sentencepiece() -> Tokenizer:
    return Tokenizer.from_data(data_of(sentencepiece_json(), eos="</s>", bos="<s>"))


def test_control_tokens_in_markup_are_found(vocabulary: Vocabulary) -> None:
    call = vocabulary.tokenizer.control_id("[TOOL_CALLS]")
    end = vocabulary.tokenizer.control_id("<|im_end|>")
    assert vocabulary.split("[TOOL_CALLS][{") == [call, "[{"]
    assert vocabulary.split("a<|im_end|>b[TOOL_CALLS]") == ["a", end, "b", call]
    assert vocabulary.split("<tool_call>") == ["<tool_call>"]
    assert vocabulary.split("") == []
