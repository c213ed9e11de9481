"""Several processes decide at once while others wake the loop: each partition is requested once."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import dagster as dg
import pytest

from feed_assets import ByEvents, EventSource, event_table, feed_asset
from feed_assets.cli.receive import polled, written_sources
from feed_assets.core.feeds import Feed
from feed_assets.core.launching import SHORTEST_WAIT
from feed_assets.feeds.opened import open_board
from feed_assets.intake import authentication
from feed_assets.ledger import due
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.orchestration.decide import request_budget, stale_partitions
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness
from feed_assets_tests.support.receivers import door_of, lines, listening
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    given,
    harness,
    later,
    outcomes,
    raw_feed,
    rows,
    short,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")
ALL = [DAY, NEXT_DAY, THIRD_DAY]


def late(world: Harness) -> list[str | None]:
    """Return the partitions whose re-run the conditions request."""
    found = dg.evaluate_automation_conditions(world.definitions, world.instance, evaluation_time=world.now())
    return sorted(found.get_requested_partitions(dg.AssetKey(["t", "sums"])))


def first(world: Harness) -> list[str | None]:
    """Return the partitions whose first run the sensor requests."""
    return sorted(partition for assets, partition in world.ask().targets if assets == BOTH)


def drop(world: Harness, *numbers: int) -> None:
    for day in ALL:
        world.drop(RAW, day, rows(*numbers))


def built(world: Harness) -> Harness:
    drop(world, 1)
    assert len(world.run_until_idle()) == len(ALL)
    return world


def once_before(monkeypatch, module, name, act) -> list:
    """Call `act` once, before the first call of a module's function; return a list that gets its result."""
    function, done = getattr(module, name), []

    def called(*arguments):
        if not done:
            done.append(None)
            with ThreadPoolExecutor(1) as pool:  # Dagster evaluates in a loop of the thread that it is called in.
                done[0] = pool.submit(act).result()
        return function(*arguments)

    monkeypatch.setattr(module, name, called)
    return done


def test_a_rerun_is_requested_by_one_of_two_evaluations_and_again_without_a_run(monkeypatch):
    """The second evaluation starts after the first has read the stale partitions and before it claims them."""
    world = built(short())
    drop(world, 1, 2)
    assert first(world) == [], "it is decided, and the conditions' business"
    other = once_before(monkeypatch, stale_partitions, "in_progress", lambda: late(world))
    assert late(world) == []
    assert other == [ALL]
    later(world, SHORTEST_WAIT + timedelta(seconds=1))
    assert late(world) == ALL, "as if the process that claimed them had been killed"


def test_a_first_run_is_requested_by_one_of_two_ticks(monkeypatch):
    world = short()
    drop(world, 1)
    other = once_before(monkeypatch, request_budget, "is_a_service_out", lambda: first(world))
    assert first(world) == []
    assert other == [ALL]


def test_a_partition_claimed_by_another_tick_splits_a_range_in_two(monkeypatch):
    world, ledger = short(), open_ledger(settings().ledger)
    drop(world, 1)

    def the_middle() -> list[DueOutput]:
        with ledger.read() as connection:
            looked = due.look(connection, [Feed.parse(SUMS)], world.now(), len(ALL))
        return due.claim(ledger, [each for each in looked if each.partition.key == NEXT_DAY], world.now())

    once_before(monkeypatch, request_budget, "is_a_service_out", the_middle)
    asked = world.ask()
    assert [request.partition_key for request in asked.requests] == [DAY, THIRD_DAY]


def test_simultaneous_wakes_events_and_ticks_request_each_run_once(tmp_path):
    """The receiver is real. The first round is a first build, the second one late data."""
    table = event_table("team/a", source=EventSource("team", ()), table_name="a")
    by_events = feed_asset("t/told/v1.0", inputs={"a": table}, by_events=ByEvents())(lambda a: a)
    raw = raw_feed()

    def give(task):
        return Given([{"k": "1"}]) if str(task.recipe.feed) == "t/told/v1.0" else given(task)

    world = harness(raw, sums_of(raw), table, by_events, give=give)
    graph, ledger = Graph(world.definitions.resolve_asset_graph()), open_ledger(settings().ledger)
    calls = {"sources": written_sources(graph), "polled": polled(graph), "now": utc_now}
    door = door_of(open_board(settings()), ledger, tmp_path / "spool", **calls)
    scopes = [RAW, "events:team"]
    key = authentication.add(ledger, "other", scopes, utc_now())
    with listening(door, scopes=scopes) as team:
        other = replace(team, key=key)  # A key has one wake at a time.
        for marker in (1, 2):
            world.drop(RAW, DAY, rows(*range(marker)))
            event = lines({"table_name": "a", "marker": marker, "correlation_id": f"c{marker}"})
            paths = {f"/wake/{RAW}?partition={DAY}": b"", "/events/team": event}
            with ThreadPoolExecutor(4) as pool:
                answers = [pool.submit(each.call, *call) for call in paths.items() for each in (team, other)]
                ran = world.tick()
            assert [answer.result().status_code for answer in answers] == [200] * 4
            ran += world.run_until_idle()
            assert sorted(outcomes(ran)) == [("sums", DAY, True), ("told", None, True)]
