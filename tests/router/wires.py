"""What goes over the wire to eight providers when (nearly) every setting is set at once."""

from typing import Any

from flm.router import Tool

TOOLBOX = (Tool("look"), Tool("feel"), Tool("hear"))
SPECIFICATION = {"type": "object", "properties": {}}
CHAT_TOOLS = [
    {"type": "function", "function": {"name": tool.name, "parameters": SPECIFICATION}}
    for tool in TOOLBOX
]
TWO = [{"type": "function", "function": {"name": name}} for name in ("look", "feel")]
RESPONSES_WIRE = {
    "model": "gpt-4.1",
    "stream": True,
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "tools": [
        {"type": "function", "name": tool.name, "parameters": SPECIFICATION, "strict": False}
        for tool in TOOLBOX
    ],
    "temperature": 1.5,
    "top_p": 0.97,
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "store": False,
    "safety_identifier": "u1",
    "service_tier": "flex",
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": name} for name in ("look", "feel")],
    },
    "parallel_tool_calls": False,
    "reasoning": {"summary": "concise", "effort": "minimal"},
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
}
CHAT_WIRE = {
    "messages": [{"role": "user", "content": "hi"}],
    "tools": CHAT_TOOLS,
    "temperature": 1.5,
    "top_p": 0.97,
    "stop": ["END"],
    "seed": 42,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "logprobs": True,
    "top_logprobs": 2,
    "user": "u1",
    "store": False,
    "service_tier": "flex",
    "parallel_tool_calls": False,
    "tool_choice": "auto",
}
WIRES: dict[str, dict[str, Any]] = {
    "anthropic": {
        "model": "claude-haiku-4-5",
        "stream": False,
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "text",
                        "text": "hi",
                        "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    }
                ],
            }
        ],
        "tools": [{"name": name, "input_schema": SPECIFICATION} for name in ("look", "feel")],
        "thinking": {"type": "enabled", "budget_tokens": 3000},
        "max_tokens": 19384,
        "top_p": 0.97,
        "stop_sequences": ["END"],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u1"},
        "service_tier": "flex",
    },
    "openai": RESPONSES_WIRE,
    "openai-codex": {**RESPONSES_WIRE, "instructions": "You are a helpful assistant."},
    "openai-chat": {
        **CHAT_WIRE,
        "model": "gpt-4.1",
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": TWO},
        },
        "reasoning_effort": "minimal",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": tool.name, "parameters": SPECIFICATION} for tool in TOOLBOX
                ]
            }
        ],
        "generationConfig": {
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 3000},
            "temperature": 1.5,
            "topP": 0.97,
            "topK": 40,
            "stopSequences": ["END"],
            "seed": 42,
            "frequencyPenalty": 0.5,
            "presencePenalty": -0.5,
            "responseLogprobs": True,
            "logprobs": 2,
        },
        "toolConfig": {
            "functionCallingConfig": {
                "mode": "VALIDATED",
                "allowedFunctionNames": ["look", "feel"],
            }
        },
        "store": False,
        "serviceTier": "flex",
    },
    "vllm": {
        **CHAT_WIRE,
        "model": "m",
        "tools": CHAT_TOOLS[:2],
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "chat_template_kwargs": {"enable_thinking": True},
        "reasoning_effort": "low",
    },
    "ollama": {
        **CHAT_WIRE,
        "model": "m",
        "tools": CHAT_TOOLS[:2],
        "reasoning_effort": "low",
    },
    "flm": {
        **{
            name: value
            for name, value in CHAT_WIRE.items()
            if name not in ("store", "service_tier")
        },
        "model": "m",
        "top_k": 40,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "repeat_last_n": 32,
        "presence_penalty": 0.0,
        "think": True,
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": TWO},
        },
        "reasoning_effort": "low",
        "prompt_cache_key": "k",
        "adaptations": "note",
    },
}
