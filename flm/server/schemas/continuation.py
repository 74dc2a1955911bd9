"""When a request's last message can be continued."""

from collections.abc import Mapping
from typing import Any

from flm.errors import InvalidRequestError

PARAM = "continue_final_message"


def check_continuable(body: Mapping[str, Any]) -> None:
    """Look at a body, not validated yet, that asks for its last message to be continued.

    Raises:
        InvalidRequestError: it cannot be; blamed on ``continue_final_message``.
    """
    _check_message(_last_message(body.get("messages")))
    if body.get("add_generation_prompt") is True:
        _reject("cannot be combined with add_generation_prompt: true")
    if _forces_call(body.get("tool_choice")):
        _reject("cannot be combined with a tool_choice that forces a call")
    if body.get("tool_choice") != "none" and _has_strict_tool(body.get("tools")):
        _reject("cannot be combined with strict tools")


def _last_message(messages: Any) -> Mapping[str, Any]:
    last = messages[-1] if isinstance(messages, list) and messages else None
    message: dict[str, Any] = last if isinstance(last, dict) else {}
    if message.get("role") != "assistant":
        _reject("needs a last message with the role assistant")
    return message


def _check_message(message: Mapping[str, Any]) -> None:
    if message.get("tool_calls"):
        _reject("cannot continue a message with tool_calls")
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") for part in parts if _is_text(part)]
    if len(texts) < len(parts):
        _reject("can only continue a message whose content is text")
    if not "".join(map(str, texts)).strip():
        _reject("cannot continue a message without text")


def _is_text(part: Any) -> bool:
    is_text = isinstance(part, dict) and part.get("type") == "text"
    return is_text and isinstance(part.get("text"), str)


def _forces_call(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return bool(choice == "required")
    if choice.get("type") != "allowed_tools":
        return True
    allowed = choice.get("allowed_tools")
    return isinstance(allowed, dict) and allowed.get("mode") == "required"


def _has_strict_tool(tools: Any) -> bool:
    functions = [item.get("function") for item in tools or () if isinstance(item, dict)]
    return any(isinstance(item, dict) and item.get("strict") is True for item in functions)


def _reject(problem: str) -> None:
    raise InvalidRequestError(f"continue_final_message {problem}.", param=PARAM)
