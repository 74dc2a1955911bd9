"""Texts in which tokenisers like to go wrong, and a strategy for more."""

from hypothesis import strategies as st

TEXTS = (
    "",
    " ",
    "hello world",
    " leading and trailing ",
    "  two   three    four     ",
    "tabs\tand\t\ttabs",
    "line\nline\n\nline\n\n\n",
    "dos\r\nline\r\n\r\nend\r",
    "1 22 333 4444 55555 1,234.56 0x1F 3e-7",
    "I'm sure we'll know, THEY'VE tried; it's 'quoted' and don’t",
    "def f(x):\n    return {'a': [x ** 2, x // 3]}  # comment\n\n\tprint(f'{x!r}')\n",
    '<div class="a">&amp;</div> <!-- no --> a_b-c.d/e\\f@g',
    "naïve café e\u0301 n\u0303 a\u0308\u0301 ﬁ Å Å",
    "日本語のテキスト、中文文本。 한국어 ไทย עברית العربية हिन्दी",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☃️",
    "\u200b\u200d\ufeff\u00a0\u2028\u2029\u3000",
    "\x00\x01\x1f\x7f\x80",
    "\U000f0000\U0010fffd\ufffd\ue000",
    "a" * 3000,
    " " * 3000,
    "\n" * 500 + "=" * 500,
    "▁▁ ▁a Ġ Ċ <0x0A> ##b",
    "<think>hm</think><tool_call>x</tool_call>",
)
MARKERS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "[INST]", "<end_of_turn>")
plain_text = st.text(
    st.characters(exclude_categories=("Cs",)) | st.sampled_from(" \n\t'<>|_a1é"), max_size=60
).filter(lambda text: not any(marker in text for marker in MARKERS))
"""Any text without a marker in it."""
hostile_text = st.lists(
    plain_text
    | st.sampled_from(
        (*MARKERS, "<think>", "</think>", "<|im_", "end|>", "X", "<|", "|>", "im_end")
    ),
    max_size=6,
).map("".join)
