"""Search for bit rot: read some of our newest updates completely each day, because stored bits may change unnoticed."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from feed_assets.core.errors import InvalidName, NoValidUpdate, UnreadableUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, File, Partition, Update, parse_update_id
from feed_assets.core.isolation import failing_alone
from feed_assets.feeds import read
from feed_assets.ledger import updates
from feed_assets.ledger.database import get_cursor, put_cursors
from feed_assets.reading.pages import OutOfTime
from feed_assets.runs.deep_verification import look_deep, published_of
from feed_assets.runs.services import Services
from feed_assets.runs.verify import place_of, turn

PAUSE = timedelta(days=1)
"""Time between two searches."""

UPDATES = 20
"""Number of updates that one search reads. If there are 7,000 updates, each is read about once a year."""

BYTES = 256 << 20
"""Number of bytes after which a search reads no further update.

If one update is larger, a search reads only some of its files, beginning with another file each day.
"""

MOST_BEGUN = 2
"""Number of searches that may be killed while they read one update. The next search leaves it out, and reports it."""

OLD = timedelta(days=1)
"""Minimum age of an update that is read. Younger updates were just read by their own run."""


@dataclass
class Rotten:
    """Result of one search: the damage by update (`feed|key/id`), and by feed the error if the feed was unreadable."""

    damaged: dict[str, str] = field(default_factory=dict[str, str])
    problems: dict[str, str] = field(default_factory=dict[str, str])
    unfinished: list[str] = field(default_factory=list[str])
    """Updates that were not read completely because the time was over."""


def look_in_turn(
    services: Services,
    feeds: Collection[Feed],
    damaged: Mapping[str, str],
    now: datetime,
    out_of_time: Callable[[], bool],
) -> Rotten | None:
    """Read updates to find damage: first the updates known as damaged, then those of the next partitions in rotation.

    Return None if the last search was less than a day ago. The position in the rotation is recorded at the end. So a
    search that was killed is repeated, without an update that has ended it twice, for example by its memory.
    """
    ordered = sorted(feeds, key=str)
    if not ordered:
        return None
    done, cursor = f"looked for bit rot from {ordered[0]}", f"looked for bit rot at all from {ordered[0]}"
    with services.ledger.read() as connection:
        last = get_cursor(connection, done)
        if last and now < datetime.fromisoformat(last) + PAUSE:
            return None
        partitions, ends = turn(connection, ordered, get_cursor(connection, cursor) or "", UPDATES)
        begun = json.loads(get_cursor(connection, f"{done}, begun") or "{}")
    look = _ReadingRound(services, now, out_of_time, f"{done}, begun", begun)
    look.again(damaged)
    count = look.through(partitions)
    if count < len(partitions):
        ends = place_of(partitions[count - 1])
    with services.ledger.write() as connection:
        put_cursors(connection, {done: now.isoformat(), cursor: ends, f"{done}, begun": ""})
    return look.findings


@dataclass
class _ReadingRound:
    services: Services
    now: datetime
    out_of_time: Callable[[], bool]
    cursor: str
    begun: dict[str, int]
    """Number of searches that began to read an update and did not end, by the update's name."""
    findings: Rotten = field(default_factory=Rotten)
    bytes_left: int = BYTES

    def again(self, damaged: Mapping[str, str]) -> None:
        """Read again the updates in which damage was found.

        An update that is no longer the newest is dropped from the findings.
        """
        for name, why in damaged.items():
            feed, _, path = name.partition("|")
            key, _, update_id = path.rpartition("/")
            try:
                row = self._newest(Partition(Feed.parse(feed), key))
            except InvalidName:  # Another version of feed_assets has written this name.
                continue
            if row and row.id == update_id:
                self.findings.damaged[name] = why  # `_read` removes this finding if the update is intact.
                self._read(row)

    def through(self, partitions: Sequence[Partition]) -> int:
        """Read at least one partition, and more until the time or the bytes are used up. Return how many were read."""
        for count, partition in enumerate(partitions):
            if count and (self.out_of_time() or self.bytes_left <= 0):
                return count
            row = self._newest(partition)
            if row and self._is_old(row) and _name(row) not in self.findings.damaged:
                self._read(row)
        return len(partitions)

    def _newest(self, partition: Partition) -> updates.UpdateRow | None:
        with self.services.ledger.read() as connection:
            return updates.newest(connection, [partition]).get(partition)

    def _is_old(self, row: updates.UpdateRow) -> bool:
        written_at = parse_update_id(row.id)
        return written_at is not None and written_at <= self.now - OLD

    def _read(self, row: updates.UpdateRow) -> None:
        board, name = self.services.board_of(row.partition.feed), _name(row)
        with failing_alone(self.findings.problems, str(row.partition.feed)):
            self._begin(name)
            try:
                update = read.named(board, row.partition, row.id)
                files = self._some_of(update) if update.size > BYTES else None
                self.bytes_left -= sum(file.size for file in files or update.files)
                published = published_of(self.services.ledger, row.partition, row.id)
                deep = look_deep(board, update, published, files=files, out_of_time=self.out_of_time)
            except OutOfTime:
                self.findings.unfinished.append(name)
            except (NoValidUpdate, UpdateChanged):  # `verify` reports missing updates
                self.findings.damaged.pop(name, None)
            else:
                if deep.damage:
                    self.findings.damaged[name] = deep.damage
                elif files is None:  # If only some files were read, the damage may be in the other files.
                    self.findings.damaged.pop(name, None)
            self._put_begun({each: count for each, count in self.begun.items() if each != name})

    def _begin(self, name: str) -> None:
        """Record that an update is about to be read, because its reading may end this process.

        Raise UnreadableUpdate if this has happened too often.
        """
        if self.begun.get(name, 0) >= MOST_BEGUN:
            raise UnreadableUpdate(
                f"{name} was not read: {MOST_BEGUN} searches for bit rot ended while they read it, perhaps by its "
                "memory. Look at it by `feed-assets feed verify --deep`."
            )
        self._put_begun({**self.begun, name: self.begun.get(name, 0) + 1})

    def _put_begun(self, begun: dict[str, int]) -> None:
        self.begun = begun
        with self.services.ledger.write() as connection:
            put_cursors(connection, {self.cursor: json.dumps(begun)})

    def _some_of(self, update: Update) -> tuple[File, ...]:
        """Return some files of a large update. The first file differs from day to day."""
        first = self.now.toordinal() % len(update.files)
        size, chosen = 0, list[File]()
        for file in (*update.files[first:], *update.files[:first]):
            if chosen and size + file.size > BYTES:
                break
            size += file.size
            chosen.append(file)
        return tuple(chosen)


def _name(row: updates.UpdateRow) -> str:
    return f"{row.partition.feed}|{row.partition.key}/{row.id}"
