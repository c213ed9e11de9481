"""The second code location: it reads what the first one publishes, and another team's stock."""

from functools import cache

import dagster as dg

from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset, foreign_feed, with_automation
from feed_assets.core.slices import Slice
from feed_assets.runs.maker import Task
from feed_assets.testing import Given
from feed_assets_tests.reliability.making import Rows, made_of, makes
from feed_assets_tests.reliability.shop import CLEAN, HOURS

STOCK, JOINED = "depot/stock/v1.0", "reports/joined/v1.0"
SLICES = "reports/slices/v1.0"
CLICKS, CLICKED = "partner/clicks/v1.0", "reports/clicked/v1.0"


@cache
def definitions(_code: str) -> dg.Definitions:
    """Return the project."""
    clean = foreign_feed(CLEAN, partitions_def=HOURS, schema="id string, amount bigint", format="parquet")
    stock = foreign_feed(STOCK, partitions_def=HOURS, schema="id string, pieces int", format="csv")

    @feed_asset(JOINED, partitions_def=HOURS, inputs={"clean": clean, "stock": stock}, code_version="1")
    def joined(clean, stock):
        """Return the orders beside the pieces that were in stock."""

    clicks = foreign_feed(
        CLICKS,
        partitions_def=HOURS,
        schema="id string, at timestamp, n int",
        format="json",
        event_time="at",
        intake="push",
    )

    @feed_asset(CLICKED, partitions_def=HOURS, inputs={"clicks": clicks}, code_version="1")
    def clicked(clicks):
        """Return the clicks of an hour."""

    team = EventSource("team", (SqlTable("env:WHOLE_TEAM", "events", order_by="id"),))
    a, b = (event_table(f"team/{name}", source=team, table_name=name) for name in ("a", "b"))

    @feed_asset(
        SLICES,
        inputs={"a": a, "b": b},
        by_events=ByEvents(pipelines={"nightly": ["team/a", "team/b"]}),
        code_version="1",
    )
    def slices(a, b):
        """Return the slice of either table that a run was to read."""

    return with_automation(dg.Definitions(assets=[clean, stock, joined, clicks, clicked, a, b, slices]))


@makes(JOINED)
def _joined(task: Task, read: dict[str, Rows]) -> Given:
    pieces = sum(int(row["pieces"]) for row in read["stock"])
    return Given(
        [{"id": row["id"], "amount": row["amount"], "pieces": pieces} | made_of(task) for row in read["clean"]]
    )


@makes(CLICKED)
def _clicked(task: Task, read: dict[str, Rows]) -> Given:
    rows = sorted(({"id": row["id"], "n": row["n"]} for row in read["clicks"]), key=lambda row: row["id"])
    return Given([row | made_of(task) for row in rows])


@makes(SLICES)
def _slices(task: Task, _read: dict[str, Rows]) -> Given:
    pieces = [each for some in task.slices.values() for each in some]
    return Given([_bounds(each) | made_of(task) for each in pieces])


def _bounds(piece: Slice) -> dict[str, object]:
    operations = ",".join(sorted(piece.operations))
    return {
        "table": str(piece.partition.feed),
        "after": int(piece.start or 0),
        "upto": int(piece.end),
        "operations": operations,
        "events": piece.events,
    }
