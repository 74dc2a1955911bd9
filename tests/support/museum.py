"""Providers with a very small mind and the manners of the real ones: they keep to the limits and
stop sequences of a request, and reject with a 400 what the real ones reject."""

import json
from itertools import cycle
from typing import Any

import httpx

from tests.support.providers import (
    anthropic_reply,
    gemini_reply,
    responses_events,
    responses_reply,
    streamed,
    whole,
)

LAMP = "This lamp was lit every evening for ninety years, and its light was seen from twenty miles."
OTHERS = (
    "Sailors steered by this lamp for ninety years.",
    "For ninety years this lamp was the last thing that ships saw of home.",
)
LIST = "Famous lighthouses:\n1. Pharos\n2. Eddystone\n3. Bell Rock\n4. Fastnet\n5. Cordouan"
_ANTHROPIC = {
    "model",
    "stream",
    "system",
    "messages",
    "max_tokens",
    "temperature",
    "stop_sequences",
}
_RESPONSES = {"model", "stream", "instructions", "input", "temperature", "max_output_tokens"}
_GEMINI = {"contents", "systemInstruction", "generationConfig"}


class Museum(httpx.BaseTransport):
    """Anthropic, OpenAI and Gemini, by the host of a request."""

    def __init__(self) -> None:
        self._others = cycle(OTHERS)
        self.num_sent = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.num_sent += 1
        body = json.loads(request.read())
        answer = {
            "api.anthropic.com": self._anthropic,
            "api.openai.com": self._openai,
            "generativelanguage.googleapis.com": self._gemini,
        }[request.url.host](body)
        return httpx.Response(
            answer.status, headers=answer.headers, content=b"".join(answer.chunks)
        )

    def _text(self, body: dict[str, Any], temperature: float) -> str:
        if "Name five" in json.dumps(body):
            return LIST
        return LAMP if temperature == 0 else next(self._others)

    def _anthropic(self, body: dict[str, Any]) -> Any:
        temperature = body.get("temperature", 0)
        wrong = [*(body.keys() - _ANTHROPIC), *({"max_tokens"} - body.keys())]
        wrong += ["temperature"] * (temperature > 1)
        if wrong:
            error = {"type": "invalid_request_error", "message": f"{wrong[0]}: not valid"}
            return whole({"type": "error", "error": error}, 400)
        text = self._text(body, temperature)
        for stop in body.get("stop_sequences", ()):
            text = text.partition(stop)[0]
        words = text.split(" ")
        if len(words) > body["max_tokens"] - 1:
            kept = " ".join(words[: body["max_tokens"] - 1])
            return anthropic_reply(kept, stop_reason="max_tokens")
        return anthropic_reply(text)

    def _openai(self, body: dict[str, Any]) -> Any:
        assert not body.keys() - _RESPONSES
        text = self._text(body, 0)
        if not body["stream"]:
            return responses_reply(text)
        cut = text.index("and") if "and" in text else text.index("4.") + 1
        return streamed(*responses_events(text[:cut], text[cut:]))

    def _gemini(self, body: dict[str, Any]) -> Any:
        assert not body.keys() - _GEMINI
        assert 0 <= body["generationConfig"]["temperature"] <= 2
        return gemini_reply(self._text(body, 0))
