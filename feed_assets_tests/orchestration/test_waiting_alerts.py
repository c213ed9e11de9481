"""Alerts that need a person: one for each dataset, however many partitions, until the cause is gone."""

from feed_assets.core.feeds import Feed
from feed_assets.ledger import pauses
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.orchestration.event_team import Team
from feed_assets_tests.orchestration.failing_parts import by_events, listed_partitions, plain, tables_of
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    UNLUCKY,
    rows,
    short,
    until_given_up,
)

AUDIT, PERSON = f"audit:{SUMS}", f"person:{SUMS}"


def test_a_refused_partition_is_an_alert_until_a_better_input_is_published():
    world = short()
    world.drop(RAW, DAY, rows(1000))
    world.run_until_idle()
    reason = open_reasons()[AUDIT]
    assert reason.startswith(f"1 partition refused by the audit: {DAY} (within_n")
    assert reason.endswith(f". See `feed-assets explain {SUMS}`.")
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert open_reasons() == {}


def test_a_refused_rebuild_is_an_alert_until_the_bad_input_is_invalidated():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    bad = world.drop(RAW, DAY, rows(1000))
    world.run_until_idle()
    assert [*open_reasons()] == [AUDIT]
    world.invalidate(RAW, DAY, bad)
    world.run_until_idle()
    assert open_reasons() == {}


def test_all_partitions_that_wait_for_a_person_are_one_alert_for_the_dataset():
    world = short()
    for day in (DAY, NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, rows(UNLUCKY))
    until_given_up(world)
    reason = open_reasons()[PERSON]
    assert [*open_reasons()] == [PERSON]
    assert reason.startswith(f"3 partitions waiting for a person: {DAY} (")
    assert "13 is unlucky" in reason
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    world.run_until_idle()
    assert open_reasons()[PERSON].startswith(f"1 partition waiting for a person: {THIRD_DAY} (")
    world.drop(RAW, THIRD_DAY, rows(1))
    world.run_until_idle()
    assert open_reasons() == {}


def test_a_paused_dataset_is_no_alert(tmp_path):
    team = Team(tmp_path)
    tables = tables_of(team.source)
    world = plain(*tables.values(), by_events("report", tables, {"p": ["team/a", "team/b"]}))
    pauses.pause_consumer(
        open_ledger(settings().ledger), Feed.parse("gamma/report/v1.0"), "release", "ann", world.now()
    )
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert world.run_until_idle() == []
    assert listed_partitions("gamma/report/v1.0")[""][0] == "waits for a person"
    assert open_reasons() == {}
