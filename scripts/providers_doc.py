"""Writes docs/providers.md from the router's tables: ``python scripts/providers_doc.py``.

A test compares the file with what this prints, so the page cannot drift from the code.
"""

# ruff: noqa: E501 - rows of a Markdown table cannot be wrapped

from collections.abc import Iterator
from pathlib import Path

from flm.router.capabilities import Provider, Rule
from flm.router.compatible import PROVIDERS
from flm.router.routing import PREFIX_RULES

TARGET = Path(__file__).parent.parent / "docs" / "providers.md"

INTRO = """\
# Providers

<!-- Written by scripts/providers_doc.py from the router's tables; edit those. -->

What becomes of each setting of [the router](router.md) at each provider. The router adapts, plans and
refuses by these tables. Records come in the order of the rows. `sent` is the field of the body; a value
that is sent under another name is not changed and leaves no record.

Every file or tool that is not named for a provider is refused there.
"""


def page() -> str:
    """The whole page."""
    return "\n".join(
        [INTRO, *_overview(), *(line for p in PROVIDERS.values() for line in _tables(p))]
    )


def _overview() -> Iterator[str]:
    yield "| provider | address | key | models without a prefix | files | tools of its own |"
    yield "|---|---|---|---|---|---|"
    for provider in PROVIDERS.values():
        starts = [f"`{start}`" for start, name in PREFIX_RULES.items() if name == provider.name]
        if provider.name == "openai-codex":
            key = "`codex login`"
        else:
            key = " or ".join(f"`{name}`" for name in provider.key_env) or "none needed"
        cells = (
            f"`{provider.name}`",
            f"{provider.base_url}{provider.path}",
            key,
            " ".join(starts),
            ", ".join(f"{kind} ({', '.join(forms)})" for kind, forms in provider.media.items()),
            ", ".join(f"`{name}`" for name in provider.builtins),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _tables(provider: Provider) -> Iterator[str]:
    yield f"## {provider.name}"
    yield ""
    yield "| setting | for | sent | otherwise |"
    yield "|---|---|---|---|"
    for rule in provider.rules:
        sent = f"`{rule.wire}`" if rule.wire else ""
        yield f"| `{rule.field}` | {_scope(rule)} | {sent} | {'; '.join(_otherwise(rule))} |"
    yield ""


def _scope(rule: Rule) -> str:
    parts = [" ".join(f"`{name}`" for name in rule.models)]
    if rule.but:
        parts.append("not " + " ".join(f"`{name}`" for name in rule.but))
    if rule.when:
        parts.append(f"when {rule.when}")
    return ", ".join(part for part in parts if part)


def _otherwise(rule: Rule) -> Iterator[str]:
    action = (rule.action or "").replace("_", " ")
    if rule.met:
        yield f"{_listed(rule.met)}: satisfied"
    if rule.idle:
        yield f"{_listed(rule.idle)}: nothing to do"
    if rule.low is not None:
        yield f"below {rule.low:g}: clamped"
    if rule.high is not None:
        yield f"above {rule.high:g}: clamped"
    if rule.most is not None:
        yield f"more than {rule.most}: {action}"
    for asked, applied in rule.words.items():
        yield f"`{asked}`: {action} to `{applied}`"
    for pattern, value in rule.defaults:
        yield f"unset, `{pattern}`: defaulted to {value}"
    if not rule.wire and not rule.words:
        yield f"{action}. {rule.reason}" if rule.reason else action


def _listed(values: tuple[object, ...]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
