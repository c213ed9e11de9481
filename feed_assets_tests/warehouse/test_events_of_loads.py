"""Loads of a warehouse as events: page by page, with columns, and none without loads."""

from dataclasses import replace

import pytest

from feed_assets.core.events import COLUMNS
from feed_assets.sources import warehouse_events
from feed_assets.sources.warehouse_events import TableLoads
from feed_assets.warehouse import dataset_state, load_state, union_topics
from feed_assets.warehouse.load_state import Position, TopicState
from feed_assets.warehouse.shapes import TEXT, Column, Kind, Shape
from feed_assets_tests.support.warehouse_connection import opened

pytestmark = pytest.mark.parametrize("url", ["duckdb"], indirect=True)

SHAPE = Shape(
    columns=(
        Column(name="id", kind=Kind(name="bigint"), is_nullable=False, comment="whose it is"),
        Column(name="text", kind=TEXT),
    ),
    key=("id",),
)


@pytest.fixture
def loads(target, monkeypatch) -> TableLoads:
    monkeypatch.setattr(warehouse_events, "_ends", lambda _: {})
    return TableLoads("main", target.engine)


def test_events_of_loads_begin_without_a_position(loads):
    assert loads.read(None, 10, 0) == warehouse_events.EventBatch((), (), None, True)


def test_topics_and_datasets_come_page_by_page(loads):
    known = TopicState(7, SHAPE, {number: Position(number + 1, 0) for number in range(3)})
    with opened(loads.engine) as connection:
        dataset_state.prepare(connection, loads.engine)
        load_state.write(connection, loads.engine, "clicks", TopicState(), known)
        for key in "ab":
            dataset_state.keep(connection, loads.engine, "ads/ctr/v1.0", key, "20260101.000001", None, 1)
    after, pages, complete = None, [], []
    for _ in range(4):
        batch = loads.read(after, 2, 0)
        pages.append([each.partition_key for each in batch.events])
        complete.append(batch.is_complete)
        before, after = after, batch.position
    assert pages == [["0", "1"], ["2", "a"], ["b"], []]
    assert complete == [False, False, True, True]
    assert before == after


def test_events_of_loads_have_the_loaded_columns(loads):
    with opened(loads.engine) as connection:
        load_state.write(connection, loads.engine, "clicks", TopicState(), TopicState(7, SHAPE, {0: Position(1, 0)}))
    (event,) = loads.read(None, 10, 0).events
    assert event.context[COLUMNS] == [
        {"name": "id", "type": "bigint", "description": "whose it is", "nullable": False},
        {"name": "text", "type": "text", "description": "", "nullable": True},
    ]


def test_owners_are_told_where_the_schema_is_another_one(loads):
    def load(before, schema_id, *owners):
        after = TopicState(schema_id, SHAPE.model_copy(update={"owners": owners}), {0: Position(schema_id, 0)})
        with opened(loads.engine) as connection:
            load_state.write(connection, loads.engine, "clicks", before, after)
        return after

    told, known, after = [], TopicState(), None
    for schema_id, owners in ((1, ["team:ads"]), (2, ["team:ads", "me@example.com"]), (3, [])):
        known = load(known, schema_id, *owners)
        batch = loads.read(after, 10, 0)
        told += [each.context.get("owners") for each in batch.events]
        after = batch.position
    moved = replace(known, positions={0: Position(9, 0)})
    with opened(loads.engine) as connection:
        load_state.write(connection, loads.engine, "clicks", known, moved)
    (event,) = loads.read(after, 10, 0).events
    assert told == ["team:ads", "team:ads, me@example.com", None]
    assert event.context.keys() & {"owners", COLUMNS} == set()


def test_loads_of_a_history_are_inserts_with_the_lag_of_its_topic(loads, monkeypatch):
    """A topic may have a name like that of a history."""
    monkeypatch.setattr(warehouse_events, "_ends", lambda topic: {"clicks": {0: 10}, "views_history": {0: 5}}[topic])
    seen, after = [], None
    for number in (3, 4):
        with opened(loads.engine) as connection:
            for name, is_history in (("clicks", False), ("clicks_history", True), ("views_history", False)):
                shape = SHAPE.model_copy(update={"is_history": is_history})
                known = TopicState(7, shape, {0: Position(number, 0)})
                load_state.write(connection, loads.engine, name, TopicState(), known)
        batch = loads.read(after, 10, 60)
        seen += [
            (each.table_name, each.write_operation, each.context["lag"], COLUMNS in each.context)
            for each in batch.events
        ]
        after = batch.position
    assert seen == [
        ("main/clicks", "UPSERT", 7, True),
        ("main/clicks_history", "INSERT", 7, True),
        ("main/views_history", "UPSERT", 2, True),
        ("main/clicks", "UPSERT", 6, False),
        ("main/clicks_history", "INSERT", 6, False),
        ("main/views_history", "UPSERT", 1, False),
    ]


def test_loads_of_a_union_have_the_lag_of_each_topic_and_a_strange_partition_is_rejected(loads, monkeypatch):
    monkeypatch.setattr(warehouse_events, "_ends", lambda topic: {"a.b-c": {1: 10}, "eu": {0: 5}}[topic])
    positions = dict.fromkeys((1, 1_000_000, 2_000_000), Position(4, 0))
    known = TopicState(7, SHAPE, positions, union_topics.text_of({"a.b-c": "id", "eu": None}))
    with opened(loads.engine) as connection:
        load_state.write(connection, loads.engine, "both", TopicState(), known)
    batch = loads.read(None, 10, 60)
    assert {each.partition_key: each.context["lag"] for each in batch.events} == {"a.b-c-1": 6, "eu-0": 1}
    assert ["no load can have written the partition" in each.reason for each in batch.rejected] == [True]
