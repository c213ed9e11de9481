"""Two code locations on one ledger: each resolves its own feeds' alerts, and an outage limits only its own runs."""

from datetime import timedelta

import pytest

from feed_assets.core.errors import SparkUnavailable
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.orchestration.failing_maker import Outage
from feed_assets_tests.support.harness_queries import evaluate_orphans, unread_feeds
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    harness,
    later,
    raw_feed,
    rows,
    short,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")

THEIRS, MADE = "u/raw/v1.0", "u/made/v1.0"


def other(**options) -> Harness:
    raw = raw_feed(THEIRS)
    return harness(raw, sums_of(raw, name=MADE), **options)


def refused() -> dict[str, str]:
    """Have a partition of `sums` refused by its audit, and return the open alerts."""
    world = short()
    world.drop(RAW, DAY, rows(1000))
    world.run_until_idle()
    assert [*open_reasons()] == [f"audit:{SUMS}"]
    return open_reasons()


def test_a_tick_resolves_no_alert_of_another_code_location():
    before = refused()
    other().ask(name="watch")
    assert open_reasons() == before


def test_an_alert_of_an_undeclared_feed_is_resolved_after_an_hour():
    before = refused()
    world = other()
    world.drop(THEIRS, DAY, rows(1))
    world.run_until_idle()
    assert open_reasons() == before
    later(world, timedelta(hours=2))
    world.ask(name="watch")
    assert open_reasons() == {}


def test_an_unreadable_feed_of_one_code_location_alerts_once(home):
    bad = raw_feed("t/bad/v1.0")
    path = home / "blackboard" / "t/bad/v1.0"
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    mine = harness(bad, sums_of(bad))
    mine.ask()
    other().ask()
    assert [*open_reasons()] == ["failing:feeds:t/bad/v1.0"]


def test_feeds_of_one_code_location_are_not_undeclared_for_the_other():
    mine, unread = short(), harness(raw_feed("t/unread/v1.0"))
    mine.drop(RAW, DAY, "k,n\na,1\na,x\n")
    unread.drop("t/unread/v1.0", DAY, rows(1))
    unread.ask()
    mine.run_until_idle()
    assert mine.newest("t/sums_rejects/v1.0", DAY)
    assert unread_feeds(other()) == {}


def test_mistyped_partitions_stay_alerts_and_either_location_resolves_gone_feeds():
    mine, world = short(), other()
    mine.drop(RAW, "yesterday", rows(1))
    mine.drop("t/rwa/v1.0", DAY, rows(1))
    mine.run_until_idle()
    assert sorted(open_reasons()) == [f"unknown:{RAW}", "unknown:t/rwa/v1.0"]
    mine.board.sweep("t/rwa")
    evaluate_orphans(world, hours=2)
    assert [*open_reasons()] == [f"unknown:{RAW}"]


def test_an_outage_of_one_code_location_does_not_limit_the_other():
    mine, world = short(), other(maker=PlainMaker(Outage(SparkUnavailable("no Java"))))
    for day in (DAY, NEXT_DAY, THIRD_DAY):
        mine.drop(RAW, day, rows(1))
        world.drop(THEIRS, day, rows(1))
    world.tick()
    assert len([run for run in mine.tick() if run.succeeded]) == 3
    later(world, timedelta(hours=1))
    assert len(world.tick()) == 1
