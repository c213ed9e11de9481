"""A table, datasets made of it by the hour and the day, and reports about it: a day to be shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import Completeness, Input, Within, checks, feed_asset, foreign_feed, state_table, with_automation
from feed_assets.core.feeds import Feed
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.states.window_queries import report_quality
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
PLACES = dg.MultiPartitionsDefinition({"day": DAYS, "place": dg.StaticPartitionsDefinition(["apac", "emea"])})
DAY, NASTY = "2026-01-20", "<script>alert(1)</script> & \"more\" <img src=x onerror='alert(2)'>"
MIDNIGHT = datetime(2026, 1, 20, tzinfo=UTC)
FOO, HOUR, BASE = Feed.parse("web/foo"), timedelta(hours=1), timedelta(minutes=5)

foo = state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))
raw = foreign_feed("web/raw/v1.0", partitions_def=PLACES, schema="n int")


@feed_asset("web/feature/v1.0", partitions_def=HOURS, inputs={"foo": foo})
def feature(foo):
    """Make an hour."""


@feed_asset("web/metric/v1.0", partitions_def=DAYS, inputs={"foo": Input(foo, mapping=Within())})
def metric(foo):
    """Make a day."""


@feed_asset("web/sums/v1.0", partitions_def=PLACES, inputs={"raw": raw}, checks=[checks.within("n", 0, 100)])
def sums(raw):
    """Make a day and place: the one of apac is refused."""


defs = with_automation(dg.Definitions(assets=[foo, raw, feature, metric, sums]))


def harness() -> Harness:
    """Return the harness of this module, without Spark."""
    return Harness(defs, maker=PlainMaker(_give), now=lambda: MIDNIGHT + 15.5 * HOUR)


def _give(task) -> Given:
    return Given([{"n": 1}], [], {"within_n": 1} if "apac" in task.output.key else {})


def report_hours(ledger: Ledger, first: int, last: int, *, ingested: int = 100, source: int = 100) -> None:
    """Report hours of foo in addition to earlier reports: records of each 5 minutes."""
    starts = [MIDNIGHT + first * HOUR + number * BASE for number in range((last - first) * 12)]
    counts = [("kafka", source), ("", ingested)]
    told = [Report(FOO, "", f"{first}", tuple((start, n) for start in starts), tier) for tier, n in counts]
    report(ledger, told, MIDNIGHT)


@contextmanager
def filled_home(folder: Path, empty_ledger: Path) -> Iterator[Path]:
    """Yield a home that contains the day."""
    (folder / "blackboard").mkdir()
    (folder / "ledger.db").write_bytes(empty_ledger.read_bytes())
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        settings.cache_clear()
        _fill(open_ledger(settings().ledger))
        yield folder
    settings.cache_clear()


def _fill(ledger: Ledger) -> None:
    """Fill the day: hours 0 to 8, 10 and 11 are complete, 12 is not, 9 is missing.

    Once they are read, hour 3 turns out invalid and hour 5 opens again.
    """
    with harness() as world:
        world.tick()
        report_hours(ledger, 0, 9)
        report_hours(ledger, 10, 12)
        report_hours(ledger, 12, 13, ingested=90)
        for place in ("apac", "emea"):
            world.drop("web/raw/v1.0", f"{DAY}/{place}", "n\n1\n")
        world.now = lambda: MIDNIGHT + 24.5 * HOUR
        world.run_until_idle()
        hour = WindowAddress(FOO, "", "hour", f"{DAY}-03:00")
        report_quality(ledger, hour, "no_bots", "failed", NASTY, "quality team", MIDNIGHT)
        report_hours(ledger, 5, 6, source=110, ingested=0)
        world.tick()
