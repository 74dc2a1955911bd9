"""Chat templates with their tokenizers, ours and transformers'."""

from typing import Any

from flm.text.template import ChatTemplate
from flm.text.tokenizer import Tokenizer
from tests.support.vocabularies import (
    byte_level_json,
    data_of,
    sentencepiece_json,
    transformers_twin,
)
from tests.text import templates

CHATML_TOKENIZER = Tokenizer.from_data(
    data_of(byte_level_json(), bos="<|endoftext|>", eos="<|im_end|>")
)
LLAMA_TOKENIZER = Tokenizer.from_data(data_of(sentencepiece_json(), bos="<s>", eos="</s>"))
METASPACE_TOKENIZER = Tokenizer.from_data(
    data_of(sentencepiece_json(metaspace=True), bos="<s>", eos="</s>")
)
CHATML_TWIN = transformers_twin(
    byte_level_json(), bos_token="<|endoftext|>", eos_token="<|im_end|>"
)
LLAMA_TWIN = transformers_twin(sentencepiece_json(), bos_token="<s>", eos_token="</s>")
METASPACE_TWIN = transformers_twin(
    sentencepiece_json(metaspace=True), bos_token="<s>", eos_token="</s>"
)
CASES = {
    "chatml": (templates.CHATML, CHATML_TOKENIZER, CHATML_TWIN),
    "llama3": (templates.LLAMA3_LIKE, CHATML_TOKENIZER, CHATML_TWIN),
    "qwen": (templates.QWEN_LIKE, CHATML_TOKENIZER, CHATML_TWIN),
    "composed": (templates.COMPOSED, CHATML_TOKENIZER, CHATML_TWIN),
    "gemma": (templates.GEMMA_LIKE, LLAMA_TOKENIZER, LLAMA_TWIN),
    "llama2": (templates.LLAMA2_LIKE, LLAMA_TOKENIZER, LLAMA_TWIN),
    "llama2, metaspace": (templates.LLAMA2_LIKE, METASPACE_TOKENIZER, METASPACE_TWIN),
}
CHATS = {name: ChatTemplate(source, ours) for name, (source, ours, _) in CASES.items()}


def turns(*contents: str) -> list[dict[str, Any]]:
    """A conversation that the user begins."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
