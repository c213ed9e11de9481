"""Increments that are added to the last published update: a table of another team, tick by tick."""

import json
from datetime import UTC, datetime

import pytest

from feed_assets import ByEvents, Plan, Rule, event_table, feed_asset
from feed_assets.core.errors import InvalidDefinition, NotRevalidated
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import event_store, increment_base, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.sync import sync_one
from feed_assets.settings import settings
from feed_assets.testing import Given, rows_of
from feed_assets_tests.support.sum_projects import harness

ORDERS = Feed.parse("sales/orders/v1.0")
OUTPUT = Partition(ORDERS, "")


def world(shop, told, *, during=lambda: None, **options):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    prices = event_table("shop/prices", source=shop.source, table_name="prices")
    options = {"pipelines": {"p": ["shop/orders"], "q": ["shop/prices"]}, **options}

    def give(task):
        pieces = {name: some[0] for name, some in task.slices.items() if some}
        ranges = {name: (int(each.start) if each.start else None, int(each.end)) for name, each in pieces.items()}
        told.append((task.run_spec.plan.kind, ranges, task.previous and task.previous.id))
        during()
        rows = {row["key"]: row for row in (rows_of(open_board(settings()), task.previous) if task.previous else [])}
        for each in pieces.values():
            rows |= {row["key"]: row for row in shop.read(each)}
        return Given([rows[key] for key in sorted(rows)])

    dataset = feed_asset(str(ORDERS), inputs={"orders": orders, "prices": prices}, by_events=ByEvents(**options))
    return harness(orders, prices, dataset(lambda orders, prices, previous: None), give=give)


def ledger():
    return open_ledger(settings().ledger)


def rows(world_):
    board = open_board(settings())
    with ledger().read() as connection:
        update = updates.recorded(connection, OUTPUT, world_.newest(str(ORDERS)) or "")
    return rows_of(board, update)


def own_events():
    """Return our own events with new data of the dataset, oldest first."""
    with ledger().read() as connection:
        found = [*reversed(event_store.newest(connection, 100, ORDERS))]
    return [event for event in found if not event.context.get("no_new_data")]


def test_an_increment_is_added_to_the_last_published_update(shop, told):
    world_ = world(shop, told)
    shop.write("a", "b")
    world_.run_until_idle()
    first = world_.newest(str(ORDERS))
    shop.write("b", "c")
    world_.run_until_idle()
    assert told == [("reload", {"orders": (None, 1)}, None), ("incremental", {"orders": (1, 2)}, first)]
    assert [(row["key"], row["version"]) for row in rows(world_)] == [("a", 1), ("b", 2), ("c", 2)]


def test_the_base_of_an_increment_is_in_the_lineage_and_makes_nothing_stale(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    newest = world_.newest(str(ORDERS))
    with ledger().read() as connection:
        before = increment_base.added_to(connection, [(OUTPUT, newest)])[OUTPUT]
        consumed = updates.consumed_by(connection, OUTPUT, newest)
    assert before.update_id < newest
    assert before.start == before.update_id
    assert {str(pin.partition.feed) for pin in consumed} == {"shop/orders"}
    assert world_.run_until_idle() == []
    (reported,) = [each for each in world_.reported("sales/orders") if each.metadata["update id"] == newest]
    assert reported.metadata["added to"] == before.update_id


def test_the_event_of_an_increment_names_its_base_and_slices(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    first, second = own_events()
    assert (first.operation, second.operation) == (Operation.OVERWRITE, Operation.UPSERT)
    assert second.context["added_to"] == first.marker == first.context["update_id"]
    (piece,) = second.context["slices"].items()
    assert piece[0] == "shop/orders"
    assert [int(each) for each in piece[1]] == [1, 2]
    assert not {"added_to", "slices"} & first.context.keys()
    json.dumps(dict(second.context))


def test_new_rows_of_a_second_table_are_added(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("p", table="prices")
    world_.run_until_idle()
    assert told[1][:2] == ("incremental", {"prices": (None, 2)})
    assert [row["key"] for row in rows(world_)] == ["a", "p"]
    (_, second) = own_events()
    assert [*second.context["slices"]] == ["shop/prices"]


def test_a_reload_plan_reads_every_table_from_the_beginning_without_a_base(shop, told):
    world_ = world(shop, told, plans=[Rule(Plan("reload"), tables=frozenset({"shop/prices"}))])
    shop.write("a")
    shop.write("b")
    world_.run_until_idle()
    shop.write("p", table="prices")
    world_.run_until_idle()
    shop.write("c")
    world_.run_until_idle()
    assert [each[:2] for each in told] == [
        ("reload", {"orders": (None, 2)}),
        ("reload", {"orders": (None, 2), "prices": (None, 3)}),
        ("incremental", {"orders": (2, 4)}),
    ]
    assert [row["key"] for row in rows(world_)] == ["a", "b", "c", "p"]
    assert [each.operation for each in own_events()] == [Operation.OVERWRITE, Operation.OVERWRITE, Operation.UPSERT]


def test_a_table_without_new_data_causes_no_reload(shop, told):
    world_ = world(shop, told, plans=[Rule(Plan("reload"), tables=frozenset({"shop/prices"}))])
    shop.write("a")
    shop.write("p", table="prices")
    world_.run_until_idle()
    shop.write("b")
    shop.tell(9, table="prices", context={"no_new_data": True})
    world_.run_until_idle()
    assert told[-1][:2] == ("incremental", {"orders": (1, 3), "prices": (9, 9)})
    assert [row["key"] for row in rows(world_)] == ["a", "b", "p"]


def test_an_overwrite_among_the_events_loads_everything(shop, told):
    world_ = world(shop, told, plans=[Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))])
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    shop.rows.clear()
    shop.write("c", operation=Operation.OVERWRITE)
    shop.write("d")
    world_.run_until_idle()
    assert told[-1][:2] == ("reload", {"orders": (None, 4)})
    assert [row["key"] for row in rows(world_)] == ["c", "d"]


def test_late_rows_of_a_consumed_slice_are_added(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    shop.last = 9
    shop.write("b")
    world_.run_until_idle()
    shop.late("late", 5)
    world_.run_until_idle()
    assert told[-1][:2] == ("incremental", {"orders": (1, 5)})
    assert [row["key"] for row in rows(world_)] == ["a", "b", "late"]


def test_a_reload_after_late_rows_reads_up_to_the_highest_marker(shop, told):
    world_ = world(shop, told, plans=[Rule(Plan("reload"), tables=frozenset({"shop/prices"}))])
    late = {"key": "late", "version": 5, "by": "shop"}
    shop.write("a")
    shop.last = 9
    shop.write("b")
    world_.run_until_idle()
    shop.rows["orders", "late"] = late
    shop.tell(5)
    world_.run_until_idle()
    shop.write("p", table="prices")
    world_.run_until_idle()
    assert told[-1][:2] == ("reload", {"orders": (None, 10), "prices": (None, 11)})
    assert [row["key"] for row in rows(world_)] == ["a", "b", "late", "p"]


def take_back(world_, update_id):
    """Invalidate an update, as `feed-assets feed invalidate` does."""
    world_.invalidate(str(ORDERS), "", update_id)
    sync_one(open_board(settings()), ledger(), OUTPUT, update_id, datetime.now(UTC))


def by_hand(world_, **config):
    job = world_.definitions.resolve_implicit_global_asset_job_def()
    run_config = {"ops": {"sales__orders": {"config": config}}} if config else {}
    return job.execute_in_process(instance=world_.instance, run_config=run_config, raise_on_error=False)


def test_a_slice_read_again_by_hand_is_added_and_moves_no_marker(shop, told):
    world_ = world(shop, told)
    shop.write("a", "b")
    shop.write("b")
    world_.run_until_idle()
    newest = world_.newest(str(ORDERS))
    shop.rows["orders", "a"]["by"] = "hand"
    assert by_hand(world_, slices=[{"table": "shop/orders", "upto": "1"}]).success
    assert told[-1] == ("incremental", {"orders": (None, 1)}, newest)
    assert [(row["key"], row["by"]) for row in rows(world_)] == [("a", "hand"), ("b", "shop")]
    assert world_.run_until_idle() == []
    shop.write("c")
    world_.run_until_idle()
    assert told[-1][:2] == ("incremental", {"orders": (2, 3)})


def test_a_run_by_hand_without_slices_loads_everything(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    assert by_hand(world_).success
    assert told[-1] == ("reload", {"orders": (None, 1)}, None)


def test_an_unknown_plan_by_hand_is_refused(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    result = by_hand(world_, slices=[{"table": "shop/orders", "upto": "1"}], plan="merge")
    assert not result.success
    said = str(result.all_events)
    assert "`plan` is 'merge': expected 'reload' or 'incremental'." in said


def test_an_invalid_increment_in_the_chain_causes_a_full_load(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    bad = world_.newest(str(ORDERS))
    shop.write("c")
    world_.run_until_idle()
    take_back(world_, bad)
    world_.run_until_idle()
    assert told[-1] == ("reload", {"orders": (None, 3)}, None)
    assert [row["key"] for row in rows(world_)] == ["a", "b", "c"]
    shop.write("d")
    world_.run_until_idle()
    assert told[-1][0] == "incremental"
    assert world_.run_until_idle() == []


def test_an_invalid_last_increment_is_rebuilt_on_the_one_before(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    world_.run_until_idle()
    first = world_.newest(str(ORDERS))
    shop.write("b")
    world_.run_until_idle()
    take_back(world_, world_.newest(str(ORDERS)))
    world_.run_until_idle()
    assert told[-1] == ("incremental", {"orders": (1, 2)}, first)
    assert [row["key"] for row in rows(world_)] == ["a", "b"]
    assert len(told) == 3


def test_a_base_invalidated_during_the_run_causes_a_full_load(shop, told):
    def during():
        if len(told) == 2:
            take_back(world_, told[1][2])

    world_ = world(shop, told, during=during)
    shop.write("a")
    world_.run_until_idle()
    shop.write("b")
    world_.run_until_idle()
    assert [each[0] for each in told] == ["reload", "incremental", "reload"]
    assert [row["key"] for row in rows(world_)] == ["a", "b"]


def test_the_reload_plan_is_chosen_if_there_is_no_base(shop, told):
    plan = Plan("reload", tags={"team/cluster": "large"})
    world_ = world(shop, told, plans=[Rule(plan, operations=frozenset({Operation.OVERWRITE}))])
    shop.write("a")
    asked = world_.ask(name="events_shop")
    assert [request.tags["team/cluster"] for request in asked.requests] == ["large"]


def test_an_increment_without_events_is_refused(shop):
    feed = event_table("shop/orders", source=shop.source, table_name="orders")
    with pytest.raises(InvalidDefinition, match="takes previous, to add increments"):
        feed_asset("sales/orders/v1.0", inputs={"orders": feed})(lambda orders, previous: None)


def test_an_input_cannot_be_called_previous(shop):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    with pytest.raises(InvalidDefinition, match="has an input 'previous'"):
        feed_asset("sales/x/v1.0", inputs={"previous": orders}, by_events=ByEvents())(lambda previous: None)


def test_our_event_names_the_slice_each_time_it_is_read_by_hand(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    shop.write("b")
    world_.run_until_idle()
    config = {"slices": [{"table": "shop/orders", "after": "1", "upto": "2"}]}
    for _ in range(2):
        assert by_hand(world_, **config).success
        with ledger().read() as connection:
            (last,) = event_store.newest(connection, 1, ORDERS)
        assert [int(each) for each in last.context["slices"]["shop/orders"]] == [1, 2]


def test_a_request_names_the_part_of_a_slice_that_is_read_again(shop, told):
    world_ = world(shop, told)
    shop.write("a")
    shop.last = 9
    shop.write("b")
    world_.run_until_idle()
    shop.tell(5)
    (request,) = world_.ask(name="events_shop").requests
    assert request.tags["feed_assets/why"] == "shop/orders: rows updated after 1 up to 5 must be read again"


def test_an_increment_with_a_later_sibling_cannot_be_revalidated(shop, told):
    world_ = world(shop, told)
    for key in "ab":
        shop.write(key)
        world_.run_until_idle()
    gone = world_.newest(str(ORDERS))
    take_back(world_, gone)
    assert by_hand(world_, slices=[{"table": "shop/orders", "upto": "1"}]).success
    with pytest.raises(NotRevalidated, match="is a later increment of an earlier update"):
        world_.revalidate(str(ORDERS), "", gone)
    world_.run_until_idle()
    assert [row["key"] for row in rows(world_)] == ["a", "b"]


@pytest.mark.parametrize("marker", [10, 5])
def test_an_overwrite_with_an_old_marker_is_still_read(shop, told, marker):
    world_ = world(shop, told, plans=[Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))])
    shop.last = 9
    shop.write("a")
    world_.run_until_idle()
    shop.rows["orders", "a"]["by"] = "mended"
    shop.tell(marker, operation=Operation.OVERWRITE, correlation="mended")
    world_.run_until_idle()
    assert [row["by"] for row in rows(world_)] == ["mended"]
    assert world_.run_until_idle() == []


def test_a_full_load_dataset_reads_an_overwrite_of_consumed_rows(shop):
    orders = event_table("shop/orders", source=shop.source, table_name="orders")

    def give(task):
        return Given([row for some in task.slices.values() for each in some for row in shop.read(each)])

    dataset = feed_asset(str(ORDERS), inputs={"orders": orders}, by_events=ByEvents(plans=[Rule(Plan("reload"))]))
    world_ = harness(orders, dataset(lambda orders: None), give=give)
    shop.last = 9
    shop.write("a")
    world_.run_until_idle()
    shop.rows["orders", "a"]["by"] = "mended"
    shop.tell(5, operation=Operation.OVERWRITE, correlation="mended")
    world_.run_until_idle()
    assert [row["by"] for row in rows(world_)] == ["mended"]
    assert world_.run_until_idle() == []
