"""The sandbox in which chat templates run, with the helpers that published templates expect.

The names and their behaviour are those of Hugging Face's chat templates. What a template may
consume is bounded, because its variables come from requests.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_format
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flm.errors import InvalidRequestError, ModelFileError

MAX_RENDERED_LEN = 1 << 28
"""Characters a rendered prompt may have; a body cannot be larger either."""
_MAX_PADDING = 1000
_MAX_REPEATED_LEN = 1_000_000
_MAX_EXPONENT = 64
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_WIDE_FIELD = re.compile(r"[0-9]{4,}|%[^a-zA-Z]*\*|\{[^}]*\{")


class TemplateRefusalError(jinja2.TemplateError):
    """The template called ``raise_exception``: it does not accept these messages."""


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's text for training; here it only shows it."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance variable

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """Replace the block by its body."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Immutable values, and no operator whose result is much larger than its operands."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute ``left operator right`` if the result stays small."""
        if operator == "*":
            _check_repeat(left, right)
            _check_repeat(right, left)
        if operator == "**" and not _is_small_power(left, right):
            raise jinja2.exceptions.SecurityError("The power is too large for a chat template.")
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """``str.format`` and ``str.format_map``, for patterns that stay narrow."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        formatted = wrapped

        def checked(*args: Any, **kwargs: Any) -> str:
            _check_format(value.__self__)
            return formatted(*args, **kwargs)

        return checked

    def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` unless it is a method of strings asked to blow one up."""
        is_padding = getattr(function, "__name__", "") in _PADDING_METHODS
        if is_padding and isinstance(getattr(function, "__self__", None), str):
            _check_padding((*args, *kwargs.values()))
        return super().call(context, function, *args, **kwargs)


def _check_format(pattern: str) -> None:
    if _WIDE_FIELD.search(pattern):
        raise jinja2.exceptions.SecurityError("The format is too wide for a chat template.")


def _check_repeat(sequence: Any, count: Any) -> None:
    is_repeat = isinstance(sequence, str | list | tuple) and isinstance(count, int)
    if is_repeat and len(sequence) * count > _MAX_REPEATED_LEN:
        raise jinja2.exceptions.SecurityError("The repetition is too long for a chat template.")


def _is_small_power(base: Any, exponent: Any) -> bool:
    values = (base, exponent)
    return all(isinstance(v, int | float) and abs(v) <= 1e6 for v in values) and (
        isinstance(exponent, float) or abs(exponent) <= _MAX_EXPONENT
    )


def environment() -> jinja2.Environment:
    """A fresh sandbox."""
    env = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    env.filters["tojson"] = _tojson
    for name in ("center", "indent", "wordwrap", "truncate", "batch", "slice"):
        env.filters[name] = _bounded(env.filters[name])
    env.filters["format"] = _format
    env.globals["raise_exception"] = _raise_exception
    env.globals["strftime_now"] = _strftime_now
    return env


def _raise_exception(message: Any) -> None:
    raise TemplateRefusalError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    _check_padding((indent,))
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _format(pattern: str, *args: Any, **kwargs: Any) -> str:
    _check_format(pattern)
    return do_format(pattern, *args, **kwargs)


def _bounded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, refusing numbers that would blow its result up."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        _check_padding((*args, *kwargs.values()))
        return filter_(*args, **kwargs)

    # jinja2 marks filters that want the environment or context by attributes of the function.
    checked.__dict__.update(filter_.__dict__)
    return checked


def _check_padding(values: tuple[Any, ...]) -> None:
    if any(isinstance(value, int) and abs(value) > _MAX_PADDING for value in values):
        raise jinja2.exceptions.SecurityError("The padding is too wide for a chat template.")


# --- running a template ------------------------------------------------------------------------


def compile_template(env: jinja2.Environment, source: str | nodes.Template) -> jinja2.Template:
    """Compile source text or a syntax tree.

    Raises:
        ModelFileError: the text is no valid template.
    """
    try:
        code = env.compile(source)
    except (jinja2.TemplateError, RecursionError) as error:
        raise ModelFileError(
            f"The model's chat template cannot be read ({error}); replace its chat_template."
        ) from error
    return env.template_class.from_code(env, code, env.make_globals(None))


def run(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    """Render.

    Raises:
        TemplateRefusalError: the template refuses the messages with words of its own.
        InvalidRequestError: it fails on them in any other way.
    """
    try:
        return _joined(template, variables)
    except TemplateRefusalError:
        raise
    except InvalidRequestError:
        raise
    except Exception as error:
        raise InvalidRequestError(
            f"The model's chat template cannot render these messages ({_describe(error)}); "
            "check the shape of messages, tools and chat_template_kwargs.",
            param="messages",
        ) from error


def _joined(template: jinja2.Template, variables: Mapping[str, Any]) -> str:
    chunks: list[str] = []
    length = 0
    for chunk in template.generate(dict(variables)):
        chunks.append(chunk)
        length += len(chunk)
        if length > MAX_RENDERED_LEN:
            raise InvalidRequestError(
                f"The rendered prompt has more than {MAX_RENDERED_LEN} characters; shorten the "
                "messages.",
                param="messages",
            )
    return "".join(chunks)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
