"""One load: a run of signals becomes rows of a table, in one transaction with the positions, or nothing at all.

Before it the manifest and the local copies are there; a kill leaves these, which nobody reads. Within it a kill leaves
what was committed. A COMMIT whose answer was lost is no third case: the next loader reads the positions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from feed_assets.core.errors import InvalidSetting, InvalidShape, KeyStrayed, OffsetsMissing, WarehouseUnavailable
from feed_assets.core.sql_text import quoted
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load_files, load_state, statements
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.lease import kept
from feed_assets.warehouse.load_files import ChunkGroup
from feed_assets.warehouse.load_groups import LoadGroup, Signalled
from feed_assets.warehouse.load_state import Position, TopicState
from feed_assets.warehouse.migrations import loosened, migrate, places
from feed_assets.warehouse.ready import grow, readied
from feed_assets.warehouse.shapes import OFFSET, OPERATION, Shape


@dataclass(frozen=True)
class LoadContext:
    """Place of loads: the warehouse, the blackboard, the lease's holder, and the days that deleted keys are kept."""

    engine: Engine
    board: Blackboard
    holder: str
    deleted_days: float

    def __post_init__(self) -> None:
        if self.engine.reads_chunks and not self.board.url.startswith("s3://"):
            raise InvalidSetting(
                f"this warehouse reads chunks where they lie, on {self.board.title}: expected a blackboard on S3. "
                "Set FEED_ASSETS_BLACKBOARD to s3://BUCKET/FOLDER."
            )


class TableChange(NamedTuple):
    """A change of a table before rows of a schema are merged: statements, and the known state after them."""

    statements: tuple[str, ...]
    known: TopicState


def change(engine: Engine, table: str, known: TopicState, schema_id: int | None, shape: Shape | None) -> TableChange:
    """Return the change for rows of a schema: make the table, migrate it to a newer schema, or let it hold these, too.

    Raise InvalidShape and NotMigratable.
    """
    if schema_id is None or shape is None:
        return TableChange((), known)
    if known.shape is None or known.schema_id is None:
        engine.check(table, shape)
        return TableChange(
            tuple(statements.create(engine, table, shape)), replace(known, schema_id=schema_id, shape=shape)
        )
    is_newer = schema_id > known.schema_id
    steps, merged = (migrate if is_newer else loosened)(known.shape, shape)
    places(merged, shape)
    engine.check(table, merged)
    altered = [each for step in steps for each in statements.alter(engine, table, step, merged)]
    return TableChange(tuple(altered), replace(known, schema_id=max(schema_id, known.schema_id), shape=merged))


def load(place: LoadContext, topic: str, known: TopicState, run: LoadGroup, shape: Shape | None) -> TopicState:
    """Load a run of a schema's shape into the table of its topic. Return the table's known state then.

    Raise WarehouseUnavailable if the table is not in its known state, WarehouseTaken, DiskFull, and errors of the
    warehouse and the chunks.
    """
    positions, topic_id = _positions(topic, known, run.signals), run.signals[0].signal.topic_id
    change(place.engine, topic, known, run.schema_id, shape)  # A refusal is raised before anything is copied.
    with load_files.room() as folder:
        with kept(place.engine, place.holder):
            copies = load_files.fetch(place.board, [each.signal for each in run.signals], folder)
            ready = readied(place.engine, place.board, topic, known, shape, copies)
        wanted = change(place.engine, topic, ready.known, run.schema_id, ready.shape)
        after = replace(wanted.known, positions=positions, topic_id=topic_id)
        with place.engine.open() as connection:
            grow(place.engine, connection, topic, known, ready.known)
            connection.execute("BEGIN")
            load_state.renew(connection, place.engine, place.holder)
            if load_state.read(connection, topic).positions != known.positions:
                raise WarehouseUnavailable(f"{topic} was loaded by another process meanwhile. It is read where it is.")
            for each in wanted.statements:
                connection.execute(each)
            load_state.refuse(connection, place.engine, topic, ready.refused)
            if after.shape is not None and ready.batches:
                _Rows(place, connection, topic, after.shape).merge(ready.batches, _destinations(after.shape, shape))
            load_state.write(connection, place.engine, topic, known, after)
            if place.engine.reads_chunks:
                load_files.check_unchanged(place.board, copies)
            load_state.renew(connection, place.engine, place.holder)
            connection.execute("COMMIT")
    return after


def _positions(topic: str, known: TopicState, signals: Sequence[Signalled]) -> Mapping[int, Position]:
    """Return the positions of partitions behind these signals. Raise OffsetsMissing if they leave offsets out."""
    found = dict(known.positions)
    for signal, signal_offset in signals:
        position = found.get(signal.partition)
        if position is not None and signal.first_offset > position.next_offset:
            raise OffsetsMissing(
                f"{topic}/{signal.partition} goes on at offset {signal.first_offset}: expected {position.next_offset}, "
                "up to where its table has it. Signals were removed. To have what there is, make the table anew: "
                f"`feed-assets warehouse reset WAREHOUSE {topic} --apply`."
            )
        if position is None or signal.next_offset > position.next_offset:
            found[signal.partition] = Position(signal.next_offset, signal_offset)
    return found


def _destinations(table: Shape, shape: Shape | None) -> Mapping[str, str]:
    """Return the table's column for each column of files; the key's have the same name in all, also for tombstones."""
    ours = {each: each for each in (OPERATION, OFFSET, *table.key)}
    return {**ours, **(places(table, shape) if shape else {})}


class _Rows:
    """The rows of a load, on their way through staging into a table."""

    def __init__(self, place: LoadContext, connection: Connection, table: str, shape: Shape) -> None:
        self._connection, self._table, self._shape = connection, table, shape
        self._engine, self._deleted_days = place.engine, place.deleted_days

    def merge(self, batches: Sequence[ChunkGroup], destinations: Mapping[str, str]) -> None:
        """Stage, refuse, keep the newest, and merge them. Raise InvalidShape and KeyStrayed."""
        self._stage(batches, destinations)
        self._run(statements.refuse(self._engine, self._table, self._shape))
        if len({each.partition for each in batches}) > 1:  # Before DuckDB deletes the others in place.
            self._check(self._connection.execute(statements.strays_among(self._shape)))
        self._run(self._engine.newest(statements.NEWEST, statements.STAGING, self._shape))
        for there in (quoted(self._table), statements.deleted_of(self._table)):
            self._make_way(there)
        self._run(statements.merge(self._engine, self._table, self._shape, self._deleted_days))

    def _run(self, texts: Iterable[str]) -> None:
        for each in texts:
            self._connection.execute(each)

    def _stage(self, batches: Sequence[ChunkGroup], destinations: Mapping[str, str]) -> None:
        text = self._engine.text
        types = {each.name: self._engine.staged(each.kind) for each in self._shape.columns}
        types |= {OPERATION: text, OFFSET: "bigint"}
        names = sorted({name for each in batches for name in each.columns})
        found = {name: destinations.get(name, f"column {number} of the files") for number, name in enumerate(names)}
        self._run([statements.stage(self._engine, self._shape, sorted({*found.values()} - types.keys()))])
        for batch in batches:
            if absent := {*self._shape.key} - {found[each] for each in batch.columns}:
                raise InvalidShape(f"the chunks of {self._table} have no column {min(absent)}, which is of its key.")
            typed = {found[each]: types.get(found[each], text) for each in batch.columns}
            self._connection.copy(statements.STAGING, typed, batch)

    def _make_way(self, there: str) -> None:
        """Delete the rows that newer ones replace. Check also whether one is newer, which is rare."""
        if self._engine.counts_passed and not self._passed(there):
            return
        run, shape, is_told = self._connection.execute, self._shape, self._engine.tells_deleted
        if is_told:
            run("SAVEPOINT there")
        found = run((statements.replace_and_ask if is_told else statements.obstacle)(there, shape))
        self._check([each for each in found if each[-2] != each[-1]])
        if found and is_told:
            run("ROLLBACK TO there")
        if found:
            run(statements.drop_older(there, shape))
        if found or not is_told:
            run(statements.replace(there, shape))

    def _passed(self, there: str) -> bool:
        """Delete the rows that can be replaced without a check. Return whether there are others."""
        *_, answer = [self._connection.execute(each) for each in statements.replace_and_count(there, self._shape)]
        return bool(answer)

    def _check(self, strays: Sequence[tuple[object, ...]]) -> None:
        for *key, one, other in strays:
            said = ", ".join(f"{name} {value!r}" for name, value in zip(self._shape.key, key, strict=True))
            raise KeyStrayed(
                f"{self._table}: the key {said} comes from partitions {one} and {other}: expected one, or nobody knows "
                "which row is the newest. Produce a key to one partition; a topic that got more of them is to be "
                "made anew."
            )
