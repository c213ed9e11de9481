"""A write event: "this table may have new data since its marker".

Source: "Data Orchestration via Events" (2024). Nothing here reads or writes a store.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid5

from feed_assets.core.errors import EventOutOfOrder, InvalidEvent
from feed_assets.core.feeds import Feed, Partition, parse_update_id, update_id
from feed_assets.core.intervals import Interval, start_of
from feed_assets.core.limits import (
    REASON_BYTES,
    REJECT_BYTES,
    check_context,
    check_correlation,
    check_partition,
    excerpt,
)

Marker = datetime | int
"""A value that orders the updates of one table: a timezone-aware moment, or a version from 0.

All markers of a table are of the same kind.
"""

NO_NEW_DATA = "no_new_data"
"""Context key: the update passed through this table and left no new data."""
UPDATE_ID = "update_id"
"""Context key: the feed update that the event reports. Such an event covers its whole partition."""
PARENTS = "parents"
"""Context key: the correlation ids that the event's run consumed, if there were several."""
ADDED_TO = "added_to"
"""Context key: the previous update, to which an increment was added."""
BATCH = "batch"
"""Context key: the batch of an increment of an appendable dataset."""
COLUMNS = "columns"
"""Context key: the columns of a warehouse's table, if they changed since the previous event."""

DATA_CENTER = "data_center"
"""Context key: the data center that has a copy of the update."""
REPLICA_OF = "replica_of"
"""Context key: the URL of the blackboard that the copy was made from."""
WITHDRAWN = "withdrawn"
"""Context key: the copy is no longer valid."""
SLICES = "slices"
"""Context key: the start and end markers of the slices that an increment read, by table partition."""
_CONTEXT: Mapping[str, tuple[type, str]] = {
    NO_NEW_DATA: (bool, "true or false"),
    UPDATE_ID: (str, "a text"),
    PARENTS: (list, "a list of texts"),
}
"""Context keys whose types are checked. Other keys are not checked: `bytes` counts as 0 if it is no integer."""

LAST_VERSION = 2**63 - 1
"""The highest version of an event: the greatest bigint of a database."""
_DIGITS = 20
_ID_LENGTH = len("YYYYMMDD.HHMMSS")
_ENCODED = re.compile(r"(?P<number>[0-9]{20})|(?P<second>[0-9]{5,8}\.[0-9]{6})(\.(?P<micro>[0-9]{6}))?")
_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Operation(StrEnum):
    """The way in which a table was written.

    Attributes:
        OVERWRITE: All rows were replaced.
        INSERT: Rows were added.
        UPDATE: Rows were changed.
        UPSERT: Rows were added or changed.
        DELETE: Rows were removed.
    """

    OVERWRITE = "OVERWRITE"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    UPSERT = "UPSERT"
    DELETE = "DELETE"


@dataclass(frozen=True)
class WriteEvent:
    """One update of a table.

    `marker` is at or after the `updated_at` of every row that the event covers, and before the `updated_at` of every
    later row. `event_marker` is the time of the event itself. `partition_key` is '' for a table without partitions.
    `context` has further facts from the writer, as JSON: code_version, run, records, bytes, no_new_data, parents, and
    any others.
    """

    table_name: str
    marker: Marker
    event_marker: Marker
    correlation_id: str
    write_operation: Operation = Operation.OVERWRITE
    partition_key: str = ""
    context: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)

    @property
    def partition(self) -> Partition:
        """Return the partition that was written. The table counts as a feed. Raise InvalidName for a malformed name."""
        return Partition(Feed.parse(self.table_name), self.partition_key)

    @property
    def has_new_data(self) -> bool:
        """Return whether the event may bring new data.

        Return False only if the event's writer states that the event has no new data.
        """
        return self.context.get(NO_NEW_DATA) is not True

    def start(self, previous: str | None) -> str | None:
        """Return the marker after which the event's data begin (None: the table's beginning).

        `previous` is the marker of the partition's previous event.
        """
        is_update = UPDATE_ID in self.context
        replaces_all = is_update or self.write_operation is Operation.OVERWRITE
        is_empty = not is_update and not self.has_new_data
        return start_of(previous, encode(self.marker), replaces_all=replaces_all, is_empty=is_empty)


@dataclass(frozen=True)
class Rejected:
    """A text that is not a valid event, and the reason. Text and reason are cut to their limits."""

    raw: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", excerpt(self.raw, REJECT_BYTES))
        object.__setattr__(self, "reason", excerpt(self.reason, REASON_BYTES))


@dataclass(frozen=True)
class Recorded:
    """An event as stored in the ledger, with its number in commit order. Markers are encoded.

    The event covers the updates in `(start, marker]` of its table's partition, as in `start_of`. `previous` is the
    marker of the previous event of that partition; None for its first event.
    """

    sequence: int
    source: str
    partition: Partition
    marker: str
    previous: str | None
    start: str | None
    event_marker: str
    correlation: str
    operation: Operation
    context: Mapping[str, Any] = field(hash=False)
    flag: str | None
    at: datetime

    @property
    def time(self) -> datetime:
        """Return the time (UTC) of the event itself. If its marker is a version, return when the ledger recorded it."""
        marker = decode(self.event_marker)
        return marker if isinstance(marker, datetime) else self.at

    @property
    def parents(self) -> tuple[str, ...]:
        """Return the correlation ids that were joined into the id of this event. Return () if its id is not joined."""
        # An old event may have a value of any type here, because types were not checked then.
        parent_ids = self.context.get(PARENTS)
        return tuple(map(str, cast(list[object], parent_ids))) if isinstance(parent_ids, list) else ()

    @property
    def interval(self) -> Interval:
        """Return the interval that the event covers."""
        return Interval(self.start, self.marker)


def encode(marker: Marker) -> str:
    """Encode a marker as text. The texts of one kind of marker sort in the order of the markers.

    The text of a moment on a whole second is an update id. `decode` returns the marker again. Raise InvalidEvent for a
    moment without a time zone, and for a marker that is out of range.
    """
    if isinstance(marker, datetime):
        if marker.tzinfo is None:
            raise InvalidEvent(f"marker {marker} has no time zone: expected one, such as {marker}+00:00.")
        return _text_of(_in_utc(marker))
    if not 0 <= marker < 10**_DIGITS:
        raise InvalidEvent(f"marker {marker} is out of range: expected 0 to {10**_DIGITS - 1}.")
    return f"{marker:0{_DIGITS}d}"


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidEvent(
            f"marker {moment}: in UTC it is before the year 1 or after 9999: expected a moment in between."
        ) from None


@lru_cache(maxsize=16_384)  # Pass UTC only: in other zones the two moments of a repeated hour share a cache key.
def _text_of(utc: datetime) -> str:
    return update_id(utc) + (f".{utc.microsecond:06d}" if utc.microsecond else "")


def decode(text: str) -> Marker:
    """Parse a text that `encode` returned. Raise InvalidEvent for any other text."""
    match = _ENCODED.fullmatch(text)
    if match and match["number"]:
        return int(text)
    # Ledgers may hold years that were once written without leading zeros.
    moment = parse_update_id(match["second"].zfill(_ID_LENGTH)) if match else None
    if match and moment:
        return moment.replace(microsecond=int(match["micro"] or 0))
    raise InvalidEvent(f"{text!r} is not a marker: expected an update id such as 20101201.000000, or {_DIGITS} digits.")


def encoded(text: str) -> str:
    """Encode a marker that a person wrote. Return a text unchanged if it is an encoded marker already."""
    try:
        decode(text)
    except InvalidEvent:
        return encode(parse_marker(text))
    return text


def parse_marker(text: str) -> Marker:
    """Parse a marker as people write it: a whole number, an ISO 8601 moment (by default UTC), or an update id."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return decode(text)
    except InvalidEvent:
        return _parse_moment(text)


def _parse_moment(text: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidEvent(
            f"{text!r} is not a marker: expected a whole number, or a moment such as 2010-12-01T06:00:00Z."
        ) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def in_words(text: str | None) -> str:
    """Return an encoded marker in readable form. None stands for the beginning of the table."""
    if text is None:
        return "the beginning"
    marker = decode(text)
    return str(marker) if isinstance(marker, int) else marker.isoformat().replace("+00:00", "Z")


def check_marker(marker: Marker) -> None:
    """Raise InvalidEvent for a number or moment that a ledger's database cannot hold."""
    if encode(marker) and isinstance(marker, int) and marker > LAST_VERSION:
        raise InvalidEvent(f"version {marker} is too high: expected at most {LAST_VERSION}, the greatest bigint.")


def check_event(event: WriteEvent) -> None:
    """Raise InvalidEvent or InvalidName unless an event can be stored and read back."""
    check_partition(event.partition)
    for marker in (event.marker, event.event_marker):
        check_marker(marker)
    check_correlation(event.correlation_id)
    check_context(event.context, _CONTEXT)
    if not all(isinstance(each, str) for each in event.context.get(PARENTS, ())):
        raise InvalidEvent(f"context {PARENTS}: expected a list of texts.")


def check_ahead(event: WriteEvent, now: datetime, ahead: timedelta) -> None:
    """Raise InvalidEvent for a marker too far in the future. Otherwise all later events would be out of order.

    A version has no time, so it always passes.
    """
    for marker in (event.marker, event.event_marker):
        if isinstance(marker, datetime) and marker - now > ahead:
            raise InvalidEvent(
                f"{event.partition}: marker {in_words(encode(marker))} is more than {ahead} ahead of now, "
                f"{now:%Y-%m-%d %H:%M} UTC: expected an earlier one (FEED_ASSETS_EVENT_HOURS_AHEAD)."
            )


def is_moment(marker: str) -> bool:
    """Return whether an encoded marker is a moment, not a version."""
    return "." in marker


def check_kind(event: WriteEvent, *, moments: bool) -> None:
    """Raise InvalidEvent unless the marker is of its table's kind: a moment, or a whole number."""
    if is_moment(encode(event.marker)) != moments:
        raise InvalidEvent(
            f"{event.partition}: marker {event.marker} is of another kind than the markers of {event.table_name}: "
            f"expected a {'moment' if moments else 'whole number'}, like its first marker."
        )


def check_order(event: WriteEvent, last: str | None, updated_at: tuple[Marker, Marker] | None = None) -> None:
    """Raise InvalidEvent if an event has no correlation id, or does not cover its own rows.

    Raise EventOutOfOrder if the event's marker is not after `last`, the last marker of its partition. An event without
    new data may repeat that marker. `updated_at` is the first and the last time of the event's rows.
    """
    marker = encode(event.marker)
    if not event.correlation_id:
        raise InvalidEvent(f"{event.partition} {in_words(marker)}: an event needs a correlation_id: found none.")
    if last is not None and (marker < last or (marker == last and event.has_new_data)):
        raise EventOutOfOrder(
            f"{event.partition}: marker {in_words(marker)} is not after {in_words(last)}, the last one: "
            f"expected a later one{'' if marker < last else ', or context no_new_data'}. Consumers have read up to "
            "the last one already."
        )
    if updated_at and not (last or "") < encode(updated_at[0]) <= encode(updated_at[1]) <= marker:
        raise InvalidEvent(
            f"{event.partition}: its rows' updated_at are {updated_at[0]} to {updated_at[1]}: expected all after "
            f"{in_words(last)}, the last marker, and none after its own, {in_words(marker)}."
        )


def foreign_correlation(partition: Partition, update_id: str) -> str:
    """Return the correlation id of a foreign update: a UUIDv5 of feed, partition and update id.

    So every ledger gives the same update the same id.
    """
    return str(uuid5(NAMESPACE_URL, f"feed-assets:{partition.feed}|{partition.key}|{update_id}"))


def joined_correlation(incoming: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return the correlation id to pass on, and its parents. A single id is passed on as it is, without parents.

    Several ids are joined into a new id, which is a UUIDv5 of its parents. So tables of one pipeline that have the same
    inputs pass on the same id.
    """
    parents = tuple(sorted({*incoming}))
    if len(parents) == 1:
        return parents[0], ()
    return str(uuid5(NAMESPACE_URL, "feed-assets:joined|" + "|".join(parents))), parents
