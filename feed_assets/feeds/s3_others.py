"""Reads from other teams' buckets, by boto3. obstore would send our session token along with a redirect (ADR 68).

Another team's store may send endless data, or one byte a second. So each body is limited to its announced size, and to
a time that depends on the received bytes only, because the announced size may be a lie.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from feed_assets.feeds.s3_pages import S3Pages
from feed_assets.feeds.store_clients import ObstoreClient
from feed_assets.feeds.stores import PATIENCE

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

SLOWEST = 64 << 10
"""The lowest average speed of a body, in bytes a second. In addition, each body gets `PATIENCE.timeout` seconds."""

BODY_SECONDS = 3600
"""The longest time of a body, at any speed. Meanwhile no file of another partner is pulled."""

_AT_ONCE = 1 << 20


class OthersClient(ObstoreClient):
    """Read requests to another team's bucket, by boto3, without redirects. The blackboard refuses writes."""

    def __init__(self, store: "ObjectStore", pages: S3Pages) -> None:
        super().__init__(store)
        self._pages = pages

    def list(self, prefix: str | None, /, after: str | None = None) -> Iterable[Sequence["ObjectMeta"]]:
        """Return every object below a prefix whose key follows `after`."""
        return [self._pages.objects(prefix or "", after or "")]

    def children(self, prefix: str | None, /) -> Sequence[str]:
        """Return the names of the common prefixes one level under a prefix."""
        return self._pages.names(prefix or "")

    def get(self, key: str, /, start: int = 0) -> "ServedObject":
        """Return one object from byte `start` on, which must be below its size."""
        return ServedObject(key, self._pages.object(key, f"bytes={start}-" if start else None))

    def part(self, key: str, start: int, length: int, /) -> "ServedObject":
        """Return `length` bytes of one object from `start` on, which must be within it."""
        return ServedObject(key, self._pages.object(key, f"bytes={start}-{start + length - 1}"))

    def head(self, key: str, /) -> "ObjectMeta":
        """Return the metadata of one object."""
        return _meta(key, self._pages.head(key))


class ServedObject:
    """An object from another team's store. Reading raises an error unless all announced bytes arrive in time."""

    def __init__(self, key: str, found: dict[str, Any], now: Callable[[], float] = monotonic) -> None:
        self._raw: Any = found["Body"]._raw_stream  # `Body.read` could wait forever for all requested bytes.
        self.meta = _meta(key, found)
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


def _meta(key: str, found: dict[str, Any]) -> "ObjectMeta":
    """Return an answer's headers in obstore's form. Raise OSError if a required header is missing."""
    if found.get("ContentLength", -1) < 0:
        raise OSError(f"the answer for {key} has no Content-Length: expected the number of its bytes")
    if "LastModified" not in found:
        raise OSError(f"the answer for {key} has no Last-Modified: expected the time of writing")
    _, _, whole = str(found.get("ContentRange", "")).partition("/")
    return {
        "path": key,
        "last_modified": found["LastModified"],
        "size": int(whole) if whole.isdigit() else found["ContentLength"],
        "e_tag": found.get("ETag"),
        "version": None,
    }
