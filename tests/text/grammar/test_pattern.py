"""Patterns mean after translation what they mean in ECMA-262."""

import pytest

from flm.errors import InvalidRequestError
from flm.text.grammar import GrammarCompiler
from flm.text.grammar.pattern import PatternError, translate
from flm.text.tokenizer import Tokenizer
from tests.text.grammar.follow import accepts

# A pattern, texts in which it is found, texts in which it is not.
PATTERNS: list[tuple[str, list[str], list[str]]] = [
    ("", ["", "x"], []),
    ("a", ["a", "bab"], ["", "b"]),
    ("^a", ["ab"], ["ba"]),
    ("a$", ["ba"], ["ab", "a\n"]),
    ("^$", [""], ["a"]),
    ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
    ("^(a|b)$", ["a"], ["ab"]),
    ("(^a$|^b+$)", ["a", "bb"], ["aa", "ab"]),
    ("^.$", ["a", "é", "🙂"], ["\n", "\r", "ab"]),
    ("^[^a]$", ["b", "\n"], ["a"]),
    ("^[^]$", ["\n"], [""]),
    (r"^\d+$", ["12"], ["٣", "a"]),
    (r"^\w$", ["a", "_", "9"], ["é", "-"]),
    (r"^\W$", ["é", "-"], ["a"]),
    (r"^\s$", [" ", "\t", "\u00a0", "\ufeff"], ["a"]),
    (r"^\S$", ["a"], ["\ufeff", " "]),
    (r"^[\s\d-]$", ["1", "-", " "], ["a"]),
    (r"^[\w-a]$", ["-", "a"], ["+"]),
    (r"^[a&&b]+$", ["a&b"], ["c"]),
    (r"^[[]$", ["["], ["]"]),
    (r"^[a\]~\-]+$", ["]~-a"], ["b"]),
    (r"^a{2}$", ["aa"], ["a", "aaa"]),
    (r"^a{1,}b??$", ["aab", "a"], ["b"]),
    (r"^{a}$", ["{a}"], ["a"]),
    (r"^(?:a|b)*?c$", ["abc", "c"], ["ab"]),
    (r"^(?<year>\d{4})$", ["2024"], ["24"]),
    (r"^\p{Lu}\P{L}$", ["É1"], ["e1", "EE"]),
    (r"^\p{Script=Greek}$", ["α"], ["a"]),
    (r"^\x41\u0042\u{43}\cJ\t\/\.$", ["ABC\n\t/."], ["ABC\n\t/x"]),
    (r"^\ud83d\ude42$", ["🙂"], ["x"]),
    (r"^^a$$", ["a"], ["aa"]),
]
REFUSED = [
    ("(?=a)", "look-ahead"),
    ("a(?!b)", "look-ahead"),
    ("(?<=a)b", "look-behind"),
    ("(?<!a)b", "look-behind"),
    (r"(a)\1", "back reference"),
    (r"\k<a>", "back reference"),
    (r"a\b", "word boundary"),
    ("(?i)a", "group"),
    ("x^a", "anchor"),
    ("(a$)b", "anchor"),
    ("(^a|b)c", "anchor"),
    ("^*", "repeat"),
    ("a**", "repeat"),
    ("a{2}{3}", "repeat"),
    ("+a", "repeat"),
    ("{2}", "repeat"),
    ("a{3,2}", "out of order"),
    ("[b-a]", "out of order"),
    ("[a", "unclosed"),
    ("(a", "unclosed"),
    ("a)", "unmatched"),
    ("a\\", "backslash"),
    (r"\z", "escape"),
    (r"\ud800", "no character"),
    ("(" * 200 + ")" * 200, "deeper"),
]


@pytest.mark.parametrize(("pattern", "found", "missed"), PATTERNS)
def test_a_pattern_is_searched_for(
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
    pattern: str,
    found: list[str],
    missed: list[str],
) -> None:
    searching = compiler.compile_grammar(f"start: /{translate(pattern)}/", param="x")
    assert [text for text in found if not accepts(searching, tokenizer, text)] == []
    assert [text for text in missed if accepts(searching, tokenizer, text)] == []


@pytest.mark.parametrize(("pattern", "words"), REFUSED)
def test_what_has_no_equivalent_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        translate(pattern)


def test_as_a_whole_a_pattern_needs_no_anchors(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    grammar = compiler.compile_regex(r"ab|c/\d", param="x")
    assert accepts(grammar, tokenizer, "ab")
    assert accepts(grammar, tokenizer, "c/7")
    assert not accepts(grammar, tokenizer, "xab")


def test_a_pattern_that_nothing_matches_is_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidRequestError, match="nothing satisfies it"):
        compiler.compile_regex("a[]", param="x")
