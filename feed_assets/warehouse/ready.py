"""Preparation of a load before its transaction: omit rows that the warehouse cannot store, and lengthen text columns.

A kill leaves chunks and manifests that nobody uses, and perhaps text columns that are longer than needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from feed_assets.core.errors import LoadFailed
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load_files, message_history, statements
from feed_assets.warehouse.engines import ColumnGrowth, Connection, Engine, Findings, RefusedRow
from feed_assets.warehouse.lease import kept
from feed_assets.warehouse.load_files import ChunkGroup, Copy
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.migrations import grown
from feed_assets.warehouse.shapes import Shape
from feed_assets.warehouse.variants import fields_of

Shapes = Mapping[int | None, Shape | None]
"""The shapes of a load's rows by schema id, in the order of loading."""


class Ready(NamedTuple):
    """Input of a load: the table's state, the shapes and batches of the rows to load, and the refused rows.

    In `state`, the text columns are long enough for the rows. `shapes` are by schema id. The shape of rows that are
    only tombstones is None. `copies` are all chunks as they were copied.
    """

    state: TopicState
    shapes: Shapes
    batches: Sequence[ChunkGroup]
    refused: Sequence[RefusedRow]
    copies: Sequence[Copy]


def readied(
    engine: Engine, board: Blackboard, topic: str, state: TopicState, shapes: Shapes, copies: Sequence[Copy]
) -> Ready:
    """Find rows that the warehouse cannot store, and write manifests for all other rows of the copies."""
    fitted, storable, refused = dict(shapes), list[Copy](), list[RefusedRow]()
    for schema_id, shape in shapes.items():
        of_schema = [each for each in copies if each.schema_id == schema_id]
        findings = engine.look(of_schema, shape or state.shape)
        state, fitted[schema_id] = _fitted(engine, state, shape, findings)
        storable += _held(board, topic, of_schema, findings)
        refused += chain(*findings.refused.values())
    return Ready(state, fitted, load_files.batches(board, topic, storable), refused, copies)


def grow(
    engine: Engine, connection: Connection, topic: str, *, holder: str, state: TopicState, longer: TopicState
) -> None:
    """Lengthen a table's text columns now, if the warehouse cannot do so in the load's transaction.

    The load stores the new lengths in the state tables later. After a kill in between, a column may be longer than the
    state tables say, which is harmless. So first query whether a column must still be lengthened.
    """
    if state.shape is None or longer.shape is None:
        return
    growths = statements.grow(engine, topic, state.shape, longer.shape)
    if state.shape.is_history:
        growths = message_history.without_view(engine, topic, state.shape, growths)
    for each in growths:
        if connection.execute(each.needed):
            with kept(engine, holder):
                _grow(connection, each)


def _grow(connection: Connection, growth: ColumnGrowth) -> None:
    """Lengthen a column. If the warehouse refuses, replace the column in one transaction, which reads the whole table.

    A kill in it changes nothing. A view on the column stops it, and the table, until the view is dropped.
    """
    try:
        connection.execute(growth.statement)
    except LoadFailed:
        if not growth.otherwise:
            raise
        for statement in ("BEGIN", *growth.otherwise, "COMMIT"):
            connection.execute(statement)


def _fitted(
    engine: Engine, state: TopicState, shape: Shape | None, findings: Findings
) -> tuple[TopicState, Shape | None]:
    fitted = engine.fitted(shape, _lengths(shape, findings)) if shape else None
    if state.shape is None:
        return state, fitted
    other = fitted or engine.fitted(
        state.shape, findings.lengths
    )  # Chunks with only tombstones have no schema, but key columns, whose texts may be longer than in the table.
    return replace(state, shape=grown(state.shape, other)), fitted


def _lengths(shape: Shape, findings: Findings) -> Mapping[str, int]:
    """Return the length of each column's longest text. The files have the names of fields."""
    return {name: findings.lengths.get(field, 0) for field, name in fields_of(shape).items()}


def _held(board: Blackboard, topic: str, copies: Sequence[Copy], findings: Findings) -> list[Copy]:
    """Return the chunks without the rows that the warehouse cannot store."""
    offsets = {each: {row.offset for row in rows} for each, rows in findings.refused.items()}
    return [load_files.without(board, topic, each, offsets[each]) if each in offsets else each for each in copies]
