"""The requests that a blackboard makes, as obstore has them and as local disk answers faster."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import obstore

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta
    from obstore.store import ObjectStore

OBJECTS_PER_PAGE = 1000
"""Objects that a store lists in one request."""


@dataclass(frozen=True)
class Page:
    """Some names one level under a prefix, in the store's order, and whether there are none after them."""

    names: tuple[str, ...]
    is_last: bool


Pages = Callable[[str, str], Page]
"""From a prefix and a name to the page of names after that one, in one request."""


class ObstoreClient:
    """The calls of obstore that a blackboard makes: each one is one request (or its pages)."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store

    def list(self, prefix: str | None, /, after: str | None = None) -> Iterable[Sequence["ObjectMeta"]]:
        """Every object below a prefix whose key comes after `after`, in pages."""
        # obstore's stubs name pyarrow, which has no types.
        return obstore.list(self._store, prefix, offset=after, chunk_size=OBJECTS_PER_PAGE)  # pyright: ignore[reportUnknownMemberType]

    def children(self, prefix: str | None, /) -> Sequence[str]:
        """The names of the common prefixes one level under a prefix."""
        found = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]  # pyright: ignore[reportUnknownMemberType]
        return [path.rsplit("/", 1)[-1] for path in found]

    def get(self, key: str, /, start: int = 0) -> "GetResult":
        """One object from byte `start` on, which it must have; its body is read later."""
        return obstore.get(self._store, key, options={"range": {"offset": start}} if start else None)

    def put(self, key: str, data: bytes | Path, /, *, create: bool) -> None:
        """Write one object; `create` fails if it exists, and is never multipart."""
        obstore.put(self._store, key, data, mode="create" if create else "overwrite")

    def delete(self, keys: Sequence[str], /) -> None:
        """Remove objects, in one request for a thousand."""
        obstore.delete(self._store, keys)


class LocalClient(ObstoreClient):
    """Local disk: one fast listing of a folder; obstore asks for the metadata of each name, ten times as slow."""

    def __init__(self, store: "ObjectStore", root: Path) -> None:
        super().__init__(store)
        self._root = root

    def children(self, prefix: str | None, /) -> Sequence[str]:
        """The folders right in a folder; an odd name or an error is left to obstore."""
        segments = prefix.split("/") if prefix else []
        if not all(segment.strip(".") for segment in segments):
            return super().children(prefix)
        folders, others = list[str](), list[str]()
        try:
            with os.scandir(self._root.joinpath(*segments)) as entries:
                for entry in entries:
                    (folders if entry.is_dir() else others).append(entry.name)
        except OSError:
            return super().children(prefix)
        return folders if "".join(folders + others).isprintable() else super().children(prefix)


def check_name(name: str) -> str:
    """Refuse a listed name that obstore could not read: every way to list says so, in the same words."""
    if (not name.isprintable() and any(ord(letter) < 32 or ord(letter) == 127 for letter in name)) or not name:
        raise ValueError(f"the name {name!r} is empty or has control characters")
    return name
