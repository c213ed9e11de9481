"""A dataset of ours with `completeness`: the declaration alone makes runs count their rows, in Spark itself."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import Completeness, Regions, feed_asset, foreign_feed, report_state
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import window_queries
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness
from feed_assets_tests.support.sum_projects import harness

pytestmark = pytest.mark.usefixtures("home")

RAW, OWN, BELOW = "t/raw/v1.0", "t/own/v1.0", "t/below/v1.0"
DAY = "2026-05-17"
DAYS = dg.DailyPartitionsDefinition(DAY, end_date="2026-05-18")
MIDNIGHT = datetime(2026, 5, 17, tzinfo=UTC)
NOW = MIDNIGHT + timedelta(days=2)
BY_HOUR = Completeness(grains=("hour", "day"), tiers=("kafka",))
IST = "Asia/Kolkata"


def counted(completeness: Completeness | None, *, partitions_def=DAYS, regions: Regions | None = None, rows=None):
    """Build raw -> own (counted if it has completeness) -> below."""
    raw = foreign_feed(RAW, schema="id int, at timestamp", partitions_def=partitions_def)

    @feed_asset(
        OWN,
        partitions_def=partitions_def,
        inputs={"raw": raw},
        event_time="at",
        completeness=completeness,
        regions=regions,
        code_version="1",
    )
    def own(raw):
        return rows(raw) if rows else raw

    @feed_asset(BELOW, partitions_def=partitions_def, inputs={"own": own})
    def below(own):
        return own

    return raw, own, below


def with_spark(*assets) -> Harness:
    return harness(*assets, maker=None, now=lambda: NOW)


def csv(starts) -> str:
    return "id,at\n" + "".join(f"{n},{at:%Y-%m-%d %H:%M:%S}\n" for n, at in enumerate(starts))


def sourced(starts, count: int = 1, sub_partition: dict[str, str] | None = None) -> None:
    said = [{"start": start, "records": count} for start in starts]
    outcome = report_state(
        [{"kind": "source", "dataset": OWN, "tier": "kafka", "windows": said, "sub_partition": sub_partition or {}}]
    )
    assert not outcome.rejected, outcome.rejected


def state_of(grain: str, key: str, sub_partition: str = "") -> tuple[str, int] | None:
    at = WindowAddress(Feed.parse(OWN), sub_partition, grain, key)
    with open_ledger(settings().ledger).read() as connection:
        found = window_queries.stored_windows(connection, [at])
    return (str(found[at].state), found[at].records) if at in found else None


def built(world: Harness) -> list[str]:
    ran = world.run_until_idle()
    assert all(run.succeeded for run in ran), [run.error for run in ran]
    return [name for run in ran for name in run.assets if not name.endswith("_rejects")]


HOURS = [MIDNIGHT + timedelta(hours=hour, minutes=30) for hour in range(24)]
STARTS = [MIDNIGHT + timedelta(hours=hour) for hour in range(24)]


def test_a_declaration_alone_makes_a_run_count_its_rows(spark):
    world = with_spark(*counted(BY_HOUR))
    world.drop(RAW, DAY, csv(HOURS))
    world.tick()
    sourced(STARTS)
    assert built(world) == ["t/below"]
    assert state_of("day", DAY) == ("complete", 24)
    assert state_of("hour", f"{DAY}-07:00") == ("complete", 1)


def test_windows_stay_open_until_the_written_rows_are_complete(spark):
    world = with_spark(*counted(BY_HOUR))
    world.drop(RAW, DAY, csv(HOURS[:-1]))
    sourced(STARTS)
    assert built(world) == ["t/own"]
    assert state_of("day", DAY) == ("open", 23)
    world.drop(RAW, DAY, csv(HOURS))
    assert built(world) == ["t/own", "t/below"]
    assert state_of("day", DAY) == ("complete", 24)


@pytest.mark.parametrize("grains", [("5min", "day"), ("day",)])
def test_rows_are_counted_for_any_smallest_grain_in_any_zone(spark, grains):
    """India's days begin at 18:30 UTC, so their counts are made by quarters of an hour."""
    days = dg.DailyPartitionsDefinition(DAY, end_date="2026-05-18", timezone=IST)
    first = MIDNIGHT - timedelta(hours=5, minutes=30)
    times = [first, first + timedelta(hours=23, minutes=59)]
    world = with_spark(*counted(Completeness(grains, tiers=("kafka",), tz=IST), partitions_def=days))
    world.drop(RAW, DAY, csv(times))
    world.tick()
    windows_of_day = [first + timedelta(minutes=5 * n) for n in range(288)] if grains[0] == "5min" else [first]
    held = {first, times[1] - timedelta(minutes=4)} if grains[0] == "5min" else set()
    sourced([at for at in windows_of_day if at not in held], 0 if held else 2)
    sourced(sorted(held)) if held else None
    assert built(world) == ["t/below"]
    assert state_of("day", DAY) == ("complete", 2)


def test_regions_are_counted_by_their_partitions(spark):
    parts = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["apac", "emea"])})
    regions = Regions({"apac": "UTC", "emea": "UTC"})
    world = with_spark(*counted(BY_HOUR, partitions_def=parts, regions=regions))
    for region in ("apac", "emea"):
        world.drop(RAW, f"{DAY}/{region}", csv(HOURS if region == "apac" else HOURS[:12]))
    world.tick()
    for region in ("apac", "emea"):
        sourced(STARTS, sub_partition={"region": region})
    built(world)
    found = {region: state_of("day", DAY, f"region={region}") for region in ("apac", "emea")}
    assert found == {"apac": ("complete", 24), "emea": ("open", 12)}


def test_data_made_before_completeness_was_declared_are_counted_at_the_next_run(spark):
    before = with_spark(*counted(None))
    before.drop(RAW, DAY, csv(HOURS))
    assert built(before) == ["t/own", "t/below"]
    after = Harness(
        harness(*counted(BY_HOUR)).definitions, before.instance, maker=None, now=lambda: NOW + timedelta(minutes=1)
    )
    sourced(STARTS)
    assert (built(after), state_of("day", DAY)) == ([], ("open", 0))
    job = after.definitions.resolve_implicit_global_asset_job_def()
    own = [dg.AssetKey(["t", "own"]), dg.AssetKey(["t", "own_rejects"])]
    run = job.execute_in_process(instance=after.instance, partition_key=DAY, asset_selection=own)
    assert run.success
    built(after)
    assert state_of("day", DAY) == ("complete", 24)


def test_the_test_maker_refuses_counts_without_declared_completeness():
    """A test's own counts once hid that no declaration demanded them."""
    world = harness(*counted(None), give=lambda task: Given([{"n": 1}], windows=((MIDNIGHT, 1),)))
    world.drop(RAW, DAY, csv(HOURS))
    (ran,) = world.tick()
    assert not ran.succeeded
    assert "no completeness" in (ran.error or "")


def test_completeness_without_an_event_time_is_refused():
    with pytest.raises(InvalidDefinition, match="has `completeness` and no `event_time`"):

        @feed_asset(OWN, inputs={}, completeness=BY_HOUR)
        def own():
            """Do nothing."""
