"""A failure of one consumer, source or sink stops no other one, and its alert has the true reason."""

import json

import pytest

from feed_assets import EventSource, Input, LineageTable, SqlTable, event_table
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.orchestration.event_team import Team
from feed_assets_tests.orchestration.failing_parts import (
    NOWHERE,
    Broken,
    BrokenDown,
    by_events,
    listed_partitions,
    plain,
    tables_of,
)
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, SUMS, raw_feed, requested, rows, sums_of


@pytest.fixture
def team(tmp_path):
    return Team(tmp_path)


def world_of(team):
    """Build a plain dataset, one by events, and one whose lineage table is out of reach."""
    tables, raw = tables_of(team.source), raw_feed()
    healthy = by_events("healthy", tables, {"p": ["team/a", "team/b"]})
    lost = by_events("lost", tables, LineageTable(NOWHERE, "lineage"))
    return plain(*tables.values(), raw, sums_of(raw), healthy, lost)


def test_a_lineage_table_out_of_reach_stops_its_consumer_alone(team):
    world = world_of(team)
    world.drop(RAW, DAY, rows(1))
    team.publish(("a", "X", 1), ("b", "X", 7))
    runs = world.run_until_idle()
    assert sorted((run.assets[0], run.succeeded) for run in runs) == [("gamma/healthy", True), ("t/sums", True)]
    state, reason = listed_partitions("gamma/lost/v1.0")[""]
    assert state == "cannot be decided"
    assert "There is no SQLite database /nowhere/at/all.db" in reason


def test_a_lineage_table_out_of_reach_is_an_alert_and_keeps_other_alerts_working(team):
    world = world_of(team)
    alerts.keep(open_ledger(settings().ledger), "stuck", {"gamma/healthy/v1.0|p|of before|": "it is over"}, world.now())
    team.publish(("a", "X", 1), ("b", "X", 7))
    world.run_until_idle()
    (name,) = open_reasons()
    assert name == "undecided:gamma/lost/v1.0"
    assert "There is no SQLite database /nowhere/at/all.db" in open_reasons()[name]
    assert world.checks("gamma/healthy")["propagation"]
    assert not world.checks("gamma/lost")["propagation"]


@pytest.mark.parametrize("mapping", [Broken(), BrokenDown()])
def test_a_mapping_that_raises_is_an_alert_and_stops_its_partition_alone(mapping):
    raw = raw_feed()
    other = sums_of(raw, name="t/other/v1.0")
    world = plain(raw, sums_of(Input(raw, mapping=mapping)), other)
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    asked = world.ask()
    assert sorted((assets[0], key) for assets, key in asked.targets) == [
        ("t/other", DAY),
        ("t/other", NEXT_DAY),
        ("t/sums", NEXT_DAY),
    ]
    ((state, reason),) = [reported for key, reported in listed_partitions("t/sums/v1.0").items() if key.endswith(DAY)]
    assert (state, reason) == ("cannot be decided", "ZeroDivisionError: a mapping with an error")
    world.ask(name="watch")
    assert open_reasons() == {"undecided:t/sums/v1.0": "ZeroDivisionError: a mapping with an error"}


def test_a_source_that_is_down_is_an_alert_and_stops_no_other_dataset(team):
    away = EventSource("away", (SqlTable(NOWHERE, "events", "id"),))
    raw, theirs = raw_feed(), event_table("away/c", source=away, table_name="c")
    tables = tables_of(team.source)
    healthy = by_events("healthy", tables, {"p": ["team/a", "team/b"]})
    world = plain(*tables.values(), theirs, raw, sums_of(raw), healthy)
    world.drop(RAW, DAY, rows(1))
    team.publish(("a", "X", 1), ("b", "X", 7))
    runs = world.run_until_idle()
    assert sorted((run.assets[0], run.succeeded) for run in runs) == [("gamma/healthy", True), ("t/sums", True)]
    (name,) = open_reasons()
    assert name == "failing:events_away:part 0 of away"
    assert "There is no SQLite database /nowhere/at/all.db" in open_reasons()[name]


def test_a_source_that_answers_again_resolves_its_alert(team, tmp_path):
    world = plain(*tables_of(team.source).values())
    (tmp_path / "team.db").rename(tmp_path / "hidden.db")
    world.tick()
    assert [*open_reasons()] == ["failing:events_team:part 0 of team"]
    (tmp_path / "hidden.db").replace(tmp_path / "team.db")
    world.tick()
    assert open_reasons() == {}


def test_a_sink_out_of_reach_is_an_alert_and_holds_up_no_run(setting):
    setting(events_to=f"{NOWHERE}#events")
    raw = raw_feed()
    world = plain(raw, sums_of(raw))
    world.drop(RAW, DAY, rows(1))
    assert [run.succeeded for run in world.run_until_idle()] == [True]
    (name,) = open_reasons()
    assert name == f"failing:watch:{NOWHERE}#events"


def test_a_foreign_file_in_a_sink_is_an_alert_until_it_is_removed(setting, home):
    setting(events_to="blackboard:out")
    raw = raw_feed()
    world = plain(raw, sums_of(raw))
    theirs = home / "blackboard" / "out" / f"{10**20 - 1}.jsonl"
    theirs.parent.mkdir()
    theirs.write_text("no JSON")
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert "not written by us" in open_reasons()["failing:watch:blackboard:out"]
    assert f"out/{theirs.name}" in open_reasons()["failing:watch:blackboard:out"]
    assert len([*theirs.parent.iterdir()]) == 2
    theirs.unlink()
    world.tick()
    assert open_reasons() == {}


def test_a_foreign_file_between_two_of_ours_in_a_sink_alerts_once(setting, home, caplog):
    setting(events_to="blackboard:out")
    raw = raw_feed()
    world = plain(raw, sums_of(raw))
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    (ours,) = (home / "blackboard" / "out").iterdir()
    last = json.loads(ours.read_text().splitlines()[-1])["sequence"]
    theirs = ours.with_name(f"{last + 1:020d}.jsonl")
    theirs.write_text("no JSON")
    world.drop(RAW, DAY, rows(2))
    world.run_until_idle()
    assert len([*ours.parent.iterdir()]) > 2
    said = [record.getMessage() for record in caplog.records if record.name == "feed_assets.alerts"]
    assert [theirs.name in each for each in said if " opened at " in each] == [True]


@pytest.mark.parametrize("prefix", ["t/raw/v1.0/x", "t", SUMS])
def test_a_sink_inside_a_feeds_folder_is_an_alert_and_gets_no_file(setting, home, prefix):
    setting(events_to=f"blackboard:{prefix}")
    raw = raw_feed()
    world = plain(raw, sums_of(raw))
    world.drop(RAW, DAY, rows(1))
    assert [run.succeeded for run in world.run_until_idle()] == [True]
    assert ". Name another folder" in open_reasons()[f"failing:watch:blackboard:{prefix}"]
    assert [*(home / "blackboard").rglob("*.jsonl")] == []


def test_a_foreign_feed_that_cannot_be_read_is_an_alert(home):
    good, bad = raw_feed(), raw_feed("t/bad/v1.0")
    world = plain(good, bad, sums_of(good))
    path = home / "blackboard" / "t/bad/v1.0"
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    world.drop(RAW, DAY, rows(1))
    assert requested(world) == [DAY]
    assert [*open_reasons()] == ["failing:feeds:t/bad/v1.0"]


def test_the_watch_sensor_alerts_without_the_sensors_that_request(team):
    world = world_of(team)
    team.publish(("a", "X", 1), ("b", "X", 7))
    world.ask(name="events_team")
    world.ask(name="watch")
    assert "undecided:gamma/lost/v1.0" in open_reasons()
