"""Feeds with windows, tick by tick: their writer or first reader counts them, and other readers wait."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import Completeness, feed_asset, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, log
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import harness

pytestmark = pytest.mark.usefixtures("home")

RAW, CLEAN, SHOWN, TOP = "t/raw/v1.0", "t/clean/v1.0", "t/shown/v1.0", "t/top/v1.0"
DAY = "2026-01-01"
DAYS = dg.DailyPartitionsDefinition(DAY)
SERVED = Completeness(grains=("hour", "day"), tiers=("adserver",))
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
NOW = MIDNIGHT + timedelta(days=9)
HOURS = [MIDNIGHT + timedelta(hours=hour) for hour in range(24)]
WHOLE = tuple((hour, 10) for hour in HOURS)
LACKING = (*WHOLE[:-1], (HOURS[-1], 9))
CSV = "id,at\n1,2026-01-01 00:00:00\n"


def raw(**options) -> dg.AssetSpec:
    return foreign_feed(
        RAW,
        partitions_def=DAYS,
        schema="id int, at timestamp",
        **{"completeness": SERVED, "event_time": "at", **options},
    )


def dataset(name: str, read, completeness: Completeness | None = None) -> dg.AssetsDefinition:
    @feed_asset(
        name,
        partitions_def=DAYS,
        inputs={"read": read},
        event_time="at" if completeness else None,
        completeness=completeness,
    )
    def made(read, partition):
        """Read one input."""

    return made


class World:
    """Datasets whose next run counts `counts`, in its own rows and in those of the raw feed."""

    def __init__(self, *assets) -> None:
        self.counts, self.made, self.now, self.fails = WHOLE, list[str](), NOW, False
        self.harness = harness(*assets, give=self.give, now=lambda: self.now)
        self.harness.tick()  # Declarations are now in the ledger, and with them the base grain.

    def give(self, task) -> Given:
        if self.fails and str(task.recipe.feed) == CLEAN:
            raise ValueError("it fails")
        self.made.append(str(task.recipe.feed))
        own = self.counts if task.recipe.grain else None
        return Given([{"n": len(self.made)}], windows=own, counted={"read": self.counts})

    def state(self, feed: str, grain: str = "day", key: str = DAY) -> str | None:
        at = WindowAddress(Feed.parse(feed), "", grain, key)
        with ledger().read() as connection:
            found = window_queries.stored_windows(connection, [at])
        return str(found[at].state) if at in found else None

    def verdict(self, feed: str):
        graph = Graph(self.harness.definitions.resolve_asset_graph())
        with ledger().read() as connection:
            (found,) = verdicts(graph, connection, [Partition(Feed.parse(feed), DAY)], self.now)
        return found


def ledger():
    return open_ledger(settings().ledger)


def served(feed: str, counts=WHOLE, version: int = 0) -> None:
    """Report the ad server's counts."""
    told = [Report(Feed.parse(feed), "", str(at), ((at, n),), "adserver", f"{version:020d}") for at, n in counts]
    assert not report(ledger(), told, NOW).rejected


def test_the_first_reader_counts_a_foreign_feed_and_others_wait_for_its_windows():
    world = World(read := raw(), dataset(CLEAN, read), dataset(TOP, read))
    world.harness.drop(RAW, DAY, CSV)
    world.harness.run_until_idle()
    assert world.made == [CLEAN]
    assert world.state(RAW) == "open"
    verdict = world.verdict(TOP)
    assert verdict.state is State.WAITS_FOR_INPUT
    assert "no count of adserver yet" in verdict.reason
    served(RAW)
    world.harness.run_until_idle()
    assert (world.state(RAW), world.made) == ("complete", [CLEAN, TOP])


def test_a_newer_update_opens_its_windows_until_they_are_counted():
    world = World(read := raw(), dataset(CLEAN, read), dataset(TOP, read))
    served_and_built(world)
    world.counts = LACKING
    newer = world.harness.drop(RAW, DAY, CSV + "2,2026-01-01 00:00:00\n")
    world.harness.run_until_idle()
    assert (world.state(RAW), world.made) == ("open", [CLEAN, TOP, CLEAN])
    world.harness.invalidate(RAW, DAY, newer)
    world.harness.run_until_idle()
    assert world.state(RAW) == "complete"


def served_and_built(world: World) -> None:
    world.harness.drop(RAW, DAY, CSV)
    world.harness.tick()
    served(RAW)
    world.harness.run_until_idle()
    assert world.made == [CLEAN, TOP]


def test_a_reader_made_of_another_reader_does_not_count():
    read, named_first = raw(), "t/a/v1.0"
    clean = dataset(CLEAN, read)

    @feed_asset(named_first, partitions_def=DAYS, inputs={"read": read, "clean": clean})
    def joined(read, clean):
        """Read both inputs."""

    world = World(read, clean, joined)
    world.harness.drop(RAW, DAY, CSV)
    served(RAW)
    world.harness.run_until_idle()
    assert (world.state(RAW), world.made) == ("complete", [CLEAN, named_first])


def test_a_reader_with_other_partitions_does_not_count():
    read, later = raw(), dg.DailyPartitionsDefinition("2026-01-05")

    @feed_asset(CLEAN, partitions_def=later, inputs={"read": read})
    def made(read):
        """Read one input."""

    world = World(read, made, dataset(TOP, read))
    world.harness.drop(RAW, DAY, CSV)
    served(RAW)
    world.harness.run_until_idle()
    assert (world.state(RAW), world.made) == ("complete", [TOP])


def test_the_next_reader_counts_data_read_before_the_feed_had_windows():
    before = World(plain := raw(completeness=None, event_time=None), dataset(CLEAN, plain))
    before.harness.drop(RAW, DAY, CSV)
    before.harness.run_until_idle()
    assert before.made == [CLEAN]
    assets = (read := raw()), dataset(CLEAN, read), dataset(TOP, read)
    before.harness.definitions = harness(*assets).definitions
    assert "is not counted yet: the run that reads it counts it" in before.verdict(TOP).reason
    world = World(*assets)
    served(RAW)
    world.harness.run_until_idle()
    assert (world.state(RAW), world.made) == ("complete", [TOP])


def test_a_reader_that_waits_for_a_person_leaves_counting_to_the_next_one(setting):
    setting(max_attempts=1)
    world = World(read := raw(), dataset(CLEAN, read), dataset(TOP, read))
    world.fails = True
    world.harness.drop(RAW, DAY, CSV)
    served(RAW)
    for _ in range(4):
        world.harness.tick()
        world.now += timedelta(minutes=1)
    assert world.verdict(CLEAN).state is State.WAITS_FOR_A_PERSON
    assert world.made == [TOP]


def test_without_an_event_time_all_readers_wait_for_the_producers_counts():
    world = World(read := raw(event_time=None), dataset(CLEAN, read))
    world.harness.drop(RAW, DAY, CSV)
    served(RAW)
    world.harness.run_until_idle()
    assert world.made == []
    report(ledger(), [Report(Feed.parse(RAW), "", "s3://theirs", WHOLE)], NOW, "producer")
    world.harness.run_until_idle()
    assert (world.state(RAW), world.made) == ("complete", [CLEAN])


def test_a_dataset_counts_its_own_rows_and_readers_wait_until_it_is_complete():
    plain = foreign_feed(RAW, partitions_def=DAYS, schema="id int, at timestamp")
    clean = dataset(CLEAN, plain, SERVED)
    world = World(plain, clean, dataset(TOP, clean))
    world.counts = LACKING
    world.harness.drop(RAW, DAY, CSV)
    served(CLEAN)
    world.harness.run_until_idle()
    assert (world.state(CLEAN), world.state(CLEAN, "hour", f"{DAY}-22:00")) == ("open", "complete")
    assert world.made == [CLEAN]
    world.counts = WHOLE
    world.harness.drop(RAW, DAY, CSV + "2,2026-01-01 00:00:00\n")
    world.harness.run_until_idle()
    assert (world.state(CLEAN), world.made) == ("complete", [CLEAN, CLEAN, TOP])


def test_a_late_count_opens_windows_of_a_closed_partition_until_accepted():
    plain = foreign_feed(RAW, partitions_def=DAYS, schema="id int, at timestamp")
    world = World(plain, dataset(CLEAN, plain, SERVED))
    world.harness.drop(RAW, DAY, CSV)
    served(CLEAN)
    world.harness.run_until_idle()
    closures.close(ledger(), [Partition(Feed.parse(CLEAN), DAY)], "2026 is final", "ann", NOW)
    served(CLEAN, ((HOURS[0], 11),), 1)
    assert world.state(CLEAN) == "open"
    window_queries.accept(ledger(), WindowAddress(Feed.parse(CLEAN), "", "day", DAY), "one is lost", "ann", NOW)
    assert (world.state(CLEAN), world.made) == ("complete", [CLEAN])


def test_nothing_is_counted_again_when_nothing_has_changed():
    world = World(read := raw(), dataset(CLEAN, read), dataset(TOP, read))
    served_and_built(world)
    before = last_change()
    world.harness.run_until_idle()
    assert last_change() == before


def last_change() -> int:
    with ledger().read() as connection:
        return log.last(connection)


def test_a_function_with_a_partition_parameter_gets_its_time_range():
    asked: list[Partition] = []
    world = World(read := raw(completeness=None), dataset(CLEAN, read))
    world.harness = harness(read, dataset(CLEAN, read), give=lambda task: asked.append(task.output) or Given())
    world.harness.drop(RAW, DAY, CSV)
    world.harness.run_until_idle()
    assert asked == [Partition(Feed.parse(CLEAN), DAY)]
    assert [(each.start, each.end) for each in asked] == [(MIDNIGHT, MIDNIGHT + timedelta(days=1))]


@pytest.mark.parametrize("event_time", ["id", "when"])
def test_an_event_time_is_a_timestamp_column_of_the_schema(event_time):
    with pytest.raises(InvalidDefinition, match=rf"event_time '{event_time}': expected a column of type timestamp: at"):
        raw(event_time=event_time)
