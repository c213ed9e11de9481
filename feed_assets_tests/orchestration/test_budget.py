"""The time limit of a tick with very much to do, and bad parts that could make Dagster fail a whole tick."""

from time import monotonic

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import Input
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import due, log, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import update
from feed_assets.orchestration.ticks.tick import FEWEST_REPORTS
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, harness, raw_feed, requested, rows, sums_of

pytestmark = pytest.mark.usefixtures("home")


def waiting(count: int) -> Harness:
    """Insert an unread update for each of `count` partitions of the raw feed."""
    keys = [f"k{number:05}" for number in range(count)]
    parts = dg.StaticPartitionsDefinition(keys)
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(raw, partitions_def=parts))
    with open_ledger(settings().ledger).change() as connection:
        first = log.last(connection) + 1
        same = {
            "feed": RAW,
            "id": "20200101.000000",
            "origin": updates.FOREIGN,
            "state": updates.PUBLISHED,
            "files": 1,
            "size": 1,
        }
        new = [
            {**same, "partition": key, "version": key, "at": utc_now(), "changed": first + at}
            for at, key in enumerate(keys)
        ]
        connection.execute(sa.insert(update), new)
        partitions = [Partition(Feed.parse(RAW), key) for key in keys]
        log.append(connection, [Change(at, log.UPDATE, "20200101.000000", utc_now()) for at in partitions])
    return world


def test_each_step_does_one_piece_when_time_is_over_and_later_ticks_the_rest(setting):
    setting(tick_seconds=1e-9, max_requests=1000)
    world = waiting(250)
    ticks, cursor = [], None
    for _ in range(6):
        ticks.append(world.ask(cursor))
        cursor = ticks[-1].cursor
    assert len(ticks[0].targets) == 100
    assert [len(tick.events) for tick in ticks] == [FEWEST_REPORTS] * 6
    assert len({event.partition for tick in ticks for event in tick.events}) == 6 * FEWEST_REPORTS
    assert len({partition for tick in ticks for _, partition in tick.targets}) == 250


@pytest.mark.soak
def test_a_tick_keeps_its_time_with_ten_thousand_updates_waiting(setting):
    setting(tick_seconds=20)
    world = waiting(10_000)
    cursor, wanted = None, list[str | None]()
    for _ in range(5):
        began = monotonic()
        asked = world.ask(cursor)
        took = monotonic() - began + 0.01 * len(asked.events)
        cursor, wanted = asked.cursor, wanted + [partition for _, partition in asked.targets]
        assert took <= 20, f"{took:.1f} s"
    assert len({*wanted}) == len(wanted) >= 500  # The number of neighbours among the others depends on the machine.
    began = monotonic()
    dg.evaluate_automation_conditions(world.definitions, world.instance)
    assert monotonic() - began <= 20


def test_a_dynamic_partition_that_was_removed_does_not_hold_up_the_others():
    regions = dg.DynamicPartitionsDefinition(name="regions")
    raw = raw_feed(partitions_def=regions)
    world = harness(raw, sums_of(raw, partitions_def=regions))
    world.instance.add_dynamic_partitions("regions", ["north", "south"])
    for region in ("north", "south"):
        world.drop(RAW, region, rows(1))
    assert sorted(requested(world)) == ["north", "south"]
    world.instance.delete_dynamic_partition("regions", "north")
    due.end_waits(open_ledger(settings().ledger), utc_now())
    sensor = world.definitions.resolve_sensor_def("feeds")
    context = dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="feeds")
    with context, dg.partition_loading_context(dynamic_partitions_store=world.instance):
        found = sensor.evaluate_tick(context)  # Dagster validates the requests here: one bad key fails all.
    assert [request.partition_key for request in found.run_requests] == ["south"]


class Broken(dg.IdentityPartitionMapping):
    """A user's mapping that raises for one partition."""

    def get_upstream_mapped_partitions_result_for_partitions(self, downstream_partitions_subset, *args, **kwargs):
        if DAY in (downstream_partitions_subset or ()).get_partition_keys():
            raise ZeroDivisionError("a mapping with an error")
        return super().get_upstream_mapped_partitions_result_for_partitions(
            downstream_partitions_subset, *args, **kwargs
        )


def test_a_mapping_that_raises_for_one_partition_does_not_hold_up_the_others():
    raw = raw_feed()
    world = harness(raw, sums_of(Input(raw, mapping=Broken())))
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    assert requested(world) == [NEXT_DAY]
