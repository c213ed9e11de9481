"""Copy of one file between blackboards, verified by its size and its checksum.

The store's etag proves what it has, if the etag is the MD5 of what was sent. Otherwise the copy is read back.
The checksum is an MD5 if a store has MD5s as etags, otherwise a SHA-256: most CPUs compute it in half the time.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from hashlib import md5, sha256

from feed_assets.core.errors import BlackboardUnavailable, CopyDamaged, UpdateChanged
from feed_assets.core.feeds import File
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import check_served
from feed_assets.replication.read_ahead import read_ahead
from feed_assets.replication.replicas import CopiedFile

PART = 8 << 20
"""Bytes of a part. A file of at most this size is sent in one request."""

_MOST_PARTS = 9_000
"""Number of parts that S3 accepts, with some room: 10,000."""

_LARGEST_BY_STORE = 5 << 30
"""Size up to which S3 copies an object in one request."""

_MD5 = re.compile(r"[0-9a-f]{32}")

Checkpoint = Callable[[int], None]
"""A function that is called with the bytes of each chunk. It may wait, and raises an error if the copy must stop."""


class Digest:
    """Checksum of the bytes of a file. With an MD5 also the etag that S3 gives to a file that was sent in parts."""

    def __init__(self, *, is_md5: bool, part: int | None = None) -> None:
        self.size, self._part = 0, part
        self._whole = _new() if is_md5 else sha256(usedforsecurity=False)
        self._current, self._parts = _new(), list[bytes]()

    def add(self, chunk: bytes | memoryview) -> None:
        """Add the next bytes."""
        self.size += len(chunk)
        self._whole.update(chunk)
        view = memoryview(chunk)
        while self._part and view:
            room = self._part - (self.size - len(view)) % self._part
            self._current.update(view[:room])
            if room <= len(view):
                self._parts.append(self._current.digest())
                self._current = _new()
            view = view[room:]

    @property
    def checksum(self) -> str:
        """Return the checksum of all bytes, in hexadecimal digits: 32 of an MD5, 64 of a SHA-256."""
        return self._whole.hexdigest()

    @property
    def etag(self) -> str:
        """Return the etag that S3 gives to these bytes, unless it encrypts them with a key of its own."""
        if not self._part:
            return self.checksum
        last = [self._current.digest()] if self.size % self._part else []
        parts = [*self._parts, *last]
        return f"{md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"


def _new():  # noqa: ANN202  hashlib's own type has no public name
    return md5(usedforsecurity=False)


def copy_file(source: Blackboard, place: Blackboard, file: File, checkpoint: Checkpoint) -> CopiedFile:
    """Copy a listed file to the same key in a place, and return what was verified.

    Raise UpdateChanged if the source is not the listed file, CopyDamaged if other bytes arrive, and the errors of
    `checkpoint`. Then the place has no such file, or an earlier one.
    """
    return _by_store(source, place, file) or _streamed(source, place, file, checkpoint)


def compared(
    source: Blackboard, place: Blackboard, file: File, copy: File, checkpoint: Checkpoint
) -> CopiedFile | None:
    """Return what is verified of a file that a place has already. Return None if it has other bytes.

    Equal etags that are MD5s prove it. Otherwise both ends are read. Raise UpdateChanged if the source is not the
    listed file.
    """
    etag = _unquoted(file.etag)
    if _is_md5(etag) and etag == _unquoted(copy.etag):
        return CopiedFile(file.size, etag, file.etag, copy.etag)
    original, served = digest_of(source, file, checkpoint)
    check_served(file, served)
    digest, current = digest_of(place, file, checkpoint)
    expected = copy.etag, original.size, original.checksum
    if current is None or (current.etag, digest.size, digest.checksum) != expected:
        return None
    return CopiedFile(file.size, digest.checksum, file.etag, copy.etag)


def _by_store(source: Blackboard, place: Blackboard, file: File) -> CopiedFile | None:
    """Let one S3 service copy a file between its buckets. Return None if it did not, or if nothing proves the copy."""
    digest = _unquoted(file.etag)
    if not _is_md5(digest) or file.size > _LARGEST_BY_STORE:
        return None
    etag = place.copied_from(source, file)
    return CopiedFile(file.size, digest, file.etag, etag) if etag and _unquoted(etag) == digest else None


def _streamed(source: Blackboard, place: Blackboard, file: File, checkpoint: Checkpoint) -> CopiedFile:
    part = None if file.size <= PART else max(PART, -(-file.size // _MOST_PARTS))
    is_md5 = _is_md5(_unquoted(file.etag)) or (place.is_paged and part is None)
    digest = Digest(is_md5=is_md5, part=part if place.is_paged else None)
    chunks = _observed(source, file, digest, checkpoint)
    # With an error in the chunks, the store keeps nothing: so a broken source leaves no file.
    sent = [*chunks] if part is None else None
    if sent is not None:
        etag = place.put_chunks(file.key, [b"".join(sent)])
    else:
        # From folder to folder, another thread would only wait for this one.
        with nullcontext(chunks) if source.is_local and place.is_local else read_ahead(chunks) as ahead:
            etag = place.put_chunks(file.key, ahead, part)
    if not place.is_paged or _unquoted(etag) != digest.etag:
        # A comparison takes a tenth of the time of another checksum. A folder is read twice almost for free.
        again = iter(sent) if sent is not None else _chunks_of(source, file) if source.is_local else None
        etag = _read_back(place, file, digest, again, lambda _: checkpoint(0))
    return CopiedFile(file.size, digest.checksum, file.etag, etag)


def _chunks_of(source: Blackboard, file: File, opened: tuple[File, Iterator[bytes]] | None = None) -> Iterator[bytes]:
    """Yield the bytes of a listed file. If the store breaks off, go on behind the last byte.

    A request has a limited time, and a slow place takes the bytes of a large file more slowly. Raise the store's error
    if a request brings nothing, and UpdateChanged if the source is not the listed file.
    """
    at = 0
    while True:
        begun, opened = at, opened or source.stream(file.key, at)
        check_served(file, opened[0] if opened else None)
        try:
            for chunk in opened[1] if opened else ():
                at += len(chunk)
                yield chunk
        except BlackboardUnavailable:
            if at == begun:
                raise
            opened = None
        else:
            return


def _observed(source: Blackboard, file: File, digest: Digest, checkpoint: Checkpoint) -> Iterator[bytes]:
    """Yield the chunks of a source. Raise UpdateChanged or CopyDamaged at their end if they are not the listed file."""
    for chunk in _chunks_of(source, file):
        checkpoint(len(chunk))
        digest.add(chunk)
        if digest.size > file.size:  # The rest may have no end.
            break
        yield chunk
    if digest.size != file.size:
        raise UpdateChanged(f"{file.key}: the source sent {digest.size} bytes, expected {file.size}. Copy it again.")
    expected = _unquoted(file.etag)
    # With a key of KMS, an etag has the form of an MD5, and is none. Another etag costs one more request.
    is_other = _is_md5(expected) and expected != digest.checksum
    if is_other and not source.is_encrypted_by_key(file.key):
        raise CopyDamaged(
            f"{file.key}: bytes with the MD5 {digest.checksum} arrived, expected {expected}. Copy it again."
        )


def _read_back(
    place: Blackboard, file: File, sent: Digest, again: Iterator[bytes] | None, checkpoint: Checkpoint
) -> str:
    """Return the etag of a copy. Raise CopyDamaged if it has other bytes than those that were sent.

    Compare it with the bytes in `again`, or without them by its checksum.
    """
    opened = place.stream(file.key) if again is not None else None
    if again is not None and opened is not None:
        served, is_equal = opened[0], _are_equal(_chunks_of(place, opened[0], opened), again, checkpoint)
    else:
        digest, served = digest_of(place, file, checkpoint, like=sent.checksum)
        is_equal = (digest.size, digest.checksum) == (sent.size, sent.checksum)
    if served is None or not is_equal:
        raise CopyDamaged(
            f"{file.key}: the copy on {place.title} has other bytes than the {sent.size} with the checksum "
            f"{sent.checksum} that were sent. Copy it again."
        )
    return served.etag


def _are_equal(copy: Iterator[bytes], sent: Iterator[bytes], checkpoint: Checkpoint) -> bool:
    """Return whether two bodies have the same bytes, in whatever chunks they arrive."""
    pending = b""
    for chunk in copy:
        checkpoint(len(chunk))
        while len(pending) < len(chunk) and (piece := next(sent, b"")):
            pending += piece
        if not pending.startswith(chunk):
            return False
        pending = pending[len(chunk) :]
    return not pending and not next(sent, b"")


def digest_of(board: Blackboard, file: File, checkpoint: Checkpoint, *, like: str = "") -> tuple[Digest, File | None]:
    """Return the digest of an object's bytes, and its metadata. The latter is None if it does not exist.

    Its checksum is of the kind of the checksum `like`, by default a SHA-256. Reading ends soon after the size of
    `file`: what is longer is another file, and a server may send it without end.
    """
    digest, opened = Digest(is_md5=_is_md5(like)), board.stream(file.key)
    for chunk in _chunks_of(board, opened[0], opened) if opened else ():
        checkpoint(len(chunk))
        digest.add(chunk)
        if digest.size > file.size:
            break
    return digest, opened[0] if opened else None


def _is_md5(checksum: str) -> bool:
    return bool(_MD5.fullmatch(checksum))


def _unquoted(etag: str) -> str:
    return etag.strip('"')
