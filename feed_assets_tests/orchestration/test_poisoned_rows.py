"""Invalid or awkward event rows of others, from the source to the run: none stops a table or a sensor."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from feed_assets.ledger import event_rejects, event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import event
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.ingest import ingest, sources_of
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.orchestration.event_team import Team, report_world

ZERO = datetime(1, 1, 1, tzinfo=UTC)


@pytest.fixture
def team(tmp_path):
    return Team(tmp_path)


@pytest.fixture
def seen():
    return []


def test_an_event_of_the_year_1_is_consumed_and_its_slice_can_be_queried(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", ZERO), ("b", "X", 7))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    piece = next(piece for table, piece in seen[0].slices.items() if str(table.feed) == "team/a")
    assert piece.where("at") == "at <= '0001-01-01 00:00:00.000000+00:00'"
    assert world_.run_until_idle() == []


def test_an_event_recorded_with_a_short_year_by_an_old_version_is_consumed_once(team, seen):
    """Earlier versions recorded such an event, which then stopped all sensors."""
    world_ = report_world(team, seen)
    team.publish(("a", "X", ZERO))
    assert world_.run_until_idle() == []
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(event).values(marker="10101.000000", event_marker="10101.000000"))
    team.publish(("b", "X", 7))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    assert world_.run_until_idle() == []
    with open_ledger(settings().ledger).read() as connection:
        assert ZERO in {each.time for each in event_store.newest(connection, 10)}


def rejected():
    with open_ledger(settings().ledger).read() as connection:
        return [each.reason for _, each, _ in event_rejects.rejects(connection, 10)]


def test_a_marker_far_ahead_is_rejected_and_later_events_are_built(team, seen):
    world_ = report_world(team, seen)
    now = datetime.now(UTC)
    team.publish(("a", "W", datetime(9999, 12, 31, tzinfo=UTC)), ("a", "X", now), ("b", "X", 1))
    assert [run.succeeded for run in world_.run_until_idle()] == [True]
    team.publish(("a", "Y", now + timedelta(hours=1)), ("b", "Y", 2**63 - 1))  # A version has no time limit.
    assert [run.succeeded for run in world_.run_until_idle()] == [True]
    (reason,) = rejected()
    assert "9999-12-31T00:00:00Z is more than 1 day, 0:00:00 ahead of now" in reason


def test_event_hours_ahead_limits_how_far_ahead_a_marker_may_be(team, seen, setting):
    setting(event_hours_ahead=0.5)
    world_ = report_world(team, seen, pipelines={"p": ["team/a"], "q": ["team/b"]})
    team.publish(("a", "X", datetime.now(UTC) + timedelta(hours=1)))
    assert world_.run_until_idle() == []
    assert "is more than 0:30:00 ahead of now" in rejected()[0]


def test_markers_of_another_kind_are_rejected_and_those_after_them_are_built(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1), ("b", "X", datetime(2024, 1, 1, tzinfo=UTC)))
    world_.run_until_idle()
    team.publish(("a", "Y", datetime(2024, 1, 1, tzinfo=UTC)), ("b", "Y", 3 * 10**18))
    assert world_.run_until_idle() == []
    team.publish(("a", "Z", 2), ("b", "Z", datetime(2024, 1, 2, tzinfo=UTC)))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    assert all("is of another kind" in reason for reason in rejected())


def test_a_version_beyond_bigint_is_rejected_and_later_events_are_in_order(team, seen):
    world_ = report_world(team, seen, pipelines={"p": ["team/a"], "q": ["team/b"]})
    team.publish(("a", "W", 99999999999999999999), ("a", "X", 2), ("a", "Y", 3))
    world_.run_until_idle()
    assert "expected at most 9223372036854775807" in rejected()[0]
    assert flags() == {"2": None, "3": None}


def flags():
    with open_ledger(settings().ledger).read() as connection:
        return {each.marker.lstrip("0") or "0": each.flag for each in event_store.newest(connection, 10) if each.source}


@pytest.mark.parametrize("wrong", [2**63 - 1, datetime(2024, 1, 1, tzinfo=UTC)], ids=["far ahead", "of another kind"])
def test_the_documented_repair_removes_a_wrong_event(team, seen, wrong):
    """Its owner has to delete it first: otherwise it is read and recorded again."""
    world_ = report_world(team, seen, pipelines={"p": ["team/a"], "q": ["team/b"]})
    team.publish(("a", "W", wrong), ("a", "X", 2))
    world_.run_until_idle()
    delete_as_the_page_says()
    read_again(world_)
    assert len(numbers("W")) == 1  # Its row is still in the source.
    with sa.create_engine(team.sink.url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("DELETE FROM events WHERE correlation_id = 'W'")
    delete_as_the_page_says()
    read_again(world_)
    team.publish(("a", "Y", 3))
    runs = world_.run_until_idle()
    assert [run.succeeded for run in runs] == [True] * len(runs)
    assert numbers("W") == []
    assert {"2", "3"} == {*flags()}
    assert flags()["3"] is None


def numbers(correlation):
    with open_ledger(settings().ledger).read() as connection:
        return [
            each.sequence
            for each in event_store.newest(connection, 10)
            if each.source and each.correlation == correlation
        ]


def delete_as_the_page_says():
    page = (Path(__file__).parents[2] / "docs" / "events.md").read_text(encoding="utf-8")
    (number,) = numbers("W")
    (statements,) = re.findall(r"^    (DELETE FROM inbox .*)$", page, re.MULTILINE)
    with open_ledger(settings().ledger).write() as connection:
        for statement in statements.replace("4711", str(number)).rstrip(";").split(";"):
            connection.exec_driver_sql(statement)


def read_again(world_):
    graph = Graph(world_.definitions.resolve_asset_graph())
    services = Services.of(settings())
    for source in sources_of(graph).values():
        assert ingest(graph, services, source, datetime.now(UTC), lambda: False, again=True).problems == {}
