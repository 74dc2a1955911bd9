"""Finding what a ``$ref`` of a JSON Schema means. Only references within the document resolve."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples", "example"})


class ReferenceError_(ValueError):  # noqa: N801, N818 - the plain name is a builtin of another kind
    """The reference leads out of the document, or nowhere."""


class References:
    """The places of one document that a reference can name."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._id = _identifier(root)

    def pointer(self, reference: str) -> str:
        """The JSON pointer of the schema that ``reference`` names, in one spelling.

        Raises:
            ReferenceError_: it is not in this document, or not there only once.
        """
        base, _, fragment = reference.partition("#")
        if base and base != self._id:
            raise ReferenceError_("only references within the schema (#...) are followed")
        fragment = unquote(fragment)
        if not fragment or fragment.startswith("/"):
            return fragment
        found = [path for path, name in _anchors(self._root, "") if name == fragment]
        if len(found) != 1:
            raise ReferenceError_(f"the anchor {fragment!r} stands {len(found)} times in it")
        return found[0]

    def resolve(self, pointer: str) -> Any:
        """The schema at a pointer.

        Raises:
            ReferenceError_: there is nothing, or it lies in a schema with an ``$id`` of its own.
        """
        node = self._root
        for step in pointer.split("/")[1:]:
            node = _child(node, step.replace("~1", "/").replace("~0", "~"), pointer)
            if _identifier(node) is not None:
                raise ReferenceError_("the target lies in a schema with an $id of its own")
        return node


def _child(node: Any, key: str, pointer: str) -> Any:
    if isinstance(node, dict) and key in node:
        return node[key]
    if isinstance(node, list) and key.isascii() and key.isdigit() and int(key) < len(node):
        return node[int(key)]
    raise ReferenceError_(f"there is nothing at #{pointer}")


def _identifier(node: Any) -> str | None:
    """The base address that a schema declares; a bare fragment declares none."""
    value = node.get("$id", node.get("id")) if isinstance(node, dict) else None
    return value.rstrip("#") if isinstance(value, str) and not value.startswith("#") else None


def _anchors(root: Any, path: str) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, Any]] = [(path, root)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, list):
            stack += ((f"{path}/{index}", item) for index, item in enumerate(node))
        elif isinstance(node, dict):
            anchor = node.get("$anchor")
            if isinstance(anchor, str):
                yield path, anchor
            stack += (
                (f"{path}/{escaped(key)}", value)
                for key, value in node.items()
                if key not in _DATA_KEYWORDS
            )


def escaped(key: str) -> str:
    """A key as a step of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")
