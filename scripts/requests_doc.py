"""Writes docs/requests.md from the schemas of the bodies: ``python scripts/requests_doc.py``.

A test compares the file with what this prints, so the page cannot drift from the code.
"""

# ruff: noqa: E501 - rows of a Markdown table cannot be wrapped

from pathlib import Path
from typing import Any

from flm.server.schemas.chat import ChatBody
from flm.server.schemas.common import CommonBody
from flm.server.schemas.completions import CompletionBody
from flm.server.settings import RANGES
from flm.sticky import STICKY_FIELDS

TARGET = Path(__file__).parent.parent / "docs" / "requests.md"

INTRO = """\
# Requests

<!-- Written by scripts/requests_doc.py from the schemas; edit those. -->

| endpoint | what it does |
|---|---|
| `POST /v1/chat/completions` | a reply to messages, through the model's chat template |
| `POST /v1/completions` | a raw continuation of `prompt`; special markers in it are tokens |
| `POST /v1/chat/completions/plan`, `POST /v1/completions/plan` | the same body; what would be done, \
without doing it |
| `POST /v1/responses`, `GET` and `DELETE /v1/responses/{id}` | the Responses API: \
[responses.md](responses.md) |
| `GET /v1/settings`, `DELETE /v1/settings` | the sticky settings and who set them; back to the \
defaults |
| `GET /v1/models`, `GET /v1/models/{id}` | the installed models |
| `POST /v1/messages`, `/v1/messages/plan`, `/v1/messages/count_tokens` | Anthropic's messages: \
[anthropic.md](anthropic.md) |
| `POST /completion`, `/tokenize`, `/detokenize`, `/apply-template`, `GET /props`, `/slots` | \
llama-server's endpoints: [llama-server.md](llama-server.md) |
| `POST /api/chat`, `/api/generate`, `/api/show`, `GET /api/tags`, `/api/ps` | Ollama's endpoints: \
[ollama.md](ollama.md) |
| `POST /api/cancel` | ends a request: [below](#cancelling-a-request) |
| `GET /v1/version`, `GET /health` | the version; 200 when requests can be answered |

The server's own OpenAPI document is at `/openapi.json`, a page to try it at `/docs`.

## Rules for every field

- **null is absent.** A wrong JSON type and a number the field cannot hold (a fraction for an
  integer; true is no number) are HTTP 400 naming the field. A body that is no JSON object, and one
  with `NaN`, a number that overflows (`1e999`) or a key twice, is HTTP 400 with code
  `invalid_json`.
- **Out of range is ignored** for the sampling fields: HTTP 200, the value in force is kept, the log
  has a warning and the reply a record. `seed` and `repeat_last_n` are strict: 400.
- **Sticky** fields stay in force for later requests that do not send them, from any client on any
  endpoint, until the model is reloaded or `DELETE /v1/settings` is called.
- **Unknown fields are ignored and recorded** as dropped, with a suggestion where the name looks
  misspelt.
- **Text in a message is text.** Markers such as `<|im_end|>` inside content are plain characters.
- **Earlier turns are not left out.** Calls, results and system messages that the model's chat
  template would not show are written where it shows them.
- **What the chat template leaves out is recorded** as dropped: the `name` of a message, and
  [keys of tools](tools-and-reasoning.md#keys-of-tools) that are not OpenAI's. Whether it shows them is
  found out by rendering the prompt without them. The name of a tool's result needs no record where it
  is that of the call it answers, which stands in front of it.

## The record

`adaptations` at the top level of a reply (in a stream: of its first chunk) lists what was done other
than asked: `{field, action, reason, asked?, applied?}`. The actions that occur here: `dropped` (no
effect), `clamped` (the nearest possible value), `substituted` (something close), `defaulted` (a
setting you did not send and that another request changed). There is no list when there is nothing to
tell. With `"adaptations": "refuse"` the first change of what you asked for is HTTP 400 with code
`refused`, and nothing is generated or stored; with `"silent"` the list is left out.
"""

OUTRO = """\
## Replies

As OpenAI's. Calls of tools stand in `message.tool_calls`, in a stream as deltas whose `arguments`
add up to JSON text; `finish_reason` is `tool_calls` when the model ended its reply with whole calls.
What looks like a call and is none stays in `content`, as the model wrote it. A model whose chat
template knows no tools is told of them in the system message.

Additions: `adaptations`, `timings` and `prompt_progress` when asked for
([llama-server.md](llama-server.md#timings-and-progress)), `reasoning_content` in messages and deltas of a
model that reasons, `prompt_token_ids` and `choices[].token_ids` with `return_token_ids`, and in
`usage` the server's own numbers (durations in seconds): `kv_token_occupancy_rate_percentage` (this
request's tokens against the context), `active_kv_tokens` and `max_kv_token_capacity` (the KV pool),
`load_duration`, `prefill_duration_ttft`, `decoding_duration`, `prefill_speed_tps`,
`decoding_speed_tps`. `prompt_tokens_details` has `diverged_at` where the prompt left what was cached
([serve.md](serve.md#why-was-my-prompt-read-again)). With [`--speculate`](serve.md#guessing-ahead),
`completion_tokens_details` has OpenAI's `accepted_prediction_tokens` and `rejected_prediction_tokens`
too: guessed tokens that are in the reply, and those that are not. Every sampled token counts in `completion_tokens` and has its log probability,
an end-of-sequence token included. Log probabilities are those of the raw logits, before penalties.

The thoughts of a reasoning model are `reasoning_content`, in a stream before the deltas of the
answer, and never in `content`. Their tags are left out, and so is the field where the model did not
reason. They count in `max_tokens` and `completion_tokens`. `/v1/completions` gives the raw text, tags
included. Streams carry a random `system_fingerprint`, other replies none: it is nothing to compare.

A stream sends `usage` only with `stream_options.include_usage`, as a last chunk without choices. A
failure after a stream began is one `data: {"error": ...}` event, and no `[DONE]` follows.

## Continuing a message

With `continue_final_message: true` the reply goes on where the text of the last message, the
assistant's, ends, instead of being a new turn after it (the default, and what `false` and null mean).
`content` is the new text alone, with its white space as the model wrote it (in a stream, white space
comes with the text behind it or at the end); `logprobs` are those of the new tokens, the first one
right behind the message, and `prompt_tokens` counts the message. White space at the end of the
message counts where the chat template keeps it and the message does not begin with white space too.
Where a template opens a reply otherwise than it writes a finished one (an empty reasoning block), the
message stands behind the opening.

A model that reasons before it answers may take the message for the beginning of its thoughts: if it
writes the tag that ends them, what came before is `reasoning_content`, and if it never does, all of it
is `content`; a stream sends no text before that is known.

It is HTTP 400 without a last assistant message that has text and no `tool_calls`, with
`add_generation_prompt: true`, with anything that asks for a grammar, for a chat template that
rewrites the text, and for models of the harmony format.

## Cancelling a request

Every request that asks for text may carry a `request_id`. From anywhere,

```bash
curl http://127.0.0.1:52625/api/cancel -d '{"request_id": "my-long-story"}'
```

ends it, whether it runs, reads its prompt or waits in the queue:

```json
{"cancelled":true,"message":"Request cancelled successfully"}
```

Its reply is what was said so far, with status 200 and `finish_reason` `cancel` (`done_reason` on
`/api`, `stop_type` `none` on `/completion`, `status` `cancelled` on `/v1/responses`, `stop_reason` null
on `/v1/messages`), and all that it held is free. The id of the reply, which is
also its header `x-request-id`, will do as well. Requests with the same `request_id` end together. A
request that still waits for its model to be swapped in has no reply to end: it is answered with
status 499 and code `cancelled`. Where there is nothing to cancel,

```json
{"cancelled":false,"message":"Request not found or already completed"}
```

A client that closes its connection ends its request too.

## Errors

Every error has OpenAI's shape, `{"error": {message, type, param, code}}`; below `/v1/messages` it has
[Anthropic's](anthropic.md#errors), and below `/api` Ollama's, `{"error": message, type, param, code}`.

| status | code | when |
|---|---|---|
| 400 | `invalid_value`, `invalid_json` | a field or the body cannot be read; `param` names the field |
| 400 | `refused` | an adaptation was needed and the request refuses them |
| 400 | `context_length_exceeded` | the prompt has as many tokens as the context, or more |
| 400 | `previous_response_not_found` | the reply that `/v1/responses` should go on from is not kept |
| 404 | `model_not_found`, `not_found` | no such model; no such path, or no such reply |
| 405 | `method_not_allowed` | the path has other methods; see `Allow` |
| 413 | `too_large` | the body is over 256 MiB |
| 499 | `cancelled` | it was cancelled while it waited for its model |
| 500 | `internal` | our own fault |
| 501 | `not_supported` | an endpoint of Ollama's that does not exist here; the message says what to do |
| 503 | `queue_full`, `loading`, `engine_dead`, `shutting_down` | not now; see `Retry-After` |
"""


def page() -> str:
    """The whole page."""
    shared = set(CommonBody.model_fields)
    parts = [
        INTRO,
        "## Fields of both endpoints\n",
        _table(CommonBody, sorted(shared, key=list(CommonBody.model_fields).index)),
        "## Fields of /v1/chat/completions alone\n",
        _table(ChatBody, [name for name in ChatBody.model_fields if name not in shared]),
        "## Fields of /v1/completions alone\n",
        _table(
            CompletionBody, [name for name in CompletionBody.model_fields if name not in shared]
        ),
        OUTRO,
    ]
    return "\n".join(parts)


def _table(schema: type[CommonBody], names: list[str]) -> str:
    document = schema.model_json_schema()
    lines = ["| field | type | sticks | meaning | out of range |", "|---|---|---|---|---|"]
    required = set(document.get("required", ()))
    names = sorted(names, key=lambda name: name not in required)
    lines += [_row(name, document, required=name in required) for name in names]
    return "\n".join(lines) + "\n"


def _row(name: str, document: dict[str, Any], *, required: bool) -> str:
    field = document["properties"][name]
    sticks = "yes" if name in STICKY_FIELDS else ""
    meaning = field.get("description", "")
    if required:
        meaning = f"Required. {meaning}"
    outside = "ignored, recorded" if name in RANGES else "400"
    if name == "reasoning_effort":
        outside = "ignored, recorded"
    cells = (f"`{name}`", _type(field, document), sticks, meaning.strip(), outside)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _type(field: dict[str, Any], document: dict[str, Any]) -> str:
    if "$ref" in field:
        return _type(document["$defs"][field["$ref"].rpartition("/")[2]], document)
    if "enum" in field:
        return " or ".join(_json(value) for value in field["enum"])
    if "const" in field:
        return _json(field["const"])
    for key in ("anyOf", "oneOf"):
        if key in field:
            kinds = dict.fromkeys(_type(item, document) for item in field[key])
            return " or ".join(kind for kind in kinds if kind != "null") or "null"
    if field.get("type") == "array":
        return f"array of {_type(field.get('items', {}), document)}"
    return str(field.get("type", "any"))


def _json(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"'


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
