"""Reads from other teams' buckets, by boto3. obstore would send our session token along with a redirect (ADR 68).

Another team's store may send endless data, or one byte a second. So each body is limited to its announced size, and to
a time. The time depends only on the received bytes, because the announced size may be a lie.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from feed_assets.feeds.s3_pages import S3Pages, stored_meta
from feed_assets.feeds.store_clients import OBJECTS_PER_PAGE, ObstoreClient
from feed_assets.feeds.stores import PATIENCE

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

SLOWEST = 64 << 10
"""The lowest average speed of a body, in bytes a second. In addition, each body gets `PATIENCE.timeout` seconds."""

BODY_SECONDS = 3600
"""The longest time of a body, at any speed. While a body arrives, no file of another partner is pulled."""

_AT_ONCE = 1 << 20
_CONTENT_RANGE = re.compile("bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")


@dataclass(frozen=True)
class ByteRange:
    """The range of an object's bytes that a request names. `last` None means up to the object's end."""

    first: int
    last: int | None = None

    def __str__(self) -> str:
        return f"bytes={self.first}-{'' if self.last is None else self.last}"

    def object_size(self, key: str, answer: dict[str, Any]) -> int:
        """Return the size of the whole object. Raise OSError unless the answer has exactly this range."""
        content_range, length = str(answer.get("ContentRange", "")), answer["ContentLength"]
        match = _CONTENT_RANGE.fullmatch(content_range)
        first, last, size = map(int, match.groups()) if match else (0, 0, 0)
        expected = (self.first, size - 1 if self.last is None else min(self.last, size - 1))
        if (first, last) != expected or length != last - first + 1:
            raise OSError(
                f"the answer for {key} has {length} bytes and the Content-Range {content_range!r:.80}: expected {self}"
            )
        return size


class OthersClient(ObstoreClient):
    """Read requests to another team's bucket, by boto3, without redirects. The blackboard refuses writes."""

    def __init__(self, store: "ObjectStore", pages: S3Pages) -> None:
        super().__init__(store)
        self._pages = pages

    def list(self, prefix: str | None, /, after: str | None = None) -> Iterable[Sequence["ObjectMeta"]]:
        """Yield the objects below a prefix whose keys follow `after`, in pages. Only the last page may be short.

        Another team's store may return shorter pages. They are joined here.
        """
        listed = list["ObjectMeta"]()
        for page in self._pages.listing().object_pages(f"{prefix}/" if prefix else "", after or ""):
            listed += page
            if len(listed) >= OBJECTS_PER_PAGE:
                yield listed
                listed = list["ObjectMeta"]()
        yield listed

    def children(self, prefix: str | None, /) -> Sequence[str]:
        """Return the names of the common prefixes one level under a prefix."""
        return self._pages.names(prefix or "")

    def get(self, key: str, /, start: int = 0) -> "ServedObject":
        """Return one object from byte `start` on, which must be below its size."""
        return self._served(key, ByteRange(start) if start else None)

    def part(self, key: str, start: int, length: int, /) -> "ServedObject":
        """Return `length` bytes of one object from `start` on. The object must contain all of them."""
        return self._served(key, ByteRange(start, start + length - 1))

    def head(self, key: str, /) -> "ObjectMeta":
        """Return the metadata of one object."""
        return _meta(key, self._pages.head(key))

    def _served(self, key: str, span: ByteRange | None) -> "ServedObject":
        return ServedObject(key, self._pages.object(key, str(span) if span else None), span)


class ServedObject:
    """An object from another team's store. Reading raises an error unless all announced bytes arrive in time."""

    def __init__(
        self, key: str, found: dict[str, Any], span: ByteRange | None = None, now: Callable[[], float] = monotonic
    ) -> None:
        self._raw: Any = found["Body"]._raw_stream  # `Body.read` could wait forever for all requested bytes.
        try:
            self.meta = _meta(key, found, span)
        except OSError:
            self._raw.close()
            raise
        self._key, self._size, self._now = key, int(found["ContentLength"]), now
        self._began = now()

    def __del__(self) -> None:
        self._raw.close()

    def stream(self, min_chunk_size: int = _AT_ONCE) -> Iterator[bytes]:
        """Yield the bytes of the requested range as they arrive. Raise OSError if some are missing, or too slow."""
        left = self._size
        while left:
            data: bytes = self._raw.read1(min(left, max(min_chunk_size, 1)))
            if not data:
                raise OSError(f"{self._key} ends {left} bytes before its announced size")
            left -= len(data)
            if self._now() - self._began > min(PATIENCE.timeout + (self._size - left) / SLOWEST, BODY_SECONDS):
                raise OSError(
                    f"{self._key} has not arrived in time: expected {SLOWEST} bytes a second, and the whole within "
                    f"{BODY_SECONDS} s"
                )
            yield data

    def bytes(self) -> bytes:
        """Return all bytes of the requested range."""
        return b"".join(self.stream())


def _meta(key: str, found: dict[str, Any], span: ByteRange | None = None) -> "ObjectMeta":
    """Return an answer's headers in obstore's form. Raise OSError if they do not answer the request."""
    if found.get("ContentLength", -1) < 0:
        raise OSError(f"the answer for {key} has no Content-Length: expected the number of its bytes")
    if "LastModified" not in found:
        raise OSError(f"the answer for {key} has no Last-Modified: expected the time of writing")
    if span is None and "ContentRange" in found:
        raise OSError(f"the answer for {key} has a Content-Range: expected the whole object")
    size = span.object_size(key, found) if span else found["ContentLength"]
    return stored_meta(key, size, found.get("ETag"), found["LastModified"])
