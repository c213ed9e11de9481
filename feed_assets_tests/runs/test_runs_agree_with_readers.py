"""A complete run publishes the values that all readers have of a Parquet file, or refuses the same files."""

from collections.abc import Sequence
from typing import Any

import feed_assets
from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import Partition
from feed_assets.feeds.write import publish
from feed_assets.runs.phases import Published
from feed_assets.runs.recipe import RecipeInput
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, RAW, Lake
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.odd_parquet import FILES, REFUSED
from feed_assets_tests.support.parquet_schemas import schema_of


def published(lake: Lake, name: str) -> Sequence[Any] | str:
    """Run, and return the published values of the one column, or REFUSED."""
    raw = publish(lake.services.board, Partition(RAW, DAY), {"part-0.parquet": FILES[name][0]}, NOW)
    source = RecipeInput("raw", RAW, "parquet", schema_of(lake.services.board, raw))
    try:
        outcome = lake.clean(sources=(source,), event_time=None, code_version=name)
    except UnreadableUpdate as error:
        return REFUSED if "part-0.parquet" in str(error) else str(error)
    assert isinstance(outcome, Published)
    rows = feed_assets.read(str(CLEAN), DAY, blackboard=lake.services.board.url).to_arrow().to_pylist()
    return [next(iter(row.values())) for row in rows]


NO_MAPS = [name for name in FILES if name != "nanoseconds in a map"]
"""Files that runs refuse: maps, which have no digest."""


@each_case("name", NO_MAPS)
def test_a_run_publishes_the_values_that_all_readers_read(lake, name):
    assert published(lake, name) == FILES[name][1]
