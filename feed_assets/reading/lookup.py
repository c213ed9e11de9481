"""Lookup of valid data: the newest update of each partition, or the set of its batches."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Feed, Partition, Skipped, Update, Version, is_update_id
from feed_assets.core.limits import check_partition
from feed_assets.core.message_words import shortened
from feed_assets.feeds import batch_set, read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.reading.key_ranges import keys_between, names_between

_AT_A_TIME = 8
_SHOWN = 3


@dataclass(frozen=True)
class LookupResult:
    """The result for a partition: its updates, and the skipped batches. `error` is set if there is no valid update."""

    partition: Partition
    updates: tuple[Update, ...] = ()
    left_out: tuple[Skipped, ...] = ()
    error: NoValidUpdate | None = None

    @property
    def all_left_out(self) -> tuple[Skipped, ...]:
        """Return the left-out batches, and the partition itself if it was left out. Each has its key and the reason."""
        return (*self.left_out, *([Skipped(self.partition.key, str(self.error))] if self.error else []))


@dataclass(frozen=True)
class Looker:
    """A lookup of partitions as of a time (timezone-aware). `batches` is True for an appendable feed."""

    board: Blackboard
    as_of: datetime | None
    batches: bool

    def one(self, partition: Partition) -> LookupResult:
        """Look up a partition. If there is no valid update, the result has the error. Raise BlackboardError."""
        try:
            return self._set(partition) if self.batches else self._newest(partition)
        except NoValidUpdate as error:
            return LookupResult(partition, error=error)

    def each(self, partitions: Iterable[Partition]) -> list[LookupResult]:
        """Look up partitions in parallel. Return the results in order."""
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return [*pool.map(self.one, partitions)]

    def between(self, feed: Feed, first: str, to: str, grain: str | None) -> list[LookupResult]:
        """Look up the partitions from `first` up to, not including, `to`.

        A partition without a folder on the blackboard costs no request. Raise InvalidName for an invalid range.
        """
        names = {*names_between(self.board, str(feed), first, to)}
        partitions = [check_partition(Partition(feed, key)) for key in keys_between(first, to, grain, names)]
        present = {each for each in partitions if each.key.partition("/")[0] in names}
        absent = [LookupResult(each, error=_nothing(each)) for each in partitions if each not in present]
        in_grain = {check_partition(Partition(feed, key)) for key in keys_between(first, to, grain, ())}
        looked = [each for each in self.each(sorted(present)) if each.partition in in_grain or not self._is_empty(each)]
        return sorted([*looked, *absent], key=lambda each: each.partition)

    def _is_empty(self, looked: LookupResult) -> bool:
        """Return whether a partition has no update at all. A folder may still exist after its objects were removed."""
        return bool(looked.error) and not self.board.children(looked.partition.path)

    def refusal(self, looked: Sequence[LookupResult]) -> NoValidUpdate:
        """Return the error for partitions without a valid update. The error has the reasons for the first few."""
        absent = [(each.partition, each.error) for each in looked if each.error]
        partition, error = absent[0]
        if len(looked) == 1:
            return type(error)(f"{error}{self._hint(partition) or self._near(partition)}")
        reasons = " ".join(str(error) for _, error in absent[:_SHOWN])
        suffix = f" And {len(absent) - _SHOWN} more." if len(absent) > _SHOWN else ""
        return NoValidUpdate(
            f"{partition.feed}: {len(absent)} of {len(looked)} partitions have no valid update. {reasons}{suffix}"
            f"{self._hint(partition)} Wait for them, or pass partial=True to read the other partitions."
        )

    def _hint(self, partition: Partition) -> str:
        """Return a hint for a partition without updates: its other content, and how to read this content."""
        names = self.board.children(partition.path)
        below = [name for name in names if not is_update_id(name)]
        if self.batches:
            return " It holds updates, and no batches: leave out batches=True." if len(below) < len(names) else ""
        if not below:
            return ""
        if versions := _versions(partition.path, below):
            return versions
        return (
            f" It holds {shortened(below, _SHOWN)}. If the feed is appendable, these are batches: pass batches=True. "
            f"Otherwise read a partition below it, such as {'/'.join(filter(None, (partition.key, below[0])))!r}."
        )

    def _near(self, partition: Partition) -> str:
        """Return what exists instead of a missing partition: keys of the feed, or feeds with similar names."""
        place = str(partition.feed)
        if self.board.children(partition.path):
            return ""
        if keys := [name for name in self.board.children(place) if not is_update_id(name)]:
            if versions := _versions(place, keys):
                return versions
            like = get_close_matches(partition.key, keys, _SHOWN) or [keys[0], keys[-1]]
            return f" The feed has {len(keys)} keys, such as {shortened([*dict.fromkeys(like)], _SHOWN)}."
        while "/" in place:
            above, _, name = place.rpartition("/")
            if names := self.board.children(above):
                like = get_close_matches(name, names, 1)
                return f" Is {above}/{like[0]} meant?" if like else f" {above}/ has {shortened([*names], _SHOWN)}."
            place = above
        return ""

    def _newest(self, partition: Partition) -> LookupResult:
        reading = read.latest(self.board, partition, self.as_of)
        if reading.skipped and not reading.update and not any(is_update_id(each.id) for each in reading.skipped):
            raise NoValidUpdate(f"{partition} has no update of its own.")
        return LookupResult(partition, (read.require(reading, self.as_of),))

    def _set(self, partition: Partition) -> LookupResult:
        set_reading = batch_set.latest(self.board, partition, self.as_of)
        left_out = (Skipped(f"{partition.key}/{each.id}".lstrip("/"), each.reason) for each in set_reading.left_out)
        return LookupResult(partition, batch_set.require(set_reading, self.as_of), tuple(left_out))


def _versions(place: str, names: Sequence[str]) -> str:
    """Return a hint with the versions of a feed that was named without a version. Return '' if there are none."""
    versions = [name for name in names if Version.parse(name)]
    return f" It has {shortened(versions, _SHOWN)}: say which, as in '{place}/{versions[-1]}'." if versions else ""


def _nothing(partition: Partition) -> NoValidUpdate:
    return NoValidUpdate(f"{partition} has no update: there is nothing at {partition.path}/.")
