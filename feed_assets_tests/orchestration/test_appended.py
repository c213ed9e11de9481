"""Datasets of ours that are appendable: an increment is a batch; where all is loaded, one takes the place of all."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import ByEvents, Plan, Rule, event_table, feed_asset, foreign_feed, warehouse_table
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.increments import set_version
from feed_assets.feeds import batches, read
from feed_assets.ledger import events, sets
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import open_board
from feed_assets.runs.sync import sync_one
from feed_assets.settings import settings
from feed_assets.testing import Given, rows_of
from feed_assets_tests.orchestration.shop import Shop
from feed_assets_tests.orchestration.worlds import harness

SALES = Feed.parse("sales/lines/v1.0")
OUTPUT = Partition(SALES, "")
RELOADS = [Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))]


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def told():
    """What each run of the lines was told: its plan and its slices."""
    return []


def world(shop, told, *, during=lambda: None, **options):
    """orders -> lines, a batch for each increment -> totals, of all that there is."""
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    options = {"plans": RELOADS, **options}

    def give(task):
        if task.recipe.feed != SALES:
            found = [row for update in task.updates["lines"] for row in rows_of(open_board(settings()), update)]
            return Given([{"keys": ",".join(sorted(row["key"] for row in found))}])
        pieces = [each for some in task.slices.values() for each in some]
        told.append((task.run_spec.plan.kind, [(int(p.start) if p.start else None, int(p.end)) for p in pieces]))
        during()
        return Given(sorted((row for each in pieces for row in shop.read(each)), key=str))

    lines = feed_asset(str(SALES), inputs={"orders": orders}, by_events=ByEvents(**options), appendable=True)(
        lambda orders: None
    )
    totals = feed_asset("sales/totals/v1.0", inputs={"lines": lines})(lambda lines: None)
    return harness(orders, lines, totals, give=give)


def beside(shop):
    """orders -> lines, a batch for each increment; orders -> sums, added to; both -> report, by events."""
    orders = event_table("shop/orders", source=shop.source, table_name="orders")

    def give(task):
        read = [each for some in task.updates.values() for each in some] + ([task.previous] if task.previous else [])
        rows = {row["key"]: row for each in read for row in rows_of(open_board(settings()), each)}
        rows |= {row["key"]: row for some in task.slices.values() for each in some for row in shop.read(each)}
        return Given([rows[key] for key in sorted(rows)])

    by_events = ByEvents(plans=RELOADS)
    lines = feed_asset(str(SALES), inputs={"orders": orders}, by_events=by_events, appendable=True)(lambda orders: None)
    sums = feed_asset("sales/sums/v1.0", inputs={"orders": orders}, by_events=by_events)(lambda orders, previous: None)
    report = feed_asset("sales/report/v1.0", inputs={"lines": lines, "sums": sums}, by_events=ByEvents())(
        lambda lines, sums: None
    )
    return harness(orders, lines, sums, report, give=give)


def reported():
    board = open_board(settings())
    update = read.latest(board, Partition(Feed.parse("sales/report/v1.0"), "")).update
    return [row["key"] for row in rows_of(board, update)]


def ledger():
    return open_ledger(settings().ledger)


def held():
    """What a reader of the blackboard gets, by batch."""
    board = open_board(settings())
    return {
        each.partition.name: sorted(row["key"] for row in rows_of(board, each))
        for each in batches.latest(board, OUTPUT).updates
    }


def known():
    """What a consumer is given, by the ledger."""
    with ledger().read() as connection:
        return [pin.partition.name for pin in sets.pins_of(connection, [OUTPUT])[OUTPUT]]


def take_back(world_, batch):
    """What `feed-assets feed invalidate` does to the newest update of a batch."""
    at = OUTPUT.batch(batch)
    update_id = world_.newest(str(SALES), at.key)
    world_.invalidate(str(SALES), at.key, update_id)
    sync_one(open_board(settings()), ledger(), at, update_id, datetime.now(UTC))


def totals(world_):
    update = read.latest(open_board(settings()), Partition(Feed.parse("sales/totals/v1.0"), "")).update
    (row,) = rows_of(open_board(settings()), update)
    return row["keys"]


def test_an_increment_is_a_batch_and_a_reader_gets_all_of_them(shop, told):
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


def test_where_everything_is_loaded_one_batch_takes_the_place_of_all(shop, told):
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


def test_our_events_tell_of_the_partition_what_was_inserted_and_what_replaced_all(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    shop.write("c", operation=Operation.OVERWRITE)
    world_.run_until_idle()
    with ledger().read() as connection:
        found = [*reversed(events.newest(connection, 100, SALES))]
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


def test_late_rows_of_a_slice_make_its_batch_again_and_are_there_once(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.last = 9
    shop.write("b")
    world_.run_until_idle()
    shop.write("c")
    world_.run_until_idle()
    shop.rows["orders", "late"] = {"key": "late", "version": 5, "by": "shop"}
    shop.tell(5)
    world_.run_until_idle()
    assert told[-1] == ("incremental", [(1, 10)])
    assert held() == {"b00000001": ["a"], "b00000002": ["b", "late"], "b00000003": ["c"]}
    assert totals(world_) == "a,b,c,late"
    with ledger().read() as connection:
        (last, *_) = [each for each in events.newest(connection, 9, SALES) if not each.context.get("no_new_data")]
    assert (last.operation, last.context["batch"]) == (Operation.OVERWRITE, "b00000002")


def by_hand(world_, **config):
    job = world_.definitions.resolve_implicit_global_asset_job_def()
    run_config = {"ops": {"sales__lines": {"config": config}}} if config else {}
    selection = [dg.AssetKey(["sales", "lines"])]
    return job.execute_in_process(
        instance=world_.instance, run_config=run_config, raise_on_error=False, asset_selection=selection
    )


def test_a_slice_that_is_read_again_by_hand_takes_the_place_of_its_batch(shop, told):
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
    found = batches.latest(open_board(settings()), OUTPUT).updates
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


def test_a_batch_that_is_no_longer_valid_is_read_again_as_a_new_one(shop, told):
    world_ = world(shop, told)
    for key in "abc":
        shop.write(key)
        world_.run_until_idle()
    take_back(world_, "b00000002")
    world_.run_until_idle()
    assert told[-1] == ("incremental", [(1, 2)])
    assert held() == {"b00000001": ["a"], "b00000003": ["c"], "b00000004": ["b"]}
    assert totals(world_) == "a,b,c"


def test_a_load_of_everything_that_is_no_longer_valid_gives_way_to_the_batches_before(shop, told):
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


def test_dagster_knows_the_partition_by_all_of_its_batches(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    second, first = [each for each in world_.reported("sales/lines") if each.run]
    (newest,) = world_.instance.fetch_materializations(dg.AssetKey(["sales", "lines"]), limit=1).records
    with ledger().read() as connection:
        pins = sets.pins_of(connection, [OUTPUT])[OUTPUT]
    assert len(pins) == 2
    assert newest.asset_materialization.tags["dagster/data_version"] == set_version(pins)
    assert [each.metadata["path"].split("/")[-2] for each in (first, second)] == ["b00000001", "b00000002"]


OTHER = foreign_feed("t/other/v1.0", schema="k string", format="parquet")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"by_events": None}, "reads the event table"),
        ({"inputs": {"orders": OTHER}}, "is appendable and reads t/other/v1.0: expected event tables alone"),
    ],
)
def test_what_cannot_be_appended_to_is_refused(shop, more, said):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    options = {"inputs": {"orders": orders}, "by_events": ByEvents(), "appendable": True, **more}
    with pytest.raises(InvalidDefinition, match=said):
        feed_asset("sales/lines/v1.0", **options)(lambda orders: None)


def test_an_increment_is_either_a_batch_or_added_to_the_update_before(shop):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    declared = feed_asset("sales/lines/v1.0", inputs={"orders": orders}, by_events=ByEvents(), appendable=True)
    with pytest.raises(InvalidDefinition, match="is appendable and has previous"):
        declared(lambda orders, previous: None)


def test_a_table_of_a_warehouse_is_not_made_of_batches(shop):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    lines = feed_asset("sales/lines/v1.0", inputs={"orders": orders}, by_events=ByEvents(), appendable=True)(
        lambda orders: None
    )
    with pytest.raises(InvalidDefinition, match="is appendable, which is not loaded"):
        warehouse_table("main/lines", dataset=lines, warehouse="main")


def test_late_rows_of_the_newest_batch_are_there_too_however_often_they_come(shop, told):
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


def test_what_was_read_ahead_by_hand_is_read_again_as_its_events_come(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    assert by_hand(world_, slices=[{"table": "shop/orders", "after": "1", "upto": "3"}]).success
    shop.write("c")
    world_.run_until_idle()
    assert held() == {"b00000001": ["a"], "b00000002": ["b", "c"]}


def test_what_was_read_by_hand_and_told_of_is_due_again_if_it_is_no_longer_valid(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    assert by_hand(world_, slices=[{"table": "shop/orders", "after": "1", "upto": "2"}]).success
    world_.run_until_idle()
    take_back(world_, "b00000002")
    shop.write("c")
    world_.run_until_idle()
    assert totals(world_) == "a,b,c"


def test_an_update_reaches_what_reads_batches_beside_another_dataset_of_the_same_source(shop):
    world_ = beside(shop)
    for key, version in (("a", 1), ("b", 10), ("c", 11)):
        shop.last = version - 1
        shop.write(key)
        assert [run.assets for run in world_.run_until_idle()][-1] == ("sales/report",)
        assert reported()[-1] == key
    shop.rows["orders", "late"] = {"key": "late", "version": 5, "by": "shop"}
    shop.tell(5)
    assert [run.assets for run in world_.run_until_idle()][-1] == ("sales/report",)
    assert reported() == ["a", "b", "c", "late"]
    shop.write("d", operation=Operation.OVERWRITE)
    world_.run_until_idle()
    assert reported() == ["a", "b", "c", "d", "late"]


def test_what_replaced_all_and_was_read_ahead_by_hand_is_loaded_as_its_event_comes(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.rows.clear()
    shop.write("b", operation=Operation.OVERWRITE)
    assert by_hand(world_, slices=[{"table": "shop/orders", "after": "1", "upto": "2"}]).success
    world_.run_until_idle()
    assert told[-1] == ("reload", [(None, 2)])
    assert held() == {"b00000001-00000003": ["b"]}
