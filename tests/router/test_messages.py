"""How messages, tools and files are written in every dialect."""

from pathlib import Path
from typing import Any

import pytest

from flm.router import (
    AudioPart,
    BinaryPart,
    BuiltinTool,
    DocumentPart,
    ImagePart,
    Message,
    Request,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    UnsupportedFeatureError,
    VideoPart,
)
from tests.router.test_settings import call_of

CALL = ToolCallPart("c1", "look", {"at": "sea"})
CONVERSATION = (
    Message.developer("Be brief."),
    Message.user("What is there?"),
    Message.assistant([ThinkingPart("hm", "sig"), TextPart("I look."), CALL]),
    Message.tool("c1", "a ship"),
    Message.tool("c2", "fog", is_error=True),
)


def body_of(model: str, *messages: Message, **more: Any) -> dict[str, Any]:
    return call_of(Request(model=model, messages=messages, **more)).body


def test_a_conversation_in_chat() -> None:
    assert body_of("flm:m", *CONVERSATION, system="You watch.")["messages"] == [
        {"role": "system", "content": "You watch."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is there?"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"at":"sea"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a ship"},
        {"role": "tool", "tool_call_id": "c2", "content": "[error] fog"},
    ]


def test_a_conversation_for_anthropic() -> None:
    body = body_of("anthropic:claude-haiku-4-5", *CONVERSATION, system=[TextPart("You"), "watch."])
    assert body["system"] == "You\n\nwatch."
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "[developer]\nBe brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "What is there?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sea"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a ship"}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c2", "content": "fog", "is_error": True}
            ],
        },
    ]


def test_a_conversation_for_responses() -> None:
    body = body_of("openai:gpt-4.1", *CONVERSATION, system="You watch.")
    assert body["instructions"] == "You watch."
    assert body["input"] == [
        {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "What is there?"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"sea"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a ship"},
        {"type": "function_call_output", "call_id": "c2", "output": "[error] fog"},
    ]


def test_a_conversation_for_gemini() -> None:
    body = body_of("gemini:gemini-2.5-flash", *CONVERSATION, system="You watch.")
    assert body["systemInstruction"] == {"parts": [{"text": "You watch."}]}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "[developer]\nBe brief."}]},
        {"role": "user", "parts": [{"text": "What is there?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thoughtSignature": "sig"},
                {"text": "I look."},
                {"functionCall": {"name": "look", "args": {"at": "sea"}}},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "look", "response": {"result": "a ship"}}}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "c2", "response": {"error": "fog"}}}],
        },
    ]


def test_reasoning_of_earlier_turns_is_never_lost_in_silence() -> None:
    thought = Message.assistant([ThinkingPart("hm"), TextPart("x")])
    for model, is_kept in (("openai:m", False), ("anthropic:m", False), ("flm:m", True)):
        request = Request(model=model, messages=[Message.user("a"), thought, Message.user("b")])
        fields = [entry.field for entry in call_of(request).records]
        assert ("messages[1].parts[thinking]" not in fields) == is_kept, model


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["anthropic:m", "openai-chat:m", "ollama:m", "vllm:m", "flm:m"])
def test_audio_is_never_lost(model: str) -> None:
    request = Request(model=model, messages=[Message.user(["hear", AudioPart(data="AA")])])
    for policy in ("note", "silent", "refuse"):
        with pytest.raises(UnsupportedFeatureError) as caught:
            call_of(request, policy)
        assert caught.value.feature == "messages[0].parts[audio]"


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("flm:m", ImagePart(data="AA")),
        ("ollama:m", ImagePart(url="http://x")),
        ("vllm:m", DocumentPart(data="AA")),
        ("anthropic:m", VideoPart(data="AA")),
        ("openai:m", VideoPart(data="AA")),
        ("openai:m", AudioPart(url="http://x")),
        ("anthropic:m", BinaryPart(data="AA")),
    ],
)
def test_a_part_that_cannot_be_taken_is_refused(model: str, part: Any) -> None:
    with pytest.raises(UnsupportedFeatureError, match="parts"):
        body_of(model, Message.user([part]))


def test_files_as_each_provider_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"png")
    image = Message.user(["see", ImagePart(path=path, detail="low")])  # type: ignore[arg-type]
    url = "data:image/png;base64,cG5n"
    chat = body_of("openai-chat:m", image)["messages"][0]["content"]
    assert chat[1] == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    responses = body_of("openai:m", image)["input"][0]["content"]
    assert responses[1] == {"type": "input_image", "detail": "low", "image_url": url}
    anthropic = body_of("anthropic:m", image)["messages"][0]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": "cG5n"}
    assert anthropic[1] == {"type": "image", "source": source}
    gemini = body_of("gemini:m", image)["contents"][0]["parts"]
    assert gemini[1] == {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}
    heard = body_of("openai:m", Message.user(AudioPart(data="AA", media_type="audio/mpeg")))
    audio = {"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}}
    assert heard["input"][0]["content"] == [audio]
    paper = Message.user(DocumentPart(url="http://x/a.pdf"))
    assert body_of("openai:m", paper)["input"][0]["content"][0]["file_url"] == "http://x/a.pdf"
    assert body_of("gemini:m", paper)["contents"][0]["parts"] == [
        {"fileData": {"mimeType": "application/pdf", "fileUri": "http://x/a.pdf"}}
    ]


# --- tools -------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
HI = Message.user("hi")


def test_tools_as_each_provider_writes_them() -> None:
    tools = [Tool("look", "Looks.", SCHEMA, strict=True)]
    named = {"name": "look", "description": "Looks."}
    assert body_of("flm:m", HI, tools=tools)["tools"] == [
        {"type": "function", "function": {**named, "parameters": SCHEMA, "strict": True}}
    ]
    assert body_of("openai:m", HI, tools=tools)["tools"] == [
        {"type": "function", **named, "parameters": SCHEMA, "strict": True}
    ]
    assert body_of("anthropic:m", HI, tools=tools)["tools"] == [
        {**named, "input_schema": SCHEMA, "strict": True}
    ]
    assert body_of("gemini:m", HI, tools=tools)["tools"] == [
        {"functionDeclarations": [{**named, "parameters": SCHEMA}]}
    ]
    closed = Tool("look", parameters={**SCHEMA, "additionalProperties": False})
    declared = body_of("gemini:m", HI, tools=[closed])["tools"][0]["functionDeclarations"][0]
    assert set(declared) == {"name", "parametersJsonSchema"}
    # A tool without a description has none, not a null.
    assert "description" not in body_of("vllm:m", HI, tools=[Tool("a")])["tools"][0]["function"]


def test_strictness_that_nobody_keeps_is_told() -> None:
    request = Request(model="vllm:m", messages=[HI], tools=[Tool("a", strict=True)])
    call = call_of(request)
    assert [(entry.field, entry.action) for entry in call.records] == [
        ("tools[a].strict", "dropped")
    ]
    assert "strict" not in call.body["tools"][0]["function"]


def test_tools_that_the_provider_runs() -> None:
    search = [BuiltinTool("web_search", {"max_uses": 2})]
    expected: dict[str, Any] = {
        "anthropic:m": {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
        "openai:m": {"type": "web_search_preview", "max_uses": 2},
        "gemini:m": {"googleSearch": {"max_uses": 2}},
        "groq:m": {"type": "browser_search", "max_uses": 2},
    }
    for model, tool in expected.items():
        assert body_of(model, HI, tools=search)["tools"] == [tool]
    for model in ("flm:m", "openai-chat:m", "ollama:m"):
        with pytest.raises(UnsupportedFeatureError) as caught:
            body_of(model, HI, tools=search)
        assert caught.value.feature == "tools[web_search]"
