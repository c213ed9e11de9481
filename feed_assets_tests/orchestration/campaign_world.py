"""A table that others fill, its consumers, and the processes that run them and are killed."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import dagster as dg

from feed_assets import Completeness, DayToDate, Input, feed_asset, report_state, state_table, with_automation
from feed_assets.cli.loaded_location import open_instance
from feed_assets.feeds.stores import local_root
from feed_assets.runs.maker import Task
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker
from feed_assets_tests.support.kill_points import call_and_die, die_at

NOW = datetime(2026, 1, 3, 1, tzinfo=UTC)
PARTITIONS = dg.HourlyPartitionsDefinition("2026-01-02-14:00", end_date="2026-01-02-17:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-02", end_date="2026-01-03")


def reader(name, partitions_def, read, **options):
    @feed_asset(f"web/{name}/v1.0", partitions_def=partitions_def, inputs={"read": read}, **options)
    def made(read):
        """Read one input."""

    return made


foo = state_table("web/foo", partitions_def=PARTITIONS, completeness=Completeness(grains=("20min", "hour", "day")))
preagg = reader("preagg", PARTITIONS, foo)
defs = with_automation(
    dg.Definitions(
        assets=[
            foo,
            preagg,
            reader("report", PARTITIONS, preagg),
            reader("anyhow", PARTITIONS, Input(foo, ignore_quality_issue=True)),
            reader("intraday", PARTITIONS, Input(foo, mapping=DayToDate())),
            reader("daily", DAYS, foo),
        ]
    )
)


def rows(_task: Task) -> Given:
    """Return rows that differ from run to run."""
    return Given([{"n": uuid4().hex}])


def world(now: Callable[[], datetime], give: Callable[[Task], Given] = rows, **options) -> Harness:
    """Build a harness without Spark."""
    return Harness(defs, maker=PlainMaker(give), now=now, **options)


def in_a_home(now: Callable[[], datetime], **options) -> Harness:
    """Build a harness on the Dagster instance of the home, which other processes find."""
    return world(now, instance=open_instance(), **options)


def tick_and_die(number: int, now: datetime) -> None:
    """Run everything that is due, and be killed on the way."""
    with in_a_home(lambda: now) as tested:
        _die(number, tested.run_until_idle)


def run_and_die(number: int, now: datetime) -> None:
    """Tick, and be killed in the first run at a change after its function."""

    def give(task: Task) -> Given:
        die_at(number, local_root(settings().blackboard))
        return rows(task)

    with in_a_home(lambda: now, give=give) as tested:
        tested.tick()


def report_and_die(number: int, lines: list[dict]) -> None:
    """Report, and be killed on the way."""
    _die(number, report_state, lines, "ada")


def _die(number: int, call: Callable[..., object], *arguments: object) -> None:
    call_and_die(number, local_root(settings().blackboard), call, *arguments)
