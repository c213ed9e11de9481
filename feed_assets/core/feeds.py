"""The File Feed protocol as values: names, update ids, manifests, validity.

Source: "Synchronizing Data Pipelines" (dataxu, 2018). Nothing here reads or writes a store.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache, total_ordering
from hashlib import sha256

from feed_assets.core.errors import InvalidName, UpdateAbandoned

MANIFEST = "_SUCCESS"
MANIFEST_LIMIT = 64
"""Maximum number of bytes to read of a manifest. A longer manifest is always wrong."""

UNREADABLE = "\ufffd"
"""Replacement for each character of a listed key that not all stores allow. No request can use such a key."""

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:=@+-]*")
_VERSION = re.compile(r"v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_UPDATE_ID = re.compile(r"[0-9]{8}\.[0-9]{6}")
_LIKE_VERSION = re.compile(
    r"(?:v(?:er(?:sion)?)?[ ._=-]?([0-9]+)|([0-9]+)(?=\.))(?:[ ._=-]([0-9]+))?(?:[ ._=-][0-9]*)*"
    r"|v([0-9]+)\.([0-9]*).*",  # v1.0-rc1, v1.0_old
    re.IGNORECASE,
)
_COUNT = re.compile(rb"(?:0|[1-9][0-9]{0,17})\n?")
_ID_FORMAT = "%Y%m%d.%H%M%S"
_ID_LENGTH = len("YYYYMMDD.HHMMSS")
_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
"""Endings of the names of packed files."""


def check_segment(text: str, label: str) -> str:
    """Return `text` if it is valid as a segment of an object's key in every store, otherwise raise InvalidName."""
    if not _SEGMENT.fullmatch(text) or ".." in text or len(text) > 200 or text.endswith((" ", ".")):
        raise InvalidName(
            f"{label} {text!r} cannot be a path segment: expected 1 to 200 ASCII letters, digits or any of "
            "' ._:=@+-', beginning with a letter or digit, without '..'. Rename it."
        )
    return text


@dataclass(frozen=True, order=True)
class Version:
    """The version of a feed's contract, `v<major>.<minor>`."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> "Version | None":
        """Parse a version. Return None if `text` is not a version."""
        match = _VERSION.fullmatch(text)
        return cls(int(match[1]), int(match[2])) if match else None

    @classmethod
    def near(cls, text: str) -> "Version | None":
        """Return the version that a misspelling probably means: `v01.0`, `v1`, `V1.0`, `v1_0`, `1.0` or `v1.0-rc1`.

        Return None for any other text. A correct version is returned as it is.
        """
        match = _LIKE_VERSION.fullmatch(text)
        return cls(int(match[1] or match[2] or match[4]), int(match[3] or match[5] or 0)) if match else None

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}"


@total_ordering
@dataclass(frozen=True)
class Feed:
    """A dataset's location and contract version. `str(feed)` identifies it: `ads/shown/v1.0`."""

    name: str
    version: Version | None = None

    @classmethod
    def parse(cls, text: str) -> "Feed":
        """Parse `ads/shown/v1.0`, or `ads/shown` for a foreign feed without a version."""
        return _parse_feed(text)

    def __str__(self) -> str:
        return f"{self.name}/{self.version}" if self.version else self.name

    def __lt__(self, other: "Feed") -> bool:
        """Order by name, then by version; a feed without a version is first."""
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(self.name)  # Hash the name alone: lookups are frequent, and few feeds differ only in the version.

    @property
    def _order(self) -> tuple[str, int, int]:
        return (self.name, self.version.major, self.version.minor) if self.version else (self.name, -1, -1)


def newer_versions(feeds: Iterable[Feed]) -> dict[Feed, Feed]:
    """Return the newest version for each feed that has a newer one."""
    ordered = sorted(feeds)
    newest = {feed.name: feed for feed in ordered}
    return {feed: newest[feed.name] for feed in ordered if feed != newest[feed.name]}


@lru_cache(maxsize=4096)  # Thousands of rows name the same few feeds.
def _parse_feed(text: str) -> Feed:
    segments = text.split("/")
    version = Version.parse(segments[-1])
    name = segments[:-1] if version else segments
    if not name or name[0] == "_feed_assets":
        raise InvalidName(f"{text!r} is not a feed: expected a name and a version, such as 'ads/shown/v1.0'.")
    for segment in name:
        check_segment(segment, "feed name")
    return Feed("/".join(name), version)


@dataclass(frozen=True, order=True)
class Partition:
    """One partition of a feed.

    Args:
        feed: The feed.
        key: One segment for each dimension, joined by `/`, such as `2019-11-24/men`; '' for a feed without partitions.
        start: When its time window begins (UTC). None if it has no time window, and outside of a run's function.
        end: When its time window ends.

    Raises:
        InvalidName: A segment of the key is not valid on every store, or looks like an update id.
    """

    feed: Feed
    key: str = ""
    start: datetime | None = field(default=None, compare=False, repr=False)
    end: datetime | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for segment in self.key.split("/") if self.key else ():
            check_segment(segment, "partition key")
            if is_update_id(segment):
                raise InvalidName(f"partition key {segment!r} looks like an update id: use another form of date.")

    @classmethod
    def parse(cls, path: str) -> "Partition":
        """Parse the path of a versioned feed's partition, such as `ads/shown/v1.0/2019-11-24/men`."""
        segments = path.split("/")
        for length in range(2, len(segments) + 1):
            if Version.parse(segments[length - 1]):
                return cls(Feed.parse("/".join(segments[:length])), "/".join(segments[length:]))
        raise InvalidName(f"{path!r} is not a partition: expected a feed with its version, then the partition's key.")

    @property
    def path(self) -> str:
        """Return the prefix under the blackboard, without a slash at either end."""
        return f"{self.feed}/{self.key}" if self.key else str(self.feed)

    def batch(self, name: str) -> "Partition":
        """Return a batch of this partition of an appendable feed: its key has one more segment."""
        return Partition(self.feed, f"{self.key}/{name}" if self.key else name)

    @property
    def parent(self) -> "Partition | None":
        """Return the partition whose key has one segment less: for a batch, the partition that holds the batch.

        Return None if the key is ''.
        """
        return Partition(self.feed, self.key.rpartition("/")[0]) if self.key else None

    @property
    def name(self) -> str:
        """Return the last segment of the key: the name of a batch."""
        return self.key.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.feed} {self.key}".rstrip()


def is_update_id(name: str) -> bool:
    """Return whether `name` has the form `YYYYMMDD.HHMMSS` of an existing moment."""
    return len(name) == _ID_LENGTH and parse_update_id(name) is not None  # Most names fail the cheap first check.


def parse_update_id(name: str) -> datetime | None:
    """Return the moment (UTC) of an update id. Return None for other names, such as `20180231.000000`."""
    if not _UPDATE_ID.fullmatch(name):
        return None
    try:
        return datetime.strptime(name, _ID_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def update_id(moment: datetime) -> str:
    """Return the id of an update made at `moment` (timezone-aware)."""
    utc = moment.astimezone(UTC)
    return f"{utc.year:04d}{utc:%m%d.%H%M%S}"  # `%Y` leaves out the zeros of early years on Linux.


def next_update_id(now: datetime, existing_ids: Iterable[str]) -> str:
    """Return an id for `now`. If the newest existing id is not earlier, return the id of one second after it.

    So the newest data always have the newest id.
    """
    newest = max((moment for moment in map(parse_update_id, existing_ids) if moment), default=None)
    if newest and newest >= _LAST:
        raise UpdateAbandoned(f"Update {update_id(newest)} exists, and no greater id is possible. Remove that update.")
    return update_id(max(now, newest + timedelta(seconds=1)) if newest else now)


@dataclass(frozen=True, order=True)
class File:
    """One object: its key under the blackboard, its size in bytes, its etag, and when it was written (UTC)."""

    key: str
    size: int
    etag: str = ""
    modified: datetime | None = field(default=None, compare=False)
    """The time by the store's clock, from the listing; None if unknown."""


@dataclass(frozen=True)
class Update:
    """One valid update, with its files. The files are from the listing that showed that the update is valid."""

    partition: Partition
    id: str
    files: tuple[File, ...]

    @property
    def path(self) -> str:
        """Return the prefix under the blackboard, without a slash at either end."""
        return f"{self.partition.path}/{self.id}"

    @property
    def size(self) -> int:
        """Return the total size of the files in bytes, without the manifest."""
        return sum(file.size for file in self.files)

    @property
    def modified(self) -> datetime | None:
        """Return when the newest file was written. Return None if no time is known."""
        return max((file.modified for file in self.files if file.modified), default=None)

    @property
    def files_digest(self) -> str:
        """Return a digest of the files: names, sizes and etags, without the update's id."""
        lines = (f"{file.key.removeprefix(self.path)}\t{file.size}\t{file.etag}\n" for file in sorted(self.files))
        return sha256("".join(lines).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Skipped:
    """An update that is not valid, with the reason."""

    id: str
    reason: str


def parse_manifest(content: bytes) -> int | str:
    """Return the count in a manifest, or the reason why it is not a manifest.

    The form is strict on purpose: `int()` would also accept `+3`, `1_0`, ` 3` and Arabic digits. One newline at the end
    is allowed because a shell's `echo` adds it (ADR 14).
    """
    if not content:
        return "its manifest is empty"
    if not _COUNT.fullmatch(content):
        return f"its manifest is {content[:24]!r}: expected a decimal number alone"
    return int(content)


def why_invalid(manifest: bytes | None, files: Sequence[File]) -> str | None:
    """Return why an update with this manifest and these files is not valid. Return None if it is valid."""
    if manifest is None:
        return "it has no manifest: still being written, refused by its audit, abandoned or invalidated"
    expected = parse_manifest(manifest)
    if isinstance(expected, str):
        return expected
    if odd := [file.key for file in files if UNREADABLE in file.key]:
        return f"{odd[0]} has a character that not all stores allow. Rename or remove it"
    if expected != len(files):
        return f"its manifest says {expected} files and there are {len(files)}"
    return None
