"""An event source that cannot be read: its own tick fails, with nothing lost, and `run` does not call it idle."""

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


def test_the_tick_of_a_source_of_which_nothing_can_be_read_fails_with_the_reason(team, tmp_path):
    world = world_of(team.source)
    hide(tmp_path)
    with pytest.raises(SourceUnavailable, match="the event source team: part 0 of team: There is no SQLite database"):
        world.ask(name="events_team")
    assert [*open_reasons()] == ["failing:events_team:part 0 of team"]


def test_what_a_tick_requests_and_reports_is_not_lost_with_it(team, tmp_path):
    """What was read before is built while the source is away; the tick after it fails."""
    world = world_of(team.source)
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert len(world.ask(name="events_team").requests) == 1
    hide(tmp_path)
    assert outcomes(world.run_until_idle()) == [("gamma/report", None, True)]
    assert len(world.reported("team/a")) == 1
    with pytest.raises(SourceUnavailable):
        world.ask(name="events_team")


def test_a_source_of_which_a_part_can_be_read_goes_on_and_tells_of_the_other(team):
    both = EventSource("team", (SqlTable(NOWHERE, "events", "id"), *team.source.parts))
    world = world_of(both)
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert outcomes(world.run_until_idle()) == [("gamma/report", None, True)]
    assert world.ask(name="events_team").requests == ()
    assert [*world.runner.failing()] == ["events_team:part 0 of team"]


def test_it_fails_alone(team):
    away = EventSource("away", (SqlTable(NOWHERE, "events", "id"),))
    raw = raw_feed()
    world = world_of(team.source, event_table("away/c", source=away, table_name="c"), raw, sums_of(raw))
    world.drop(RAW, DAY, rows(1))
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert sorted(outcomes(world.run_until_idle()), key=str) == [("gamma/report", None, True), ("sums", DAY, True)]
    assert "There is no SQLite database" in world.runner.failing()["events_away:part 0 of away"]


def test_once_it_answers_again_nothing_fails_and_what_came_meanwhile_is_built(team, tmp_path):
    world = world_of(team.source)
    hide(tmp_path)
    world.run_until_idle()
    assert [*world.runner.failing()] == ["events_team:part 0 of team"]
    (tmp_path / "hidden.db").rename(tmp_path / "team.db")
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert outcomes(world.run_until_idle()) == [("gamma/report", None, True)]
    assert world.runner.failing() == {}


def test_a_slice_of_an_event_table_is_named_for_what_it_is(team):
    world = world_of(team.source)
    team.publish(("a", "X", 1), ("b", "X", 7))
    world.run_until_idle()
    found = inputs_of(next(each for each in world.reported("gamma/report") if each.run))
    assert found == {
        "team/a": "after the beginning up to 1",
        "team/b": "after the beginning up to 7",
    }


def test_parts_on_silent_servers_are_each_tried_and_soon_given_up_once_the_time_is_over(team):
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
