"""Runs of a range of days."""

import dagster as dg

from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import BOTH, DAY, NEXT_DAY, RAW, THIRD_DAY, rows, short

THREE_DAYS = (DAY, NEXT_DAY, THIRD_DAY)
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def materialize(world: Harness, first: str, last: str, *assets: str) -> dg.ExecuteInProcessResult:
    """Run a range of partitions of some assets of a world."""
    return dg.materialize(
        [*world.definitions.assets],
        instance=world.instance,
        selection=[dg.AssetKey.from_user_string(asset) for asset in assets or BOTH],
        tags={START: first, END: last},
        raise_on_error=False,
    )


def three_days(*numbers: int, world: Harness | None = None, **options) -> Harness:
    """Drop raw numbers for three days, and return a world that sums them."""
    world = world or short(**options)
    for day, number in zip(THREE_DAYS, numbers, strict=True):
        world.drop(RAW, day, rows(number))
    return world
