"""Changes of an input's partition since it was read: growth and its amount, a restatement, or a withdrawal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.events import in_words
from feed_assets.core.feeds import Partition, parse_update_id
from feed_assets.core.pins import InputChange, InputSource, Pin
from feed_assets.core.windows import address_of


@dataclass(frozen=True)
class Growth:
    """The growth of one source of an input: of all its partitions whose keys are equal apart from the time.

    `change` is its first change. `before` and `after` are the sizes of the source when it was consumed and now: in
    bytes, or in records for windows. `since` is when the first new data arrived (UTC).
    """

    change: InputChange
    before: int
    after: int
    files: int
    """Number of additional files, or of changed windows."""
    since: datetime

    @property
    def whose(self) -> str:
        """Return the name of the input for a message: its feed, and the keys of its partitions without the time."""
        source = self.change.source
        return f"{source.feed} {source.keys}".rstrip() if source else str(self.change.partition)

    @property
    def share(self) -> float:
        """Return the relative growth. Growth from 0 is infinite."""
        return (self.after - self.before) / self.before if self.before else float("inf")


def growths(changes: Sequence[InputChange], since: Mapping[Partition, datetime], now: datetime) -> list[Growth]:
    """Group the changes by source, and return the growth of each group.

    For example, the 24 hourly partitions that one daily output reads count as one source.
    """
    groups: dict[InputSource | Partition, list[InputChange]] = {}
    for each in changes:
        groups.setdefault(each.source or each.partition, []).append(each)
    return [_growth(group, since, now) for group in groups.values()]


def _growth(changes: Sequence[InputChange], since: Mapping[Partition, datetime], now: datetime) -> Growth:
    first = changes[0]
    before, after = _source_sizes(first)
    came = (moment for each in changes for moment in (since.get(each.partition), _arrived(each)) if moment)
    return Growth(first, before, after, sum(map(_files, changes)), min(came, default=now))


def is_withdrawn(change: InputChange) -> bool:
    """Return whether the consumed update was withdrawn: it is no longer valid, and no new data arrived."""
    old, new = change.old, change.new
    return old is not None and (new is None or new.update_id < old.update_id)


def is_restated(change: InputChange) -> bool:
    """Return whether a change is not growth: the input is new, gone, smaller, or has other content of the same size.

    A new batch of a partition from which other batches were read is growth.
    """
    old, new = change.old, change.new
    if old is None or new is None:
        return not change.is_one_more
    return new.size <= old.size


def _source_sizes(change: InputChange) -> tuple[int, int]:
    return change.source_sizes if change.source else (_size(change.old), _size(change.new))


def _is_batch(change: InputChange) -> bool:
    return change.source is not None and change.source.is_appendable


def _size(pin: Pin | None) -> int:
    return pin.size if pin else 0


def _files(change: InputChange) -> int:
    if address_of(change.partition):
        return 1
    return max((change.new.files if change.new else 0) - (change.old.files if change.old else 0), 0)


def _arrived(change: InputChange) -> datetime | None:
    return parse_update_id(change.new.update_id) if change.new else None


def described(change: InputChange) -> str:
    """Describe a change, with its partition."""
    return f"{change.partition}: {_describe(change)}"


def _describe(change: InputChange) -> str:
    old, new = change.old, change.new
    if old is None:
        return f"was not there before{_said_of_all(change)}"
    if new is None:
        return "is no longer valid" if _is_batch(change) else "is no longer valid, or no longer an input"
    if address_of(change.partition):
        return f"its windows have changed since they were read ({old.size:,} to {new.size:,} records)"
    if new.is_slice:
        return _slice(old, new)
    if new.update_id < old.update_id:
        return f"update {old.update_id} was consumed and is no longer valid, the newest is {new.update_id} again"
    grown = f"{old.size} to {new.size} bytes"
    return f"update {old.update_id} was consumed, the newest is {new.update_id} ({grown}){_said_of_all(change)}"


def _slice(old: Pin, new: Pin) -> str:
    """Describe the rows of an event table that a run must still read, between the two pins."""
    if new.update_id > old.update_id:
        return f"it was read up to {in_words(old.update_id)}, and there is more up to {in_words(new.update_id)}"
    return f"rows updated after {in_words(new.start)} up to {in_words(new.update_id)} must be read again"


def _said_of_all(change: InputChange) -> str:
    """Describe the growth of the whole source (all its partitions), if it differs from the growth of this change."""
    before, after = _source_sizes(change)
    is_more = (before, after) != (_size(change.old), _size(change.new)) and not address_of(change.partition)
    return f" (all together {before} to {after} bytes)" if is_more else ""
