"""The sensor and the job `replicate` tick by tick, and the alert about a place that is late or out of reach."""

import json
from datetime import timedelta

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import Compact
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import alerts, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import replica
from feed_assets.ledger.tables import update as update_table
from feed_assets.orchestration.replicate_job import replicate_sensor
from feed_assets.replication import place_overview, turn
from feed_assets.replication.place_overview import LATE
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.replication.two_ends import DAY, history, visible
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.sum_projects import RAW, SUMS, chain, rows

DAYS = sum_projects.DAY


@pytest.fixture
def folder(home, tmp_path, monkeypatch):
    """Return the folder of the data center `b`, which does not exist yet."""
    folder = tmp_path / "b"
    centers = {"b": {"url": folder.as_uri(), "datasets": ["t/sums/*"], "deadline": 60}}
    monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps(centers))
    settings.cache_clear()
    yield folder
    sum_projects.opened.close()


def opened_alerts():
    with open_ledger(settings().ledger).read() as connection:
        return alerts.of_kind(connection, LATE)


def test_a_built_partition_is_copied_by_the_job_and_a_missing_place_is_an_alert(folder):
    world = chain()
    world.drop(RAW, DAYS, rows(1, 2))
    world.run_until_idle()
    (reason,) = opened_alerts().values()
    assert "does not exist" in reason

    folder.mkdir()
    world.run_until_idle()

    partition = Partition(Feed.parse(SUMS), DAYS)
    board = Blackboard.open(folder.as_uri())
    source = Blackboard.open(settings().blackboard)
    assert visible(board, partition) == visible(source, partition)
    assert visible(board, partition) is not None
    assert opened_alerts() == {}


def test_a_compacted_partition_is_copied_as_the_new_update_that_it_is(folder):
    folder.mkdir()
    world = chain(compact=Compact(sort_by=("k",), files=1, when="published"))
    world.drop(RAW, DAYS, rows(1, 2))
    world.run_until_idle()

    partition = Partition(Feed.parse(SUMS), DAYS)
    source, board = Blackboard.open(settings().blackboard), Blackboard.open(folder.as_uri())
    assert [*history(board, partition)] == [*history(source, partition)]
    with open_ledger(settings().ledger).read() as connection:
        rows_of_updates = [updates.find(connection, partition, each) for each in history(board, partition)]
    assert [each.origin for each in rows_of_updates] == [updates.COMPACTED, updates.RUN]


def steps_of_a_tick() -> int:
    """Return how much SQLite does in one tick of the sensor, in thousands of its instructions."""
    counts, engine = list[None](), open_ledger(settings().ledger).engine

    def begin(connection, *_: object) -> None:
        connection.connection.dbapi_connection.set_progress_handler(lambda: counts.append(None), 1000)

    sa.event.listen(engine, "before_cursor_execute", begin)
    with dg.DagsterInstance.ephemeral() as instance:
        replicate_sensor({})(dg.build_sensor_context(instance))
    sa.event.remove(engine, "before_cursor_execute", begin)
    return len(counts)


def test_cost_of_a_tick_does_not_grow_with_what_a_place_has(folder):
    folder.mkdir()
    world = chain()
    world.drop(RAW, DAYS, rows(1, 2))
    world.run_until_idle()
    steps_of_a_tick()
    few = steps_of_a_tick()
    with open_ledger(settings().ledger).write() as connection:
        for table in (update_table, replica):
            row = connection.execute(sa.select(table).where(table.c.feed == SUMS)).mappings().one()
            connection.execute(sa.insert(table), [{**row, "partition": f"{at:05}"} for at in range(5000)])
    assert steps_of_a_tick() <= few + 5


def test_an_alert_opens_when_a_copy_is_late_or_fails(ends):
    ends.publish()
    turn.pause(ends.ledger, "b", "disk", "ann", ends.clock())
    ends.replicate()

    def reasons(deadline):
        with ends.ledger.read() as connection:
            copies = place_overview.overview(connection, "b", ends.place.center.datasets, ends.clock())
        return place_overview.late(copies, deadline)

    ends.clock.pass_(seconds=60)
    assert reasons(60) == reasons(None) == {}
    ends.clock.pass_(seconds=1)
    (reason,) = reasons(60).values()
    assert reason.endswith("1 transition waits, the oldest for 0:01:01, expected at most 0:01:00")
    assert [*reasons(60)] == [f"{DAY.feed}|b"]
    assert reasons(timedelta(days=1).total_seconds()) == {}
    assert utc_now() > ends.clock()
