"""The requests of a blackboard: those of obstore, and faster ones for local disk."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import obstore

from feed_assets.feeds import local_disk

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

OBJECTS_PER_PAGE = 1000
"""Objects that a store lists in one request."""


@dataclass(frozen=True)
class Page:
    """Some names one level under a prefix, in the store's order, and whether there are none after them."""

    names: tuple[str, ...]
    is_last: bool


class StoredObject(Protocol):
    """An object as a store serves it; its bytes are read later."""

    @property
    def meta(self) -> "ObjectMeta":
        """Return its key, size, etag and time (UTC)."""
        ...

    def stream(self, min_chunk_size: int = ...) -> "Iterable[bytes]":
        """Return the bytes in chunks."""
        ...

    def bytes(self) -> "Buffer":
        """Return all bytes."""
        ...


class ObstoreClient:
    """The calls of obstore that a blackboard makes: each one is one request (or its pages)."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store

    def list(self, prefix: str | None, /, after: str | None = None) -> Iterable[Sequence["ObjectMeta"]]:
        """Return every object below a prefix whose key follows `after`, in pages."""
        # obstore's stubs name pyarrow, which has no types.
        return obstore.list(self._store, prefix, offset=after, chunk_size=OBJECTS_PER_PAGE)  # pyright: ignore[reportUnknownMemberType]

    def children(self, prefix: str | None, /) -> Sequence[str]:
        """Return the names of the common prefixes one level under a prefix."""
        prefixes = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]  # pyright: ignore[reportUnknownMemberType]
        return [path.rsplit("/", 1)[-1] for path in prefixes]

    def get(self, key: str, /, start: int = 0) -> "StoredObject":
        """Return one object from byte `start` on, which it must have; its body is read later."""
        return obstore.get(self._store, key, options={"range": {"offset": start}} if start else None)

    def part(self, key: str, start: int, length: int, /) -> "StoredObject":
        """Return `length` bytes of one object from `start` on, which it must have; its body is read later."""
        return obstore.get(self._store, key, options={"range": (start, start + length)})

    def head(self, key: str, /) -> "ObjectMeta":
        """Return one object without its bytes."""
        return obstore.head(self._store, key)

    def put(self, key: str, data: bytes | Path, /, *, create: bool) -> None:
        """Write one object; `create` fails if it exists, and is never multipart."""
        obstore.put(self._store, key, data, mode="create" if create else "overwrite")

    def delete(self, keys: Sequence[str], /) -> None:
        """Remove objects, in one request for a thousand."""
        obstore.delete(self._store, keys)


class LocalClient(ObstoreClient):
    """Requests on local disk: regular files alone, also where obstore would follow a link or wait for a FIFO's writer.

    obstore writes: a file appears at once, under its name.
    """

    def __init__(self, store: "ObjectStore", root: Path) -> None:
        super().__init__(store)
        self._root = root

    def list(self, prefix: str | None, /, after: str | None = None) -> Iterable[Sequence["ObjectMeta"]]:
        """Return every file below a prefix whose key follows `after`, also half-written ones."""
        return [[*local_disk.objects(self._root, prefix or "", after or "")]]

    def children(self, prefix: str | None, /) -> Sequence[str]:
        """Return the folders right in a folder, by one listing; obstore reports what is wrong with an odd prefix."""
        if prefix and not all(segment.strip(".") for segment in prefix.split("/")):
            return super().children(prefix)
        return local_disk.folders(self._root, prefix or "")

    def get(self, key: str, /, start: int = 0) -> "StoredObject":
        """Return one file from byte `start` on; obstore refuses half-written ones."""
        return (
            super().get(key, start)
            if local_disk.HALF_WRITTEN.search(key)
            else local_disk.opened(self._root, key, start)
        )

    def part(self, key: str, start: int, length: int, /) -> "StoredObject":
        """Return `length` bytes of one file from `start` on."""
        return local_disk.opened(self._root, key, start, length)

    def head(self, key: str, /) -> "ObjectMeta":
        """Return one file without its bytes; obstore refuses half-written ones."""
        is_half_written = local_disk.HALF_WRITTEN.search(key)
        return super().head(key) if is_half_written else local_disk.looked_at(self._root, key)

    def put(self, key: str, data: bytes | Path, /, *, create: bool) -> None:
        """Write one file, unless a link stands in the place of a folder above it."""
        local_disk.check_writable(self._root, key)
        super().put(key, data, create=create)

    def delete(self, keys: Sequence[str], /) -> None:
        """Remove files one by one: obstore stops at the first missing one, and refuses half-written ones."""
        for key in keys:
            local_disk.remove(self._root, key)
