"""The table of a dataset: it has the rows of each partition's newest valid update, according to the ledger's log.

A mark is the position in the log up to which the table is loaded. For each partition with changes after the mark, the
newest update is compared with the loaded one. So an update is never loaded twice, and older updates are skipped. A mark
of another ledger counts as the log's beginning.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa

from feed_assets.core.errors import InvalidSetting, NoValidUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.home import say
from feed_assets.ledger import compacted_partitions, log, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.updates import UpdateRow
from feed_assets.warehouse import dataset_state, load_state
from feed_assets.warehouse.conflicts import TableChange
from feed_assets.warehouse.dataset_state import Mark
from feed_assets.warehouse.load import LoadContext
from feed_assets.warehouse.load_progress import LoadProgress
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.target import Target

CHANGES = 100
"""The most changes that are read and loaded at a time. Then other tables get their turn."""

AGAIN_SECONDS = 30.0
"""Seconds after which an update is tried again if it is valid in the ledger, but not on the blackboard."""

MARK_AGE = timedelta(hours=1)
"""The age after which the mark moves even without a change of the dataset.

Otherwise the change at the mark could be pruned from the log, and the mark would become invalid.
"""


@dataclass(frozen=True)
class DatasetUpdates:
    """A dataset that is loaded into a table, with the ledger and the blackboard of its updates."""

    feed: Feed
    ledger: Ledger
    board: Blackboard


class _DueUpdate(NamedTuple):
    """A partition to load into a table: the update that the table has now (`held`), and the update to load (`row`)."""

    partition: Partition
    held: str | None
    row: UpdateRow | None


class _ChangePage(NamedTuple):
    """Partitions to load because of some log changes, and the place in the log after these changes (`end`).

    `is_new` is True if the log had changes of the dataset, and `is_last` if it has no more after them.
    """

    due_updates: Sequence[_DueUpdate]
    end: Mark
    is_new: bool
    is_last: bool


class DatasetTable:
    """The warehouse table that a dataset is loaded into.

    Loading continues from the stored state and the mark, which is the place in the log up to which updates were loaded.
    Raises InvalidSetting for a warehouse that can only read chunks.
    """

    def __init__(self, target: Target, holder: str, of: DatasetUpdates, state: TopicState, mark: Mark) -> None:
        if target.engine.reads_chunks or target.engine.ddl_commits:
            raise InvalidSetting(
                f"{of.feed} is a dataset, but the warehouse {target.name} reads only chunks of topics: expected "
                "PostgreSQL or DuckDB. Remove its warehouse_table, or name the topics to load."
            )
        self._target, self._of, self._state, self._kept = target, of, state, mark
        self._mark = mark if state.shape else Mark()  # Without a shape nothing is loaded, whatever the mark says.
        self._place = LoadContext(target.engine, of.board, holder, target.warehouse.deleted_days)
        self._missing: dict[Partition, float] = {}
        self.name = str(of.feed)
        self.loads, self.progress = 0, LoadProgress()

    @property
    def waiting(self) -> int:
        """Return 0. Only the tables of topics collect signals before a load; an update is loaded once it is found."""
        return 0

    def look(self, now: float) -> bool:
        """Load some new updates into the table. Return True if there are more to load now."""
        return not self._follow(now)

    def load_all(self) -> None:
        """Load all new updates of the dataset into the table."""
        while not self._follow(0):
            pass

    def plan(self) -> Iterator[TableChange]:
        """Yield the table's change for each new update that needs one. Copy the update's files to read its schema."""
        from feed_assets.warehouse.replace import planned

        is_done = False
        while not is_done:
            page = self._page(0)
            for update in filter(None, map(self._update, page.due_updates)):
                table_change = planned(self._place, self.name, self._state, update)
                self._state = table_change.state
                if table_change.statements:
                    yield table_change
            self._mark, is_done = page.end, page.is_last

    def _follow(self, now: float) -> bool:
        """Load the updates of the partitions in the next log changes. Return True if the log has no more changes."""
        page = self._page(now)
        for due_update in page.due_updates:
            self._load(due_update, now)
        if not self._missing and (page.is_new or _is_aged(self._kept, page.end)):
            self._keep(page.end)  # Not if an update is missing: a later session must read its change again.
        self._mark = page.end
        return page.is_last

    def _keep(self, mark: Mark) -> None:
        """Store the mark: the place in the log from which a later session reads.

        Raise WarehouseTaken if this loader has lost its lease: another loader may have stored a later mark.
        """
        engine = self._target.engine
        with engine.open() as connection:
            connection.execute("BEGIN")
            load_state.renew(connection, engine, self._place.holder)
            dataset_state.move(connection, self.name, mark)
            connection.execute("COMMIT")
        self._kept = mark

    def _page(self, now: float) -> _ChangePage:
        """Return the updates to load: those of the next log changes, and missing ones whose next attempt is due."""
        with self._of.ledger.read() as connection:
            end, changed, is_last = self._changed(connection)
            due = sorted({*changed, *(each for each, again in self._missing.items() if again <= now)})
            newest = updates.newest(connection, due)
            replaced = {each: compacted_partitions.replaced_by(connection, row) for each, row in newest.items()}
        held = self._held(due)
        for each in due:
            self._missing.pop(each, None)
        due_updates = [_DueUpdate(each, held.get(each.key), newest.get(each)) for each in due]
        due_updates = [
            each
            for each in due_updates
            if each.held != (each.row.id if each.row else None) and each.held not in replaced.get(each.partition, ())
        ]
        return _ChangePage(due_updates, end, bool(changed), is_last)

    def _held(self, due: Collection[Partition]) -> Mapping[str, str]:
        if not due or self._target.engine.absence():
            return {}
        with self._target.engine.open() as connection:
            is_there = dataset_state.exists(connection, self._target.engine)
            return dataset_state.held(connection, self.name, [each.key for each in due]) if is_there else {}

    def _changed(self, connection: sa.Connection) -> tuple[Mark, Collection[Partition], bool]:
        """Read some log changes after the mark, which is the place in the log up to which updates were loaded.

        Return the mark after these changes, their partitions, and whether there are no more changes.
        """
        if _mark_at(connection, self._mark.sequence) != self._mark:
            self._mark = Mark()
        upto = log.last(connection)
        changes = log.newest(
            connection, log.UPDATE, self._mark.sequence, upto=upto, limit=CHANGES, feeds=[self._of.feed]
        )
        is_complete = len(changes) < CHANGES
        end = upto if is_complete else changes[-1].sequence
        return _mark_at(connection, end), dict.fromkeys(each.partition for each in changes), is_complete

    def _load(self, due_update: _DueUpdate, now: float) -> None:
        from feed_assets.warehouse.replace import Exchange, replace

        try:
            update, row = self._update(due_update), due_update.row
            exchange = Exchange(due_update.partition.key, due_update.held, update, row.data_version if row else None)
            self._state = replace(self._place, self.name, self._state, exchange)
            self.loads += 1
        except (NoValidUpdate, UpdateChanged) as error:
            say(f"warehouse {self._target.name}: {error} The old rows stay until the ledger has recorded this.")
            self._missing[due_update.partition] = now + AGAIN_SECONDS

    def _update(self, due_update: _DueUpdate) -> Update | None:
        """Return the newest update in the ledger with its present files. Return None if no update is valid.

        Raise NoValidUpdate if the update is not valid on the blackboard.
        """
        return read.named(self._of.board, due_update.partition, due_update.row.id) if due_update.row else None


def _mark_at(connection: sa.Connection, sequence: int) -> Mark:
    """Return the mark (number and time) of a change in the ledger's log."""
    at = log.moment(connection, sequence)
    return Mark(sequence, at.isoformat() if at else None)


def _is_aged(mark: Mark, end: Mark) -> bool:
    """Return whether a dataset's mark is MARK_AGE or more behind `end`, so that it must move even without a load."""
    if mark.at is None or end.at is None:
        return mark.at != end.at
    return datetime.fromisoformat(end.at) - datetime.fromisoformat(mark.at) >= MARK_AGE
