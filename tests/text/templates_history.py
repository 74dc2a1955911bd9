"""Chat templates that leave something of an earlier turn out, each in the way a published one does.

Their markers are the three of ChatML, which the test vocabulary has."""

LISTS_TOOLS = """{%- set ns = namespace(system="") -%}
{%- if messages[0]["role"] == "system" -%}
    {%- set ns.system = messages[0]["content"] -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- if tools -%}
    {%- set ns.system = ns.system + "List of tools: [" + tools[0] | tojson + "]" -%}
{%- endif -%}
{%- if ns.system -%}{{- "<|im_start|>system\\n" + ns.system + "<|im_end|>\\n" -}}{%- endif -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\\n" + message["content"] + "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\\n" -}}{%- endif -%}"""
"""Shows tools and messages of every role, and no calls (LFM2)."""
_TURNS = """{%- for message in messages -%}
{%- if message.role == 'tool' -%}
    {{- '<|im_start|>tool\\n' + message.content + '<|im_end|>\\n' -}}
{%- elif message.tool_calls -%}
    CALLS
{%- elif message.role == 'system' and not loop.first -%}
    LATE
{%- else -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
_TOOLS = "{%- if tools -%}{{- '<|im_start|>' + tools | tojson + '<|im_end|>\\n' -}}{%- endif -%}"
_ONE = "{%- set call = message.tool_calls[0].function -%}"
_SHOWN = (
    "{{- '<|im_start|>assistant\\n' + TEXT call.name + ' ' + call.arguments | tojson "
    "+ '<|im_end|>\\n' -}}"
)
_REFUSES_MANY = (
    "{%- if message.tool_calls | length != 1 -%}"
    "{{- raise_exception('This model only supports single tool-calls at once!') -}}{%- endif -%}"
)
_REFUSES_LATE = "{{- raise_exception('System message must be at the beginning.') -}}"


def _template(calls: str, late: str = "", text: str = "message.content +") -> str:
    shown = calls.replace("TEXT", text)
    return _TOOLS + _TURNS.replace("CALLS", shown).replace("LATE", late)


FIRST_CALL_ONLY = _template(_ONE + _SHOWN)
"""Shows the first call of a message, and no later system message (gpt-oss)."""
ONE_CALL_WITHOUT_TEXT = _template(_REFUSES_MANY + _ONE + _SHOWN, text="")
"""Refuses a second call, and leaves the text beside calls out (Llama 3)."""
REFUSES_LATE_SYSTEM = _template(_ONE + _SHOWN, _REFUSES_LATE)
"""Wants the system message first (Qwen 3.5)."""
APPENDS = _template(
    "{%- set ids = [] -%}{%- set _ = ids.append(message.tool_calls[0].id) -%}" + _ONE + _SHOWN
)
"""Changes a list, which the sandbox of templates refuses, as in transformers (Kimi K2)."""
RESPONSES = """{%- for message in messages -%}
{%- if message.role != 'tool' -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- for call in message.tool_calls or [] -%}
{{- 'call:' + call.function.name + call.function.arguments | tojson -}}
{%- endfor -%}
{%- for response in message.tool_responses or [] -%}
{{- 'response:' + response.name -}}
{%- if response.response is mapping -%}{{- response.response | tojson -}}
{%- else -%}{{- response.response -}}{%- endif -%}
{%- endfor -%}
{{- message.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}"""
"""Reads results from the assistant's message (the first ones of Gemma 4)."""
NO_SYSTEM = """{%- for message in messages if message.role != 'system' -%}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}"""
"""Leaves system messages out."""
THINKING = """{%- if not thinking is defined -%}{%- set thinking = false -%}{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.role == 'assistant' -%}
{{- message.content.split('</think>')[-1] -}}
{%- else -%}{{- message.content -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if thinking -%}{{- '<think>' -}}{%- else -%}{{- '</think>' -}}{%- endif -%}
{%- endif -%}"""
"""Its switch is called thinking (DeepSeek V3.1)."""
