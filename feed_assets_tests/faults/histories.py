"""Records of what processes did to one partition and saw of it, and a judge that checks whether they fit together.

Moments are seconds of CLOCK_MONOTONIC, which is the same for all processes of the machine.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

Found = TypeVar("Found")


@dataclass(frozen=True)
class Published:
    """An update became valid at some moment of the call."""

    began: float
    ended: float
    id: str
    names: frozenset[str]
    writer: str


@dataclass(frozen=True)
class Removed:
    """An update was invalidated or pruned at some moment of the call."""

    began: float
    ended: float
    id: str


@dataclass(frozen=True)
class Read:
    """A reader got an update (or none) among those up to `as_of`; `writer` is what one of its parts said."""

    began: float
    ended: float
    reader: str
    id: str | None
    names: frozenset[str] = frozenset()
    as_of: str = "99991231.235959"
    writer: str | None = None


Record = Published | Removed | Read


def timed(call: Callable[[], Found]) -> tuple[float, float, Found]:
    """Return when a call began and ended, and its result."""
    began = time.monotonic()
    found = call()
    return began, time.monotonic(), found


@dataclass
class History:
    """The records of all processes of one round, by what they are."""

    published: dict[str, Published] = field(default_factory=dict)
    removed: dict[str, Removed] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    shared_ids: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[Record]) -> "History":
        """Sort the records by kind.

        Of several removals of one update, keep the earliest beginning and the earliest end.
        """
        history, times = cls(), Counter[str]()
        for record in records:
            if isinstance(record, Published):
                times[record.id] += 1
                history.published[record.id] = record
            elif isinstance(record, Removed):
                known = history.removed.get(record.id, record)
                began, ended = min(known.began, record.began), min(known.ended, record.ended)
                history.removed[record.id] = Removed(began, ended, record.id)
            else:
                history.reads.append(record)
        history.shared_ids = [name for name, count in times.items() if count > 1]
        return history

    def wrongs(self) -> list[str]:
        """Return descriptions of what cannot be true. Return an empty list if everything can."""
        wrongs = [f"{name} was given to two writers" for name in self.shared_ids]
        names = sorted(self.published)
        for read in self.reads:
            wrongs += [f"{read.reader}: {wrong}" for wrong in self._wrong(read, names)]
        return wrongs

    def _wrong(self, read: Read, names: list[str]) -> Iterable[str]:
        if read.id is not None:
            update = self.published.get(read.id)
            yield from self._wrong_update(read, update) if update else [f"read {read.id}, which nobody published"]
        newer = (name for name in reversed(names) if (read.id or "") < name <= read.as_of)
        if missed := next((name for name in newer if self._valid_throughout(name, read)), None):
            yield f"read {read.id} while {missed} was valid all the time"

    def _wrong_update(self, read: Read, update: Published) -> Iterable[str]:
        removed = self.removed.get(update.id)
        if update.began > read.ended or (removed and removed.ended < read.began) or update.id > read.as_of:
            yield f"read {read.id}, which was valid at no moment of the call"
        if read.names != update.names:
            yield f"read {sorted(read.names)} of {read.id}: expected {sorted(update.names)}"
        if read.writer not in (None, update.writer):
            yield f"read {read.writer}'s part in {read.id} of {update.writer}"

    def _valid_throughout(self, name: str, read: Read) -> bool:
        removed = self.removed.get(name)
        return self.published[name].ended < read.began and (removed is None or removed.began > read.ended)

    def steps_back(self) -> list[tuple[Read, Read]]:
        """Return pairs of reads in which a reader got an older update after a newer one that nobody had removed."""
        found: list[tuple[Read, Read]] = []
        newest: dict[str, Read] = {}
        for read in sorted(self.reads, key=lambda read: read.began):
            if read.as_of != Read.as_of:
                continue
            before = newest.get(read.reader)
            if before and (read.id or "") < (before.id or "") and self._stood(str(before.id), read):
                found.append((before, read))
            newest[read.reader] = read
        return found

    def _stood(self, name: str, read: Read) -> bool:
        removed = self.removed.get(name)
        return removed is None or removed.began > read.ended
