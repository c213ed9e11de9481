"""Appendable datasets of ours: each increment is a batch, and a full load replaces all batches."""

import re

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import ByEvents, event_table, feed_asset, foreign_feed, warehouse_table
from feed_assets.core.batch_names import set_version
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed
from feed_assets.feeds import batch_set
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import batch_sets, event_store
from feed_assets.ledger.tables import due
from feed_assets.settings import settings
from feed_assets.testing import rows_of
from feed_assets_tests.support.appended_world import (
    OUTPUT,
    SALES,
    beside,
    by_hand,
    held,
    known,
    ledger,
    reported,
    take_back,
    totals,
    world,
)


def test_each_increment_is_a_batch_and_readers_get_all_batches(shop, told):
    world_ = world(shop, told)
    shop.write("a", "b")
    world_.run_until_idle()
    shop.write("c")
    world_.run_until_idle()
    assert told == [("reload", [(None, 1)]), ("incremental", [(1, 2)])]
    assert held() == {"b00000001": ["a", "b"], "b00000002": ["c"]}
    assert [*held()] == known()
    assert totals(world_) == "a,b,c"
    assert world_.run_until_idle() == []


def test_a_full_load_replaces_all_batches_by_one(shop, told):
    world_ = world(shop, told)
    for key in "abc":
        shop.write(key)
        world_.run_until_idle()
    shop.rows.clear()
    shop.write("d", operation=Operation.OVERWRITE)
    world_.run_until_idle()
    assert told[-1] == ("reload", [(None, 4)])
    assert held() == {"b00000001-00000004": ["d"]}
    assert known() == ["b00000001-00000004"]
    assert totals(world_) == "d"
    shop.write("e")
    world_.run_until_idle()
    assert held() == {"b00000001-00000004": ["d"], "b00000005": ["e"]}


def test_our_events_say_insert_for_a_batch_and_overwrite_for_a_full_load(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    shop.write("c", operation=Operation.OVERWRITE)
    world_.run_until_idle()
    with ledger().read() as connection:
        found = [*reversed(event_store.newest(connection, 100, SALES))]
    found = [event for event in found if not event.context.get("no_new_data")]
    assert {(event.partition, event.flag) for event in found} == {(OUTPUT, None)}
    assert [(event.operation, event.context["batch"]) for event in found] == [
        (Operation.INSERT, "b00000001"),
        (Operation.INSERT, "b00000002"),
        (Operation.OVERWRITE, "b00000001-00000003"),
    ]
    assert [event.previous for event in found] == [None, found[0].marker, found[1].marker]
    assert [[int(each or 0) for each in event.context["slices"]["shop/orders"]] for event in found] == [
        [0, 1],
        [1, 2],
        [0, 3],
    ]


def test_late_rows_rebuild_the_batch_of_their_slice_and_appear_once(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.last = 9
    shop.write("b")
    world_.run_until_idle()
    shop.write("c")
    world_.run_until_idle()
    shop.late("late", 5)
    world_.run_until_idle()
    assert told[-1] == ("incremental", [(1, 10)])
    assert held() == {"b00000001": ["a"], "b00000002": ["b", "late"], "b00000003": ["c"]}
    assert totals(world_) == "a,b,c,late"
    with ledger().read() as connection:
        (last, *_) = [each for each in event_store.newest(connection, 9, SALES) if not each.context.get("no_new_data")]
    assert (last.operation, last.context["batch"]) == (Operation.OVERWRITE, "b00000002")


def test_rereading_a_slice_by_hand_replaces_its_batch(shop, told):
    world_ = world(shop, told)
    for key in "abc":
        shop.write(key)
        world_.run_until_idle()
    shop.rows["orders", "b"]["by"] = "hand"
    slices = [{"table": "shop/orders", "after": "1", "upto": "2"}]
    assert by_hand(world_, slices=slices).success
    assert told[-1] == ("incremental", [(1, 2)])
    assert held() == {"b00000001": ["a"], "b00000002": ["b"], "b00000003": ["c"]}
    assert [row["by"] for row in rows_of(open_board(settings()), _update("b00000002"))] == ["hand"]


def _update(batch):
    found = batch_set.latest(open_board(settings()), OUTPUT).updates
    return next(each for each in found if each.partition.name == batch)


def test_a_slice_over_several_batches_loads_everything(shop, told):
    world_ = world(shop, told)
    for key in "abc":
        shop.write(key)
        world_.run_until_idle()
    assert by_hand(world_, slices=[{"table": "shop/orders", "after": "1", "upto": "3"}]).success
    assert told[-1] == ("reload", [(None, 3)])
    assert held() == {"b00000001-00000004": ["a", "b", "c"]}
    assert totals(world_) == "a,b,c"
    assert world_.run_until_idle() != []
    assert totals(world_) == "a,b,c"


def test_an_invalidated_batch_is_read_again_as_a_new_batch(shop, told):
    world_ = world(shop, told)
    for key in "abc":
        shop.write(key)
        world_.run_until_idle()
    take_back(world_, "b00000002")
    world_.run_until_idle()
    assert told[-1] == ("incremental", [(1, 2)])
    assert held() == {"b00000001": ["a"], "b00000003": ["c"], "b00000004": ["b"]}
    assert totals(world_) == "a,b,c"


def test_invalidating_a_full_load_brings_back_the_batches_before_it(shop, told):
    world_ = world(shop, told)
    for key in "ab":
        shop.write(key)
        world_.run_until_idle()
    shop.write("c", operation=Operation.OVERWRITE)
    world_.run_until_idle()
    take_back(world_, "b00000001-00000003")
    assert held() == {"b00000001": ["a"], "b00000002": ["b"]}
    world_.run_until_idle()
    assert held() == {"b00000001-00000004": ["a", "b", "c"]}
    assert totals(world_) == "a,b,c"


def test_the_data_version_in_dagster_covers_all_batches_of_a_partition(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    second, first = [each for each in world_.reported("sales/lines") if each.run]
    (newest,) = world_.instance.fetch_materializations(dg.AssetKey(["sales", "lines"]), limit=1).records
    with ledger().read() as connection:
        pins = batch_sets.pins_of(connection, [OUTPUT])[OUTPUT]
    assert len(pins) == 2
    assert newest.asset_materialization.tags["dagster/data_version"] == set_version(pins)
    assert [each.metadata["path"].split("/")[-2] for each in (first, second)] == ["b00000001", "b00000002"]


OTHER = foreign_feed("t/other/v1.0", schema="k string", format="parquet")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"by_events": None}, "reads the event table"),
        ({"inputs": {"orders": OTHER}}, "is appendable and reads t/other/v1.0: expected only event tables"),
    ],
)
def test_an_appendable_dataset_that_does_not_read_events_alone_is_refused(shop, more, said):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    options = {"inputs": {"orders": orders}, "by_events": ByEvents(), "appendable": True, **more}
    with pytest.raises(InvalidDefinition, match=said):
        feed_asset("sales/lines/v1.0", **options)(lambda orders: None)


def test_an_increment_is_either_a_batch_or_added_to_the_update_before(shop):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    declared = feed_asset("sales/lines/v1.0", inputs={"orders": orders}, by_events=ByEvents(), appendable=True)
    with pytest.raises(InvalidDefinition, match="is appendable and has previous"):
        declared(lambda orders, previous: None)


def test_a_warehouse_table_of_an_appendable_dataset_is_refused(shop):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    lines = feed_asset("sales/lines/v1.0", inputs={"orders": orders}, by_events=ByEvents(), appendable=True)(
        lambda orders: None
    )
    with pytest.raises(InvalidDefinition, match="is appendable: expected a dataset whose partitions have one update"):
        warehouse_table("main/lines", dataset=lines, warehouse="main")


def test_repeated_late_rows_of_the_newest_batch_are_all_kept(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.last = 9
    shop.write("b")
    world_.run_until_idle()
    for key, version in (("late", 5), ("later", 7)):
        shop.rows["orders", key] = {"key": key, "version": version, "by": "shop"}
        shop.tell(version)
        world_.run_until_idle()
    assert held() == {"b00000001": ["a"], "b00000002": ["b", "late", "later"]}
    assert totals(world_) == "a,b,late,later"


def record_event(world_, shop):
    """Record the newest event in the ledger without consuming it."""
    world_.ask(name="events_shop")
    with ledger().write() as connection:
        connection.execute(sa.update(due).values(requested=0, look_at=sa.func.coalesce(due.c.look_at, due.c.since)))


STRANGE = [
    ({"table": "shop/order", "upto": "1"}, "shop/order is to be read: expected a slice of shop/orders"),
    ({"table": "shop/orders", "partition": "2024-01-01", "upto": "1"}, "expected a slice of shop/orders"),
    ({"table": "shop/orders", "upto": "2044"}, "up to 2044: expected at most 2, its last marker"),
    ({"table": "shop/orders", "upto": "2024-01-01T12:00Z"}, "expected at most 2, its last marker"),
    (
        {"table": "shop/orders", "after": "2", "upto": "1"},
        r"slices\[0\] of shop/orders: `after` is 2, which is later than `upto`",
    ),
    ({"table": "shop/orders", "upto": "yesterday"}, r"slices\[0\] of shop/orders: 'yesterday' is not a marker"),
    ({"table": "shop/orders", "upto": "1", "operations": ["insrt"]}, r"slices\[0\] of shop/orders: 'insrt'"),
]


@pytest.mark.parametrize(("piece", "said"), STRANGE)
def test_an_invalid_slice_by_hand_is_refused_before_anything_is_read(shop, told, piece, said):
    world_ = world(shop, told)
    shop.write("a")
    shop.write("b")
    world_.run_until_idle()
    before = [*told]
    failed = by_hand(world_, slices=[piece])
    assert not failed.success
    (event,) = [event for event in failed.all_events if event.is_step_failure]
    error = event.step_failure_data.error
    assert re.search(said, f"{error.message} {error.cause and error.cause.message}")
    assert told == before


@pytest.mark.parametrize(
    "config",
    [
        {"slices": [{"table": "shop/orders", "upto": "1"}, {"table": "shop/orders", "after": "1", "upto": "2"}]},
        {"plan": "incremental"},
        {"plan": "Reload"},
    ],
)
def test_run_config_with_two_slices_or_a_wrong_plan_is_refused(shop, told, config):
    world_ = world(shop, told)
    shop.write("a")
    shop.write("b")
    world_.run_until_idle()
    before = [*told]
    assert not by_hand(world_, **config).success
    assert told == before


def test_a_batch_with_other_columns_is_not_published(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    shop.rows["orders", "b"] |= {"more": 1}
    world_.run_until_idle()
    (error,) = {run.error for run in world_.runs if run.error}
    assert "b00000002: its columns are not those of b00000001 (more int): expected the same" in error
    assert held() == {"b00000001": ["a"]}


def test_a_consumer_of_batches_passes_on_the_newest_correlation_id(shop):
    world_ = beside(shop)
    for key in "abc":
        shop.write(key)
        world_.run_until_idle()
    with ledger().read() as connection:
        found = event_store.newest(connection, 100, Feed.parse("sales/report/v1.0"))
    assert [event.correlation for event in reversed(found) if not event.parents] == ["c1", "c2", "c3"]


def test_dagster_metadata_counts_rows_of_all_batches_of_a_partition(shop, told):
    world_ = world(shop, told)
    shop.write("a", "b")
    world_.run_until_idle()
    shop.write("c")
    world_.run_until_idle()
    told_last = world_.reported("sales/lines")[0].metadata
    assert (told_last["dagster/row_count"], told_last["batches"]) == (3, 2)
    assert (told_last["batch"], told_last["rows of the batch"]) == ("b00000002", 1)


def test_a_slice_read_ahead_by_hand_is_read_again_when_its_events_arrive(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    record_event(world_, shop)
    assert by_hand(world_, slices=[{"table": "shop/orders", "after": "1", "upto": "2"}]).success
    shop.rows["orders", "more"] = {"key": "more", "version": 2, "by": "shop"}
    world_.run_until_idle()
    assert held() == {"b00000001": ["a"], "b00000002": ["b", "more"]}
    shop.write("c")
    world_.run_until_idle()
    assert held() == {"b00000001": ["a"], "b00000002": ["b", "more"], "b00000003": ["c"]}


def test_a_slice_read_by_hand_is_due_again_once_its_batch_is_invalid(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    record_event(world_, shop)
    assert by_hand(world_, slices=[{"table": "shop/orders", "after": "1", "upto": "2"}]).success
    world_.run_until_idle()
    take_back(world_, "b00000002")
    shop.write("c")
    world_.run_until_idle()
    assert totals(world_) == "a,b,c"


def test_an_update_reaches_a_report_of_batches_and_another_dataset_of_one_source(shop):
    world_ = beside(shop)
    for key, version in (("a", 1), ("b", 10), ("c", 11)):
        shop.last = version - 1
        shop.write(key)
        assert [run.assets for run in world_.run_until_idle()][-1] == ("sales/report",)
        assert reported()[-1] == key
    shop.late("late", 5)
    assert [run.assets for run in world_.run_until_idle()][-1] == ("sales/report",)
    assert reported() == ["a", "b", "c", "late"]
    shop.write("d", operation=Operation.OVERWRITE)
    world_.run_until_idle()
    assert reported() == ["a", "b", "c", "d", "late"]


def test_an_overwrite_read_ahead_by_hand_is_loaded_when_its_event_arrives(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.rows.clear()
    shop.write("b", operation=Operation.OVERWRITE)
    record_event(world_, shop)
    assert by_hand(world_, slices=[{"table": "shop/orders", "after": "1", "upto": "2"}]).success
    world_.run_until_idle()
    assert told[-1] == ("reload", [(None, 2)])
    assert held() == {"b00000001-00000003": ["b"]}
