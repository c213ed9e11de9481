"""Swapped producers: consumers depend on dataset and partition, never on the flow that fills them."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from feed_assets import Completeness, feed_asset, foreign_feed, report_state, state_table
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import harness

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-01-04:00")
NOW = datetime(2026, 1, 5, tzinfo=UTC)
REPORT = Feed.parse("web/report/v1.0")
F = Feed.parse("web/f/v1.0")


def report_of(f):
    @feed_asset("web/report/v1.0", partitions_def=DAYS, inputs={"f": f})
    def report(f):
        """Read F."""

    return report


def give(task):
    """Return rows that differ from partition to partition."""
    return Given([{"n": task.output.path}])


def world_with_foreign_f():
    f = foreign_feed("web/f/v1.0", schema="n int", partitions_def=DAYS)
    return harness(f, report_of(f), give=give, now=lambda: NOW)


def world_with_own_f():
    raw = foreign_feed("web/raw/v1.0", schema="n int", partitions_def=DAYS)

    @feed_asset("web/f/v1.0", partitions_def=DAYS, inputs={"raw": raw})
    def f(raw):
        """Make F by another pipeline."""

    return harness(raw, f, report_of(f), give=give, now=lambda: NOW)


def built(runs, asset="web/report"):
    assert all(run.succeeded for run in runs), [run.error for run in runs]
    return sorted(run.partition for run in runs if asset in run.assets)


def read_by(day):
    """Return the updates from which the report of a day was made."""
    output = Partition(REPORT, day)
    with open_ledger(settings().ledger).read() as connection:
        published = updates.newest(connection, [output])[output]
        return {
            (str(pin.partition.feed), pin.update_id) for pin in updates.consumed_by(connection, output, published.id)
        }


def test_a_feed_can_change_from_a_foreign_producer_to_ours_and_back():
    first = world_with_foreign_f()
    first.drop("web/f/v1.0", "2026-01-01", "n\n1\n")
    assert built(first.run_until_idle()) == ["2026-01-01"]
    second = world_with_own_f()
    second.drop("web/raw/v1.0", "2026-01-02", "n\n2\n")
    assert built(second.run_until_idle()) == ["2026-01-02"], "what was read before is what it was"
    assert read_by("2026-01-02") == {("web/f/v1.0", second.newest("web/f/v1.0", "2026-01-02"))}
    third = world_with_foreign_f()
    third.drop("web/f/v1.0", "2026-01-03", "n\n3\n")
    assert built(third.run_until_idle()) == ["2026-01-03"]
    assert read_by("2026-01-03") == {("web/f/v1.0", third.newest("web/f/v1.0", "2026-01-03"))}


def test_consumers_of_a_table_do_not_notice_which_flow_reports_it():
    foo = state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))

    @feed_asset("web/hours/v1.0", partitions_def=HOURS, inputs={"foo": foo})
    def hours(foo):
        """Read an hour."""

    tested = harness(foo, hours, give=give, now=lambda: NOW)
    tested.run_until_idle()
    for hour, flow in enumerate(["flow_01", "flow_99", "flow_01"]):
        starts = [datetime(2026, 1, 1, hour, tzinfo=UTC) + timedelta(minutes=5) * each for each in range(12)]
        said = {"dataset": "web/foo", "windows": [{"start": start, "records": 7} for start in starts]}
        report_state(
            [{"kind": "source", "tier": "kafka", **said}, {"kind": "part", "part": f"{flow}/{hour}", **said}], flow
        )
        assert built(tested.run_until_idle(), "web/hours") == [f"2026-01-01-{hour:02d}:00"]
