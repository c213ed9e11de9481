"""An event source that cannot be read: its own tick fails, nothing is lost, and `run` does not call it idle."""

from datetime import UTC, datetime
from socket import create_server
from time import monotonic

import pytest

from feed_assets import EventSource, SqlTable, event_table
from feed_assets.core.errors import SourceUnavailable
from feed_assets.ledger import event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.sessions import CONNECT_SECONDS
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.ingest import ingest
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.orchestration.event_team import Team
from feed_assets_tests.orchestration.failing_parts import NOWHERE, by_events, plain, tables_of
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.sum_projects import DAY, RAW, inputs_of, outcomes, raw_feed, rows, sums_of


@pytest.fixture
def team(tmp_path):
    return Team(tmp_path)


def world_of(source, *more):
    tables = tables_of(source)
    return plain(*tables.values(), by_events("report", tables, {"p": ["team/a", "team/b"]}), *more)


def hide(folder):
    (folder / "team.db").rename(folder / "hidden.db")


def test_the_tick_of_an_unreadable_source_fails_with_the_reason(team, tmp_path):
    world = world_of(team.source)
    hide(tmp_path)
    with pytest.raises(SourceUnavailable, match="the event source team: part 0 of team: There is no SQLite database"):
        world.ask(name="events_team")
    assert [*open_reasons()] == ["failing:events_team:part 0 of team"]


def test_a_source_that_fails_loses_no_request_or_report_of_its_tick(team, tmp_path):
    """Events that were read before are built while the source is down; the tick after that fails."""
    world = world_of(team.source)
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert len(world.ask(name="events_team").requests) == 1
    hide(tmp_path)
    assert outcomes(world.run_until_idle()) == [("gamma/report", None, True)]
    assert len(world.reported("team/a")) == 1
    with pytest.raises(SourceUnavailable):
        world.ask(name="events_team")


def test_readable_parts_of_a_source_are_read_and_the_broken_part_is_named(team):
    both = EventSource("team", (SqlTable(NOWHERE, "events", "id"), *team.source.parts))
    world = world_of(both)
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert outcomes(world.run_until_idle()) == [("gamma/report", None, True)]
    assert world.ask(name="events_team").requests == ()
    assert [*world.runner.failing()] == ["events_team:part 0 of team"]


def test_a_source_that_fails_stops_no_other_source_or_dataset(team):
    away = EventSource("away", (SqlTable(NOWHERE, "events", "id"),))
    raw = raw_feed()
    world = world_of(team.source, event_table("away/c", source=away, table_name="c"), raw, sums_of(raw))
    world.drop(RAW, DAY, rows(1))
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert sorted(outcomes(world.run_until_idle()), key=str) == [("gamma/report", None, True), ("sums", DAY, True)]
    assert "There is no SQLite database" in world.runner.failing()["events_away:part 0 of away"]


def test_a_recovered_source_delivers_the_events_of_its_outage(team, tmp_path):
    world = world_of(team.source)
    hide(tmp_path)
    world.run_until_idle()
    assert [*world.runner.failing()] == ["events_team:part 0 of team"]
    (tmp_path / "hidden.db").rename(tmp_path / "team.db")
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert outcomes(world.run_until_idle()) == [("gamma/report", None, True)]
    assert world.runner.failing() == {}


def test_metadata_names_each_slice_by_its_markers(team):
    world = world_of(team.source)
    team.publish(("a", "X", 1), ("b", "X", 7))
    world.run_until_idle()
    found = inputs_of(next(each for each in world.reported("gamma/report") if each.run))
    assert found == {
        "team/a": "after the beginning up to 1",
        "team/b": "after the beginning up to 7",
    }


def test_silent_servers_are_each_tried_and_given_up_soon_when_time_is_over(team):
    team.publish(("a", "X", 1), ("b", "X", 7))
    with create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/lake"
        parts = (*(SqlTable(url, f"events_{number}", "id") for number in range(2)), *team.source.parts)
        source = EventSource("team", parts)
        world = world_of(source)
        graph, began = Graph(world.definitions.resolve_asset_graph()), monotonic()
        found = ingest(graph, Services.of(settings()), source, datetime.now(UTC), lambda: True)
    assert monotonic() - began < 2 * CONNECT_SECONDS
    assert [*found.problems] == [f"part {number} of team" for number in range(2)]
    with open_ledger(settings().ledger).read() as connection:
        assert len(event_store.newest(connection, 10)) == 2
