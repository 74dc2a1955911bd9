"""OpenAI Codex signs in once and keeps its token in a file; the account goes along in a header."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flm.router.config import checked_key
from flm.router.errors import MissingCredentialError

_CLAIM = "https://api.openai.com/auth"


def codex_headers(token: str | None, env: Mapping[str, str]) -> dict[str, str]:
    """The headers of Codex: from ``token``, or from the file that ``codex login`` writes.

    Raises:
        MissingCredentialError: there is neither.
    """
    account: Any = None
    if token is None:
        token, account = _stored(env)
    account = account or _account_of(token)
    headers = {"authorization": f"Bearer {token}"}
    return {**headers, "chatgpt-account-id": account} if isinstance(account, str) else headers


def _stored(env: Mapping[str, str]) -> tuple[str, Any]:
    home = env.get("CODEX_HOME") or (f"{env['HOME']}/.codex" if env.get("HOME") else "")
    path = Path(home) / "auth.json"
    try:
        tokens = json.loads(path.read_text("utf-8"))["tokens"]
        return checked_key(f"the token in {path}", tokens["access_token"]), tokens.get("account_id")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise MissingCredentialError(
            f"openai-codex has no token in {path}: run `codex login`, or give RouterConfig("
            "api_keys={'openai-codex': ...}).",
            provider="openai-codex",
        ) from None


def _account_of(token: str) -> Any:
    """The account that a token is for, as the token itself says; None where it does not."""
    try:
        claims = token.split(".")[1]
        padded = claims + "=" * (-len(claims) % 4)
        return json.loads(base64.urlsafe_b64decode(padded))[_CLAIM]["chatgpt_account_id"]
    except (IndexError, ValueError, KeyError, TypeError):
        return None
