"""One load: groups of signals become rows of a table, in one transaction with the topic's positions, or not at all.

Manifests and local copies are written before the transaction. A kill before it leaves only these files, which nobody
reads. A kill in the transaction changes nothing in the table. If the answer to COMMIT is lost, the next loader sees by
the positions whether the load was committed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from feed_assets.core.errors import (
    FeedAssetsError,
    InvalidSetting,
    InvalidShape,
    KeyStrayed,
    LoadFailed,
    OffsetsMissing,
    WarehouseUnavailable,
)
from feed_assets.core.message_words import excerpt
from feed_assets.core.sql_text import quoted
from feed_assets.core.topic_unions import TOPIC, UnionPart, partition_name
from feed_assets.core.topics import Conflicts
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.home import say
from feed_assets.warehouse import (
    load_files,
    load_state,
    message_history,
    ordered_merge,
    refused_rows,
    snapshots,
    statements,
    table_changes,
    union_state,
)
from feed_assets.warehouse.conflicts import Refusal, Refusals, change
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.lease import kept
from feed_assets.warehouse.load_files import ChunkGroup, Copy
from feed_assets.warehouse.load_groups import LoadGroup, Signalled
from feed_assets.warehouse.load_state import Position, TopicState
from feed_assets.warehouse.migrations import places
from feed_assets.warehouse.ready import Ready, Shapes, grow, readied
from feed_assets.warehouse.shapes import OFFSET, OPERATION, Shape
from feed_assets.warehouse.variants import fields_of

ShapeOf = Callable[[int | None], Shape | None]
"""A function that returns the shape of a schema's rows, by schema id. It returns None for None (only tombstones)."""


@dataclass(frozen=True)
class LoadContext:
    """The context of loads: warehouse, blackboard, holder of the lease, and days for which deleted keys are kept."""

    engine: Engine
    board: Blackboard
    holder: str
    deleted_days: float
    conflicts: Conflicts = "stop"
    """The choice for rows that the table cannot take."""
    part: UnionPart | None = None
    """The topic that is loaded, if the table has several."""
    has_snapshots: bool = False
    """True if messages of the topic mark snapshots."""

    def __post_init__(self) -> None:
        if self.engine.reads_chunks and not self.board.url.startswith("s3://"):
            raise InvalidSetting(
                f"this warehouse reads chunks directly from {self.board.title}: expected a blackboard on S3. "
                "Set FEED_ASSETS_BLACKBOARD to s3://BUCKET/FOLDER."
            )


def fitting(
    engine: Engine,
    table: str,
    state: TopicState,
    groups: Sequence[LoadGroup],
    shape_of: ShapeOf,
    conflicts: Conflicts = "stop",
) -> int:
    """Return how many of the first groups fit into one transaction.

    Only the first group may change the table: in the changed table, each later group is stored as if it were loaded
    alone. Raise the error of the first group if it cannot be loaded. A later group with an error does not fit.
    """
    first = groups[0]
    state = change(engine, table, state, first.schema_id, shape_of(first.schema_id), conflicts=conflicts).state
    fit = {first.schema_id}
    for count, each in enumerate(groups):
        if each.schema_id in fit:
            continue
        try:
            changed = change(engine, table, state, each.schema_id, shape_of(each.schema_id), conflicts=conflicts)
        except FeedAssetsError:
            return count  # The next load raises it.
        if changed.statements or changed.state.shape != state.shape:
            return count
        state = changed.state
        fit.add(each.schema_id)
    return len(groups)


def load(
    place: LoadContext, topic: str, state: TopicState, groups: Sequence[LoadGroup], shape_of: ShapeOf
) -> TopicState:
    """Load the chunks of groups that fit into one transaction into the table of their topic. Return its new state.

    The caller has the number of groups from `fitting`, which refuses impossible changes before anything is copied.
    Raise WarehouseUnavailable if the stored positions differ from the positions in `state`. Raise WarehouseTaken,
    DiskFull, and errors of the warehouse and the chunks.
    """
    signals = [each for group in groups for each in group.signals]
    positions = _positions(topic, state, signals, place.part)
    topic_id = union_state.with_id(topic, state, place.part, signals[0].signal.topic_id)
    shapes = {each.schema_id: shape_of(each.schema_id) for each in groups}
    planned = _changes(place, topic, state, shapes)
    shapes, refused = dict(planned.shapes), planned.refusals
    shapes |= {None: None} if refused else {}  # For chunks with only tombstones, which are in groups of any schema.
    if place.engine.ddl_commits:
        table_changes.complete(place.engine, topic, place.holder)
    with load_files.room() as folder:
        with kept(place.engine, place.holder):
            copies = _numbered(load_files.fetch(place.board, groups, folder, refused), place.part)
            ready = readied(place.engine, place.board, topic, state=state, shapes=shapes, copies=copies)
        changes = _changes(place, topic, ready.state, ready.shapes)
        after = replace(changes.state, positions=positions, topic_id=topic_id)
        if place.engine.ddl_commits and changes.statements:
            texts = changes.statements
            table_changes.apply(place.engine, topic, place.holder, before=state, after=after, statements=texts)
            changes = changes._replace(statements=())
        try:
            _commit(place, topic, before=state, after=after, ready=ready, changes=changes, signals=signals)
        except LoadFailed:
            if place.conflicts == "stop":
                raise
            # The first attempt is fast, and does not find all rows that it fails for. The second one refuses each.
            careful = replace(place, engine=place.engine.staging_text())
            _commit(careful, topic, before=state, after=after, ready=ready, changes=changes, signals=signals)
    return after


class _Changes(NamedTuple):
    """The statements that change a table for the schemas of a load, the state after them, and refused schemas."""

    statements: tuple[str, ...]
    state: TopicState
    shapes: Shapes
    refusals: Refusals


def _commit(
    place: LoadContext,
    topic: str,
    *,
    before: TopicState,
    after: TopicState,
    ready: Ready,
    changes: _Changes,
    signals: Sequence[Signalled],
) -> None:
    """Change the table, merge the rows and move the positions, in one transaction."""
    engine, lines = place.engine, list[str]()
    with engine.open() as connection:
        grow(engine, connection, topic, holder=place.holder, state=before, longer=ready.state)
        rows = _rows(place, connection, topic, after=after, ready=ready)
        if rows and engine.ddl_commits:
            rows.create_temporary(ready.batches, ready.shapes, changes.refusals)
        connection.execute("BEGIN")
        load_state.renew(connection, engine, place.holder)
        if load_state.read(connection, topic).positions != before.positions:
            raise WarehouseUnavailable(
                f"{topic} was loaded by another process meanwhile. The next attempt continues after that load."
            )
        for each in changes.statements:
            connection.execute(each)
        refused_rows.refuse(connection, engine, topic, ready.refused)
        if rows:
            rows.merge(ready.batches, ready.shapes, changes.refusals)
        if place.has_snapshots:
            lines = snapshots.apply(
                connection, engine, topic, shape=after.shape, loaded=before.positions, signals=signals, part=place.part
            )
        load_state.write(connection, engine, topic, before, after)
        if engine.reads_chunks:
            load_files.check_unchanged(place.board, ready.copies)
        load_state.renew(connection, engine, place.holder)
        connection.execute("COMMIT")
    for each in lines:
        say(each)


def _rows(place: LoadContext, connection: Connection, topic: str, *, after: TopicState, ready: Ready) -> "_Rows | None":
    """Return the steps for the rows of a load, or None if it has no rows."""
    if after.shape is None or not ready.batches:
        return None
    return _Rows(place, connection, topic, union_state.staged(after.shape, place.part))


def _changes(place: LoadContext, table: str, state: TopicState, shapes: Shapes) -> _Changes:
    """Return the table's changes for schemas in order, as one. Raise InvalidShape or NotMigratable."""
    all_statements, changed_shapes = list[str](), dict[int | None, Shape | None]()
    refusals = dict[int | None, Refusal]()
    for schema_id, shape in shapes.items():
        changed = change(place.engine, table, state, schema_id, shape, conflicts=place.conflicts)
        all_statements += changed.statements
        state, changed_shapes[schema_id] = changed.state, changed.shape
        if changed.refusal:
            refusals[schema_id] = changed.refusal
    return _Changes(tuple(all_statements), state, changed_shapes, refusals)


def _numbered(copies: Sequence[Copy], part: UnionPart | None) -> Sequence[Copy]:
    """Return copies with the numbers that their partitions have in the table."""
    return [each._replace(partition=part.partitions[each.partition]) for each in copies] if part else copies


def _positions(
    topic: str, state: TopicState, signals: Sequence[Signalled], part: UnionPart | None
) -> Mapping[int, Position]:
    """Return how far each topic partition is loaded after the chunks of these signals.

    Raise OffsetsMissing if the chunks skip offsets.
    """
    positions = dict(state.positions)
    for signal, signal_offset in signals:
        number = part.partitions[signal.partition] if part else signal.partition
        position = positions.get(number)
        if position is not None and signal.first_offset > position.next_offset:
            raise OffsetsMissing(
                f"{part.topic if part else topic}/{signal.partition} continues at offset {signal.first_offset}: "
                f"expected {position.next_offset}, up to which the table is loaded. Signals were removed. "
                f"To load the others, make the table anew: `feed-assets warehouse reset WAREHOUSE {topic} --apply`."
            )
        if position is None or signal.next_offset > position.next_offset:
            positions[number] = Position(signal.next_offset, signal_offset)
    return positions


def _destinations(table: Shape, shape: Shape | None) -> Mapping[str, str]:
    """Return the names of the table's columns, by the column names in the files.

    Key columns are never renamed, so they have the same names in the files of each schema.
    """
    columns = {each: each for each in (OPERATION, OFFSET, *table.key)}
    if shape is None:
        return columns
    column_by_name = places(table, shape)
    fields = {field: column_by_name[name] for field, name in fields_of(shape).items() if name in column_by_name}
    return {**columns, **fields}


def _refused_destinations(table: Shape, refusal: Refusal) -> Mapping[str, str]:
    """Return the names of the table's columns for the files of a refused schema: only those that a delete needs."""
    order = (table.newest_by,) if refusal.has_order else ()
    return {each: each for each in (OPERATION, OFFSET, *((*table.key, *order) if refusal.has_key else ()))}


def _order(refusal: Refusal | None) -> int:
    """Return the order of staging: refused rows without a key, other refused rows, all others."""
    return 2 if refusal is None else int(refusal.has_key)


class _Rows:
    """The steps that bring the rows of a load through the staging table into their table."""

    def __init__(self, place: LoadContext, connection: Connection, table: str, shape: Shape) -> None:
        self._connection, self._table, self._shape = connection, table, shape
        self._engine, self._deleted_days, self._part = place.engine, place.deleted_days, place.part

    def create_temporary(self, batches: Sequence[ChunkGroup], shapes: Shapes, refusals: Refusals) -> None:
        """Create the temporary tables of a load before its transaction, which the statements would commit."""
        self._run(self._engine.before_load())
        self._run([self._staging(self._columns(batches, shapes, refusals))])
        self._run(statements.temporary(self._engine, self._shape))
        if self._shape.newest_by:
            self._run([ordered_merge.create_winners(self._engine, self._shape)])

    def merge(self, batches: Sequence[ChunkGroup], shapes: Shapes, refusals: Refusals) -> None:
        """Stage the rows, refuse invalid ones, and merge the newest row of each key. Raise InvalidShape, KeyStrayed."""
        self._stage(batches, shapes, refusals)
        self._run(statements.refuse(self._engine, self._table, self._shape))
        if self._shape.is_history:
            self._append()
            return
        if self._shape.newest_by:
            self._run(ordered_merge.newest(self._engine, self._table, self._shape))
        else:
            self._find_newest(batches)
        self._run(statements.merge(self._engine, self._table, self._shape, self._deleted_days))

    def _append(self) -> None:
        """Append the staged rows to a history table."""
        [(first_offset,)] = self._connection.execute(f"SELECT min({OFFSET}) FROM {statements.STAGING}")
        self._run(message_history.append(self._engine, self._table, self._shape, int(first_offset or 0)))

    def _find_newest(self, batches: Sequence[ChunkGroup]) -> None:
        """Find the row of each key with the highest offset, and delete what it replaces. Raise KeyStrayed."""
        if self._engine.stages_text:
            self._run(statements.refuse_strays(self._engine, self._table, self._shape))
        if len({each.partition for each in batches}) > 1:  # Check this before DuckDB deletes the older rows.
            self._check(self._connection.execute(statements.strays_among(self._engine, self._shape)))
        self._run(self._engine.newest(statements.NEWEST, statements.STAGING, self._shape))
        for quoted_table in (self._engine.table(self._table), statements.deleted_of(self._table)):
            self._make_way(quoted_table)

    def _run(self, texts: Iterable[str]) -> None:
        for each in texts:
            self._connection.execute(each)

    def _stage(self, batches: Sequence[ChunkGroup], shapes: Shapes, refusals: Refusals) -> None:
        """Copy the rows of the chunks into a new staging table. Columns that the table lacks are staged as ignored.

        Rows of refused schemas come first, and are recorded at once. Of these only deletes remain in the staging table.
        """
        text, types, columns = self._engine.text, self._types, self._columns(batches, shapes, refusals)
        if not self._engine.ddl_commits:
            self._run([self._staging(columns)])
        for batch in sorted(batches, key=lambda each: _order(refusals.get(each.schema_id))):
            column_by_name, refusal = columns[batch.schema_id], refusals.get(batch.schema_id)
            has_key = refusal is None or refusal.has_key
            names = {TOPIC, *(column_by_name[each] for each in batch.columns)}
            if has_key and (absent := {*self._shape.key} - names):
                raise InvalidShape(
                    f"the chunks of {self._table} have no column {min(absent)}, which is part of its key."
                )
            self._check_fields(batch, None if refusal else shapes[batch.schema_id])
            typed = {column_by_name[each]: types.get(column_by_name[each], text) for each in batch.columns}
            self._connection.copy(statements.STAGING, typed, batch)
            if refusal:
                wrong = f"{OPERATION} <> 'delete'" if refusal.has_key else "true"
                fields = [each for each in batch.columns if each not in (OPERATION, OFFSET)]
                texts = {each: quoted(column_by_name[each]) for each in fields}
                self._run(statements.refuse_rows(self._engine, self._table, wrong, refusal.reason, texts))

    def _check_fields(self, batch: ChunkGroup, shape: Shape | None) -> None:
        """Raise InvalidShape if chunks with values have other columns than their schema: `flatten` was another one."""
        other_columns = {*batch.columns} - {OPERATION, OFFSET, *self._shape.key}
        absent = fields_of(shape).keys() - {TOPIC, *batch.columns} if shape and other_columns else None
        if absent:
            raise InvalidShape(
                f"chunks of {self._table} have no column {min(absent)}: expected one for each field of the schema "
                f"{batch.schema_id}. They were cut with another flatten than the topic now declares. Declare that one, "
                f"load them by `feed-assets warehouse load WAREHOUSE {self._table} --once`, then declare the new one."
            )

    @property
    def _types(self) -> dict[str, str]:
        """Return the types of the columns of the staging table that the table has, too."""
        types = {each.name: self._engine.staged(each.kind) for each in self._shape.columns}
        return types | {OPERATION: self._engine.text, OFFSET: "bigint"}

    def _columns(
        self, batches: Sequence[ChunkGroup], shapes: Shapes, refusals: Refusals
    ) -> dict[int | None, dict[str, str]]:
        """Return the staging column for each column of the files, by schema id."""
        return {
            each.schema_id: self._staged_columns(batches, shapes[each.schema_id], refusals.get(each.schema_id))
            for each in batches
        }

    def _staging(self, columns: Mapping[int | None, Mapping[str, str]]) -> str:
        """Return the statement that creates the staging table."""
        names = {name for each in columns.values() for name in each.values()}
        return statements.stage(self._engine, self._shape, sorted(names - self._types.keys()))

    def _staged_columns(
        self, batches: Sequence[ChunkGroup], shape: Shape | None, refusal: Refusal | None
    ) -> dict[str, str]:
        """Return the staging column for each column of the files, if the rows have a shape."""
        names = sorted({name for each in batches for name in each.columns})
        destinations = _refused_destinations(self._shape, refusal) if refusal else _destinations(self._shape, shape)
        return {name: destinations.get(name, f"column {number} of the files") for number, name in enumerate(names)}

    def _make_way(self, quoted_table: str) -> None:
        """Delete the table's rows that staged rows replace. If the table's row is newer, delete the staged row instead.

        Raise KeyStrayed if a key comes from two partitions.
        """
        if self._engine.counts_passed and not self._passed(quoted_table):
            return
        run, shape, is_told = self._connection.execute, self._shape, self._engine.tells_deleted
        if is_told:
            run("SAVEPOINT there")
        obstacles = run((statements.replace_and_ask if is_told else statements.obstacle)(quoted_table, shape))
        self._check([each for each in obstacles if each[-2] != each[-1]])
        if obstacles and is_told:
            run("ROLLBACK TO there")
        if obstacles:
            run(statements.drop_older(quoted_table, shape))
        if obstacles or not is_told:
            run(statements.replace(quoted_table, shape))

    def _passed(self, quoted_table: str) -> bool:
        """Delete the table's rows that staged rows replace, but skip rows that are newer or from another partition.

        Return whether some rows were skipped. Skipped rows need a check before the load can continue.
        """
        *_, answer = [
            self._connection.execute(each) for each in statements.replace_and_count(quoted_table, self._shape)
        ]
        return bool(answer)

    def _check(self, strays: Sequence[tuple[object, ...]]) -> None:
        for *key, one, other in strays:
            named = zip(self._shape.key, key, strict=True)
            key_text = excerpt(", ".join(f"{name} {value!r}" for name, value in named))
            advice = "Produce a key to one partition."
            if self._part and not {int(str(one)), int(str(other))} <= {*self._part.partitions}:
                advice = (
                    "If each topic has keys of its own, declare topic_in_key; else declare newest_by for the topics."
                )
            if self._part:
                one, other = (partition_name(self._part.topics, int(str(each))) for each in (one, other))
            raise KeyStrayed(
                f"{self._table}: the key {key_text} comes from partitions {one} and {other}: expected one, otherwise "
                f"the newest row is unknown. {advice}"
            )
