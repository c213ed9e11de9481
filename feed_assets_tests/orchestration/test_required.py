"""An input of which only the output's own partition is required; the others are read whenever they are there."""

from datetime import timedelta

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import Input
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import write
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import consumed
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.rebuild_location import rebuild_ledger
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.orchestration.kept import lose
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    harness,
    outcomes,
    raw_feed,
    rows,
    sums_of,
)

FOURTH_DAY = "2020-01-04"
TWO_DAYS_BACK = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=0)


def window() -> Harness:
    """Build raw -> sums of a day and the two days before it, of which only the day itself is required."""
    raw = raw_feed()
    return harness(raw, sums_of(Input(raw, mapping=TWO_DAYS_BACK, required="own")))


def days_read(day: str) -> list[str]:
    """Return the input days from which the newest update of `sums` was built."""
    mine = (consumed.c.feed == SUMS) & (consumed.c.partition == day) & consumed.c.is_input
    newest = sa.select(sa.func.max(consumed.c.id)).where(mine).scalar_subquery()
    query = sa.select(consumed.c.input_partition).where(mine, consumed.c.id == newest)
    with open_ledger(settings().ledger).read() as connection:
        return sorted(connection.execute(query).scalars())


def test_a_window_is_built_from_the_days_that_are_there_if_its_own_day_is():
    world = window()
    world.drop(RAW, THIRD_DAY, rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", THIRD_DAY, True)]
    assert days_read(THIRD_DAY) == [THIRD_DAY]
    assert world.newest(SUMS, FOURTH_DAY) is None


def test_a_later_day_rebuilds_only_the_windows_built_without_it():
    world = window()
    world.drop(RAW, THIRD_DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(2))
    assert sorted(outcomes(world.tick())) == [("sums", DAY, True), ("sums", THIRD_DAY, True)]
    assert [days_read(day) for day in (DAY, THIRD_DAY)] == [[DAY], [DAY, THIRD_DAY]]
    assert world.run_until_idle() == []
    world.drop(RAW, NEXT_DAY, rows(3))
    assert sorted(outcomes(world.tick())) == [("sums", NEXT_DAY, True), ("sums", THIRD_DAY, True)]
    assert days_read(THIRD_DAY) == [DAY, NEXT_DAY, THIRD_DAY]
    assert world.run_until_idle() == []


def test_a_window_is_rebuilt_without_a_day_that_was_invalidated():
    world = window()
    world.drop(RAW, THIRD_DAY, rows(1))
    gone = world.drop(RAW, NEXT_DAY, rows(2))
    world.run_until_idle()
    assert days_read(THIRD_DAY) == [NEXT_DAY, THIRD_DAY]
    world.invalidate(RAW, NEXT_DAY, gone)
    assert outcomes(world.tick()) == [("sums", THIRD_DAY, True)]
    assert days_read(THIRD_DAY) == [THIRD_DAY]


@pytest.mark.parametrize("day", [DAY, THIRD_DAY])
def test_a_named_update_of_an_optional_day_has_to_exist(day):
    world = window()
    world.drop(RAW, THIRD_DAY, rows(1))
    world.run_until_idle()
    updates = {f"{RAW}/{day}": "20180516.120000"}
    done = dg.materialize(
        [*world.definitions.assets],
        partition_key=THIRD_DAY,
        selection=["t/sums", "t/sums_rejects"],
        run_config={"ops": {"t__sums": {"config": {"updates": updates}}}},
        instance=world.instance,
        raise_on_error=False,
    )
    assert not done.success
    assert "no valid update 20180516.120000" in str(done.failure_data_for_node("t__sums").error)


def test_a_lost_ledger_is_rebuilt_with_the_days_that_were_there(home):
    world = window()
    partition, content = Partition(Feed.parse(RAW), THIRD_DAY), {"part-1": rows(1).encode()}
    write.publish(world.board, partition, content, utc_now() - timedelta(hours=1))
    world.run_until_idle()
    lose(home)
    with dg.partition_loading_context(utc_now(), world.instance):
        graph = Graph(world.definitions.resolve_asset_graph())
        found = rebuild_ledger(graph, Services.of(settings()), utc_now(), rows=False, trust=True)
    (assumed,) = found.assumed
    assert [pin.partition.key for pin in assumed.pins] == [THIRD_DAY]
    assert world.run_until_idle() == []


def test_required_own_without_a_mapping_is_refused():
    with pytest.raises(
        InvalidDefinition, match=r"Input of t/raw has required='own' and no mapping: expected a mapping"
    ):
        Input(raw_feed(), required="own")
