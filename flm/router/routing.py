"""Which provider a model's name goes to, and with which key."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flm.router.capabilities import Provider
from flm.router.compatible import PROVIDERS
from flm.router.config import RouterConfig, checked_key
from flm.router.credentials import codex_headers
from flm.router.errors import MissingCredentialError, NotConfiguredError, UnknownModelError

PREFIX_RULES: Mapping[str, str] = {
    "claude-": "anthropic",
    "gpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "chat-latest": "openai",
    "gemini-": "gemini",
    "gemma-": "gemini",
    "grok-": "xai",
}
"""Beginnings of names that belong to one maker."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Where a model goes, and why. ``key_from``: None when no key is needed or none is there."""

    requested: str
    model: str
    provider: str
    dialect: str
    url: str
    source: Literal["prefix", "rule"]
    rule: str | None
    key_env: tuple[str, ...]
    key_from: str | None
    needs_key: bool
    declared: bool

    def describe(self) -> str:
        """The same in words."""
        if self.source == "prefix":
            why = f"{self.requested!r} names the provider {self.provider}"
        else:
            why = f"names that begin with {self.rule!r} go to {self.provider}"
        if self.key_from is not None:
            key = f"with the key from {self.key_from}"
        elif self.needs_key:
            key = f"a key is missing ({' or '.join(self.key_env) or 'api_keys'})"
        else:
            key = "without a key"
        return f"{why}; {self.model!r} is asked for at {self.url} ({self.dialect}), {key}."


class Routes:
    """The providers of one router."""

    def __init__(self, config: RouterConfig) -> None:
        self._config = config
        self._declared = {provider.name for provider in config.providers}
        own = {provider.name: provider for provider in config.providers}
        self.providers: Mapping[str, Provider] = {**PROVIDERS, **own}
        for what, names in (("api_keys", config.api_keys), ("base_urls", config.base_urls)):
            for name in names:
                if name not in self.providers:
                    raise NotConfiguredError(
                        f"{what} names {name!r}, which is no provider.{self._hint(name)}"
                    )
        for name, key in config.api_keys.items():
            if not callable(key):
                checked_key(f"api_keys[{name!r}]", key)

    def find(self, model: str) -> tuple[Provider, str, str | None]:
        """The provider, its own name of the model, and the rule that decided (None: a prefix).

        Raises:
            UnknownModelError: no provider goes with the name.
        """
        head, colon, rest = model.partition(":")
        known = self.providers.get(head.replace("_", "-")) or self.providers.get(head)
        if colon and rest and known is not None:
            return known, rest, None
        for start, name in PREFIX_RULES.items():
            if model.startswith(start):
                return self.providers[name], model, start
        near = self._hint(head) if colon else ""
        raise UnknownModelError(
            f"No provider goes with the model {model!r}.{near} Write provider:model, for instance "
            f"flm:{model or 'MODEL'} for the local server; providers: {', '.join(self.providers)}.",
            model=model,
        )

    def _hint(self, name: str) -> str:
        near = difflib.get_close_matches(
            name.lower().replace("_", "-"), self.providers, n=1, cutoff=0.7
        )
        return f" Did you mean {near[0]}?" if near else ""

    def resolve(self, model: str) -> Resolution:
        """Where ``model`` goes. Nothing is sent.

        Raises:
            UnknownModelError: nowhere.
        """
        provider, name, rule = self.find(model)
        return Resolution(
            requested=model,
            model=name,
            provider=provider.name,
            dialect=provider.dialect,
            url=self.base_url(provider).rstrip("/") + provider.path.replace("{model}", name),
            source="prefix" if rule is None else "rule",
            rule=rule,
            key_env=provider.key_env,
            key_from=self._key_source(provider),
            needs_key=not provider.keyless,
            declared=provider.name in self._declared,
        )

    def base_url(self, provider: Provider) -> str:
        """Where the provider's API begins."""
        return self._config.base_urls.get(provider.name, provider.base_url)

    def _sharing(self, provider: Provider) -> str | None:
        """The entry of ``api_keys`` for a provider: its own, or one of the same variables."""
        keys = self._config.api_keys
        if provider.name in keys:
            return provider.name
        same = (
            name
            for name in keys
            if provider.key_env and self.providers[name].key_env == provider.key_env
        )
        return next(same, None)

    def _key_source(self, provider: Provider) -> str | None:
        entry = self._sharing(provider)
        if entry is not None:
            return f"api_keys[{entry!r}]"
        env = self._config.environment()
        return next((name for name in provider.key_env if env.get(name)), None)

    def key_headers(self, provider: Provider) -> dict[str, str]:
        """The headers with the provider's key; it is looked up now.

        Raises:
            NotConfiguredError: there is none that can be used.
        """
        source = self._key_source(provider)
        entry = self._sharing(provider)
        if entry is not None:
            value = self._config.api_keys[entry]
            key = checked_key(str(source), value() if callable(value) else value)
        elif source is not None:
            key = checked_key(source, self._config.environment()[source])
        elif provider.keyless:
            return {}
        elif provider.name == "openai-codex":
            return codex_headers(None, self._config.environment())
        else:
            names = " or ".join(provider.key_env) or "no variable of its own"
            raise MissingCredentialError(
                f"{provider.name} needs a key: set {names}, or give RouterConfig("
                f"api_keys={{{provider.name!r}: ...}}).",
                env_keys=provider.key_env,
                provider=provider.name,
            )
        if provider.name == "openai-codex":
            return codex_headers(key, self._config.environment())
        is_bearer = provider.key_header == "authorization"
        return {provider.key_header: f"Bearer {key}" if is_bearer else key}
