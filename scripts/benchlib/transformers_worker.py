"""A process that answers with transformers' generate: ``transformers_worker.py GGUF``.

The file is dequantised to float32. One JSON line in, one JSON line out; the first line out says
that the model is loaded.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer


class Clock(BaseStreamer):
    """Notes when each token comes. generate() hands the prompt over first."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.times: list[float] = []

    def put(self, value: Any) -> None:  # noqa: ARG002 - the name is transformers'
        """Called with the prompt, then with every new token."""
        self.times.append(time.perf_counter() - self.start)

    def end(self) -> None:
        """Called once; nothing to do."""


@torch.inference_mode()
def answer(model: Any, tokenizer: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Generate greedily, exactly ``max_tokens`` tokens."""
    clock = Clock()
    inputs = tokenizer.apply_chat_template(
        request["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(
        **inputs, max_new_tokens=request["max_tokens"], do_sample=False, streamer=clock
    )
    prompt_len = inputs["input_ids"].shape[1]
    new_ids = output[0, prompt_len:]
    return {
        "text": tokenizer.decode(new_ids, skip_special_tokens=True),
        "prompt_tokens": prompt_len,
        "cached_tokens": 0,
        "completion_tokens": len(new_ids),
        "first_token_s": clock.times[1],
        "last_token_s": clock.times[-1],
    }


def main(gguf: Path) -> None:
    """Load, say so, answer until stdin ends."""
    names = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**names)
    model: Any = AutoModelForCausalLM.from_pretrained(**names, dtype=torch.float32)
    model.eval()
    # Without an end token every answer has the length that was asked for.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(model, tokenizer, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
