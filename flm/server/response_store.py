"""The replies that are kept, for a while: bounded by count and bytes, least recently used out."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from flm.config import DEFAULT_RESPONSE_STORE
from flm.server.errors import dump_json

MAX_STORE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeptReply:
    """A reply and every item that the model was given for it, as JSON text. ``item_ids`` are those
    of both, so a reply needs no other one to be gone on from."""

    reply_json: bytes
    given_json: bytes
    item_ids: frozenset[str]

    @property
    def reply(self) -> dict[str, Any]:
        """The response object."""
        return dict(json.loads(self.reply_json))

    @property
    def given(self) -> list[dict[str, Any]]:
        """The items that the model was given, those of earlier turns first."""
        return list(json.loads(self.given_json))

    @property
    def items(self) -> list[dict[str, Any]]:
        """The whole conversation: what was given, and what came of it."""
        return [*self.given, *self.reply["output"]]

    @property
    def num_bytes(self) -> int:
        """What it costs to keep."""
        return len(self.reply_json) + len(self.given_json)


class ResponseStore:
    """Keeps up to ``max_count`` replies of ``max_bytes`` of JSON together. Every method is
    atomic."""

    def __init__(
        self, max_count: int = DEFAULT_RESPONSE_STORE, max_bytes: int = MAX_STORE_BYTES
    ) -> None:
        self.max_count = max_count
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[str, KeptReply] = OrderedDict()
        self._lock = Lock()

    @property
    def is_on(self) -> bool:
        """False when nothing is ever kept."""
        return self.max_count > 0

    @property
    def bounds(self) -> str:
        """What a client must know that looks for a reply in vain."""
        if not self.is_on:
            return "This server keeps no replies (--response-store 0)."
        return (
            f"Replies are kept in memory, the last {self.max_count} at most within a bound of "
            "bytes, and are gone when the server ends; those with store: false are not kept."
        )

    def put(self, reply: Mapping[str, Any], given: Sequence[Mapping[str, Any]]) -> None:
        """Keep ``reply``, and let go of those that were not used for longest. One that fills the
        store alone is not kept."""
        ids = frozenset(item["id"] for item in (*given, *reply["output"]))
        kept = KeptReply(dump_json(reply), dump_json(given), ids)
        if not self.is_on or kept.num_bytes > self._max_bytes:
            return
        with self._lock:
            self._kept[reply["id"]] = kept
            self._num_bytes += kept.num_bytes
            while self._is_over:
                _, gone = self._kept.popitem(last=False)
                self._num_bytes -= gone.num_bytes

    @property
    def _is_over(self) -> bool:
        return len(self._kept) > self.max_count or self._num_bytes > self._max_bytes

    def get(self, reply_id: str) -> KeptReply | None:
        """The reply of that id, which counts as used now."""
        with self._lock:
            found = self._kept.get(reply_id)
            if found is not None:
                self._kept.move_to_end(reply_id)
            return found

    def delete(self, reply_id: str) -> bool:
        """Let go of a reply; False when it is not kept."""
        with self._lock:
            gone = self._kept.pop(reply_id, None)
            self._num_bytes -= 0 if gone is None else gone.num_bytes
            return gone is not None

    def item(self, item_id: str) -> dict[str, Any] | None:
        """An item of any kept reply, given or made."""
        with self._lock:
            holders = [key for key, kept in self._kept.items() if item_id in kept.item_ids]
        found = self.get(holders[-1]) if holders else None
        if found is None:
            return None
        return next(item for item in found.items if item["id"] == item_id)
