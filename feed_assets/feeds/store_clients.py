"""Clients of a blackboard's store: obstore, and a faster client for local disk."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import obstore

from feed_assets.feeds import local_disk
from feed_assets.feeds.local_writes import write, write_chunks

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

OBJECTS_PER_PAGE = 1000
"""Number of objects that a store lists in one request."""

PARTS_AT_ONCE = 3
"""Number of parts of one object that are sent at the same time. They are in memory until they are sent."""


@dataclass(frozen=True)
class Page:
    """A page of names one level under a prefix, in the store's order, and whether it is the last one."""

    names: tuple[str, ...]
    is_last: bool


class StoredObject(Protocol):
    """An object that a store serves. Its bytes are read later."""

    @property
    def meta(self) -> "ObjectMeta":
        """Return the object's key, size, etag and time of writing (UTC)."""
        ...

    def stream(self, min_chunk_size: int = ...) -> "Iterable[bytes]":
        """Return the bytes in chunks."""
        ...

    def bytes(self) -> "Buffer":
        """Return all bytes."""
        ...


class ObstoreClient:
    """A client that uses obstore. Each method is one request, or one for each page."""

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
        """Return one object from byte `start` on, which must be below its size. The body is read later."""
        return obstore.get(self._store, key, options={"range": {"offset": start}} if start else None)

    def part(self, key: str, start: int, length: int, /) -> "StoredObject":
        """Return `length` bytes from `start` on. The object must contain all of them. The body is read later."""
        return obstore.get(self._store, key, options={"range": (start, start + length)})

    def head(self, key: str, /) -> "ObjectMeta":
        """Return the metadata of one object."""
        return obstore.head(self._store, key)

    def put(self, key: str, data: bytes | Path, /, *, create: bool) -> None:
        """Write one object. With `create` fail if it exists, and never use multipart."""
        obstore.put(self._store, key, data, mode="create" if create else "overwrite")

    def put_chunks(self, key: str, chunks: Iterable[bytes], /, part: int | None) -> str:
        """Write one object from chunks, in parts of `part` bytes or in one request, and return its etag.

        If `chunks` raises, nothing is written.
        """
        result = obstore.put(
            self._store,
            key,
            iter(chunks),
            use_multipart=part is not None,
            chunk_size=part or OBJECTS_PER_PAGE,
            max_concurrency=PARTS_AT_ONCE,
        )
        return result["e_tag"] or ""

    def delete(self, keys: Sequence[str], /) -> None:
        """Remove objects, up to a thousand in one request."""
        obstore.delete(self._store, keys)


class LocalClient(ObstoreClient):
    """A client for local disk. It uses only regular files, while obstore would follow links, or wait for a FIFO."""

    def __init__(self, store: "ObjectStore", root: Path) -> None:
        super().__init__(store)
        self._root = root

    def list(self, prefix: str | None, /, after: str | None = None) -> Iterable[Sequence["ObjectMeta"]]:
        """Return every file below a prefix whose key follows `after`, including half-written files."""
        return [[*local_disk.objects(self._root, prefix or "", after or "")]]

    def children(self, prefix: str | None, /) -> Sequence[str]:
        """Return the names of the direct subfolders, by one listing. obstore raises the error for an invalid prefix."""
        if prefix and not all(segment.strip(".") for segment in prefix.split("/")):
            return super().children(prefix)
        return local_disk.folders(self._root, prefix or "")

    def get(self, key: str, /, start: int = 0) -> "StoredObject":
        """Return one file from byte `start` on.

        For a key that names a half-written file, call obstore, which raises its error for such names.
        """
        return (
            super().get(key, start)
            if local_disk.HALF_WRITTEN.search(key)
            else local_disk.opened(self._root, key, start)
        )

    def part(self, key: str, start: int, length: int, /) -> "StoredObject":
        """Return `length` bytes of one file from `start` on."""
        return local_disk.opened(self._root, key, start, length)

    def head(self, key: str, /) -> "ObjectMeta":
        """Return the metadata of one file. Let obstore raise the error for the name of a half-written file."""
        is_half_written = local_disk.HALF_WRITTEN.search(key)
        return super().head(key) if is_half_written else local_disk.looked_at(self._root, key)

    def put(self, key: str, data: bytes | Path, /, *, create: bool) -> None:
        """Write one file. Raise InvalidName if a folder above it is a link. With `create` fail if it exists.

        For a key that names a half-written file, call obstore, which raises its error for such names.
        """
        if local_disk.HALF_WRITTEN.search(key):
            super().put(key, data, create=create)
        else:
            write(self._root, key, data, create=create)

    def put_chunks(self, key: str, chunks: Iterable[bytes], /, part: int | None) -> str:
        """Write one file from chunks. Raise InvalidName if a folder above it is a link.

        obstore would copy each chunk twice. For the name of a half-written file, call it: it raises its error.
        """
        if local_disk.HALF_WRITTEN.search(key):
            return super().put_chunks(key, chunks, part)
        return write_chunks(self._root, key, chunks)

    def delete(self, keys: Sequence[str], /) -> None:
        """Remove files one by one, because obstore stops at a missing file, and refuses half-written files."""
        for key in keys:
            local_disk.remove(self._root, key)
