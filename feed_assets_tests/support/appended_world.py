"""A dataset of batches of a shop's rows and its consumers, with the rows that each reader gets."""

from datetime import UTC, datetime

import dagster as dg

from feed_assets import ByEvents, Plan, Rule, event_table, feed_asset
from feed_assets.compaction.arrangement import ROWS
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import batch_set, read
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import batch_sets
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.sync import sync_one
from feed_assets.settings import settings
from feed_assets.testing import Given, rows_of
from feed_assets_tests.support.sum_projects import harness

SALES = Feed.parse("sales/lines/v1.0")
OUTPUT = Partition(SALES, "")
RELOADS = [Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))]


def compacted_rows(task) -> Given:
    """Return the rows that a compaction reads."""
    return Given([row for update in task.updates[ROWS] for row in rows_of(open_board(settings()), update)])


def world(shop, told, *, during=lambda: None, compact=None, **options):
    """Build orders -> lines (a batch for each increment) -> totals of all rows."""
    orders = event_table("shop/orders", source=shop.source, table_name="orders")
    options = {"plans": RELOADS, **options}

    def give(task):
        if ROWS in task.updates:
            return compacted_rows(task)
        if task.recipe.feed != SALES:
            found = [row for update in task.updates["lines"] for row in rows_of(open_board(settings()), update)]
            return Given([{"keys": ",".join(sorted(row["key"] for row in found))}])
        pieces = [each for some in task.slices.values() for each in some]
        told.append((task.run_spec.plan.kind, [(int(p.start) if p.start else None, int(p.end)) for p in pieces]))
        during()
        return Given(sorted((row for each in pieces for row in shop.read(each)), key=str))

    lines = feed_asset(
        str(SALES), inputs={"orders": orders}, by_events=ByEvents(**options), appendable=True, compact=compact
    )(lambda orders: None)
    totals = feed_asset("sales/totals/v1.0", inputs={"lines": lines})(lambda lines: None)
    return harness(orders, lines, totals, give=give)


def beside(shop):
    """Build orders -> lines (a batch for each increment), orders -> sums (added to), and a report of both by events."""
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
    """Return the keys that a reader of the blackboard gets, by batch."""
    board = open_board(settings())
    return {
        each.partition.name: sorted(row["key"] for row in rows_of(board, each))
        for each in batch_set.latest(board, OUTPUT).updates
    }


def known():
    """Return the batches that the ledger gives to a consumer."""
    with ledger().read() as connection:
        return [pin.partition.name for pin in batch_sets.pins_of(connection, [OUTPUT])[OUTPUT]]


def take_back(world_, batch):
    """Invalidate the newest update of a batch, as `feed-assets feed invalidate` does."""
    at = OUTPUT.batch(batch)
    update_id = world_.newest(str(SALES), at.key)
    world_.invalidate(str(SALES), at.key, update_id)
    sync_one(open_board(settings()), ledger(), at, update_id, datetime.now(UTC))


def totals(world_):
    update = read.latest(open_board(settings()), Partition(Feed.parse("sales/totals/v1.0"), "")).update
    (row,) = rows_of(open_board(settings()), update)
    return row["keys"]


def by_hand(world_, **config):
    job = world_.definitions.resolve_implicit_global_asset_job_def()
    run_config = {"ops": {"sales__lines": {"config": config}}} if config else {}
    selection = [dg.AssetKey(["sales", "lines"])]
    return job.execute_in_process(
        instance=world_.instance, run_config=run_config, raise_on_error=False, asset_selection=selection
    )
