"""The four wire formats: how a request is written, and how replies and streams are read."""

from collections.abc import Mapping

from flm.router.dialects.anthropic import AnthropicDialect
from flm.router.dialects.base import WireDialect
from flm.router.dialects.chat import ChatDialect
from flm.router.dialects.gemini import GeminiDialect
from flm.router.dialects.responses import ResponsesDialect

DIALECTS: Mapping[str, WireDialect] = {
    "anthropic": AnthropicDialect(),
    "responses": ResponsesDialect(),
    "chat": ChatDialect(),
    "gemini": GeminiDialect(),
}
