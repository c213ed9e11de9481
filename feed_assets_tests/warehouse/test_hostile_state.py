"""State tables altered by another role: the loader refuses, and neither loses nor duplicates rows."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from feed_assets.core.errors import FeedAssetsError, LoadFailed
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.warehouse_events import TableLoads
from feed_assets.warehouse import dataset_state, load_state, loader, reset
from feed_assets.warehouse.table import Loading
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import check, loading_of, rows

BARE = (
    "ALTER TABLE feed_assets.{0} RENAME TO bare",
    "CREATE TABLE feed_assets.{0} AS SELECT * FROM feed_assets.bare",
    "DROP TABLE feed_assets.bare",
)
"""Drop the constraints of a state table, so that its rows can be anything."""

WRONG_POSITIONS = {
    "beyond the end of its topic": ("SET next_offset = next_offset + 1000000", "expected at most"),
    "of no partition of its topic": ("SET topic_partition = 7", "expected at most 0, where the topic ends"),
    "before the first offset": ("SET next_offset = -3", r"found \(0, -3, \d+\)"),
    "before the first signal": ("SET signal_offset = -1", r"found \(0, \d+, -1\)"),
    "of a partition below 0": ("SET topic_partition = -1", r"found \(-1, "),
    "without an offset": ("SET next_offset = NULL", r"found \(0, None, \d+\)"),
    "without a signal": ("SET signal_offset = NULL", r"found \(0, \d+, None\)"),
    "without a partition": ("SET topic_partition = NULL", r"found \(None, \d+, \d+\)"),
}

FORMS = {
    "a view": "CREATE VIEW feed_assets.positions AS SELECT * FROM feed_assets.saved",
    "no table": "SELECT 1",
    "a table of somebody else": "CREATE TABLE feed_assets.positions (name text)",
    "a missing column": "CREATE TABLE feed_assets.positions AS "
    "SELECT topic, topic_partition, next_offset, loaded_at FROM feed_assets.saved",
    "columns in another order": "CREATE TABLE feed_assets.positions AS "
    "SELECT topic, topic_partition, signal_offset, next_offset, loaded_at FROM feed_assets.saved",
    "offsets as texts": "CREATE TABLE feed_assets.positions AS SELECT topic, topic_partition, "
    "CAST(next_offset AS text) AS next_offset, signal_offset, loaded_at FROM feed_assets.saved",
}


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path) -> str:
    """Return a warehouse for one test only, because the test damages it."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql").database()
    return f"duckdb://{tmp_path / 'warehouse.db'}"


@pytest.fixture
def world(broker, registry, local_board: Blackboard) -> Iterator[World]:
    with World.of(broker, registry, local_board.url) as made:
        made.create()
        yield made


@pytest.fixture
def loading(world: World, url: str) -> Iterator[Loading]:
    """Provide a loader of a table with some rows of its topic; more are signalled."""
    made = loading_of(world.place, url)
    with closing(made.schemas):
        world.produce(12)
        world.run_until_done()
        load(made, world)
        world.produce(12)
        world.run_until_done()
        yield made


def load(loading: Loading, world: World) -> None:
    loader.once(loading, {world.name: world.settings})


def run(loading: Loading, *statements: str) -> None:
    with opened(loading.engine) as connection:
        for each in statements:
            connection.execute(each)


def refused(loading: Loading, world: World, match: str) -> LoadFailed:
    """Load, and check that the loader refuses and leaves the table unchanged."""
    before = rows_of(loading, world)
    with pytest.raises(LoadFailed, match=match) as error:
        load(loading, world)
    assert rows_of(loading, world) == before
    return error.value


def rows_of(loading: Loading, world: World) -> list[tuple]:
    with opened(loading.engine) as connection:
        return sorted(connection.execute(f'SELECT * FROM "{world.name}"'))


def make_anew(loading: Loading, world: World) -> None:
    """Load the table anew, as the message about a stopped table advises."""
    with opened(loading.engine) as connection:
        statements = reset.plan(connection, loading.engine, world.name, None)
        reset.apply(connection, loading.engine, "the test", 30, statements)
    load(loading, world)
    check(world, loading.engine)
    assert len(rows(loading.engine, world.name)) == 7


def test_a_position_that_no_load_has_written_stops_its_table_until_that_is_made_anew(world, loading, subtests):
    run(loading, *(each.format("positions") for each in BARE))
    for case, (change, match) in WRONG_POSITIONS.items():
        with subtests.test(msg=case):
            run(loading, f"UPDATE feed_assets.positions {change} WHERE topic = '{world.name}'")
            error = refused(loading, world, match)
            assert f"`feed-assets warehouse reset WAREHOUSE {world.name} --apply`" in str(error)
            make_anew(loading, world)
            world.produce(3)
            world.run_until_done()


def test_two_positions_of_one_partition_stop_its_table(world, loading):
    run(loading, *(each.format("positions") for each in BARE))
    run(loading, "INSERT INTO feed_assets.positions SELECT topic, 0, 3, 0, loaded_at FROM feed_assets.positions")
    refused(loading, world, "expected one row for each partition of .* with offsets of 0 or more")
    make_anew(loading, world)


def test_an_early_or_missing_position_duplicates_nothing(world, loading, subtests):
    for change in (
        "UPDATE feed_assets.positions SET next_offset = 3, signal_offset = 0",
        "DELETE FROM feed_assets.positions",
    ):
        with subtests.test(msg=change):
            run(loading, change)
            load(loading, world)
            check(world, loading.engine)


def test_a_state_table_of_another_form_stops_the_loader_until_it_is_back(world, loading, subtests):
    for case, statement in FORMS.items():
        with subtests.test(msg=case):
            run(loading, "ALTER TABLE feed_assets.positions RENAME TO saved", statement)
            error = refused(
                loading, world, r"feed_assets.positions was altered by somebody else: found .*; expected BASE"
            )
            assert "Restore it from a backup" in str(error)
            if case != "no table":
                run(loading, f"DROP {'VIEW' if case == 'a view' else 'TABLE'} feed_assets.positions")
            run(loading, "ALTER TABLE feed_assets.saved RENAME TO positions")
    load(loading, world)
    check(world, loading.engine)


@each_case(
    "shape",
    [
        "{}",
        "no JSON",
        " " * (1 << 20) + "{}",
        '{"columns": [{"name": "id", "kind": {"name": "no kind"}}], "key": ["id"]}',
    ],
)
def test_a_shape_that_no_load_has_written_stops_its_table(world, loading, shape):
    where = f"WHERE topic = '{world.name}'"
    with opened(loading.engine) as connection:
        [[before]] = connection.execute(f"SELECT shape FROM feed_assets.tables {where}")
    run(loading, f"UPDATE feed_assets.tables SET shape = '{shape}' {where}")
    error = refused(loading, world, "expected one row of .* with the shape that a load has written")
    assert f"DELETE FROM feed_assets.tables {where} and DELETE FROM feed_assets.positions {where}" in str(error)
    run(loading, f"UPDATE feed_assets.tables SET shape = '{before}' {where}")
    load(loading, world)
    check(world, loading.engine)


def test_a_text_in_the_place_of_a_schema_id_is_no_statement(world, loading):
    """Load only tombstones, which write the schema id back as it was read."""
    run(loading, "CREATE TABLE bystander (n integer)", *(each.format("tables") for each in BARE))
    run(loading, "ALTER TABLE feed_assets.tables ALTER COLUMN schema_id TYPE text")
    run(loading, "UPDATE feed_assets.tables SET schema_id = 'NULL, NULL, NULL, NULL); DROP TABLE bystander; --'")
    world.send(None, 3)
    world.run_until_done()
    refused(loading, world, "feed_assets.tables was altered by somebody else")
    with opened(loading.engine) as connection, pytest.raises(LoadFailed, match=r"found .*DROP TABLE bystander"):
        load_state.read(connection, world.name)
    run(loading, "SELECT n FROM bystander")


def test_a_view_in_the_place_of_a_loaded_table_is_not_loaded_into(world, loading):
    run(loading, f'ALTER TABLE "{world.name}" RENAME TO saved', f'CREATE VIEW "{world.name}" AS SELECT * FROM saved')
    refused(loading, world, f"{world.name} is a VIEW: expected the loaded table")
    run(loading, f'DROP VIEW "{world.name}"', f'ALTER TABLE saved RENAME TO "{world.name}"')
    load(loading, world)
    check(world, loading.engine)


def test_a_lease_that_is_none_is_refused_and_free_again_once_its_rows_are_deleted(world, loading, subtests):
    run(loading, *(each.format("lease") for each in BARE))
    for change in (
        "INSERT INTO feed_assets.lease SELECT 2, 'x', seen_at FROM feed_assets.lease",
        "INSERT INTO feed_assets.lease VALUES (1, NULL, now())",
        "INSERT INTO feed_assets.lease VALUES (1, 'x', NULL)",
    ):
        with subtests.test(msg=change):
            run(loading, change)
            error = refused(loading, world, "expected one row with a holder and a time")
            assert "DELETE FROM feed_assets.lease" in str(error)
            run(loading, "DELETE FROM feed_assets.lease")
    load(loading, world)
    check(world, loading.engine)


@pytest.mark.parametrize("url", ["duckdb", "postgresql"], indirect=True)
def test_what_is_read_of_other_rows_in_the_state_tables_is_limited(url, monkeypatch):
    engine = engine_of(url)
    monkeypatch.setattr(load_state, "WHOLE_PROBLEMS", 2)
    with opened(engine) as connection:
        load_state.prepare(connection, engine)
        for name in ("a", "b", "c", "z" * 501, "z" * 500):
            row = f"VALUES ('{name}', repeat('\U0001f600', 1000000))"
            connection.execute(f"INSERT INTO feed_assets.tables (topic, problem) {row}")
        states = load_state.tables(connection)
        lengths = {"a": 16_000, "b": 16_000, "c": 200, "z" * 500: 200}
        assert {each.topic: len(each.problem or "") for each in states} == lengths
        monkeypatch.setattr(load_state, "MOST_ROWS", 4)
        assert load_state.tables(connection) == states
        monkeypatch.setattr(load_state, "MOST_ROWS", 3)
        with pytest.raises(LoadFailed, match="more than 3 rows; expected one for each partition"):
            load_state.tables(connection)


@pytest.mark.parametrize("url", ["duckdb", "postgresql"], indirect=True)
def test_a_row_about_a_topic_that_the_broker_lacks_holds_up_no_event(world, loading, monkeypatch):
    """The topic may be deleted, or the name somebody's. After the time, the broker is asked about no more topics."""
    monkeypatch.setenv("FEED_ASSETS_KAFKA", json.dumps({"bootstrap.servers": world.place.servers}))
    for table, values in (("tables", "7, NULL, NULL, NULL"), ("positions", "0, 3, 3, CURRENT_TIMESTAMP")):
        run(loading, f"INSERT INTO feed_assets.{table} VALUES ('no.such.topic', {values})")
    reader = TableLoads("main", loading.engine)
    events = [each for seconds in (30, -1) for each in reader.read(None, 9, seconds).events]
    lags = {(each.table_name, each.context.get("lag")) for each in events}
    names = f"main/{world.name}", "main/no.such.topic"
    assert lags == {*zip(names, (12, 0), strict=True), *zip(names, (None, None), strict=True)}


def test_a_mark_of_the_log_that_no_load_has_written_is_refused(url, subtests):
    engine = engine_of(url)
    with opened(engine) as connection:
        load_state.prepare(connection, engine)
        dataset_state.prepare(connection, engine)
        dataset_state.move(connection, "a", dataset_state.Mark(3, datetime.now(UTC).isoformat()))
        assert dataset_state.mark(connection, engine, "a").sequence == 3
        for each in BARE:
            connection.execute(each.format("marks"))
        for change in ("sequence = -1", "sequence = NULL", "sequence = 1, moment = 'noon'", "moment = '2026-01-31'"):
            with subtests.test(msg=change):
                connection.execute(f"UPDATE feed_assets.marks SET {change}")
                with pytest.raises(
                    FeedAssetsError, match="expected one row of a with a number of 0 or more and its time"
                ):
                    dataset_state.mark(connection, engine, "a")
