"""Small datasets for tests of the loop: a raw feed, sums of it, and a selection from the sums.

The function `given` makes their rows from what was dropped, without Spark.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from io import StringIO

import dagster as dg

from feed_assets import Compact, Input, Late, Resources, Retention, checks, feed_asset, foreign_feed, with_automation
from feed_assets.core.attempts import pause_after
from feed_assets.core.data_centers import At
from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import due
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.maker import Task
from feed_assets.runs.recipe import RecipeInput
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker, Ran, Reported, RequestedTick, rows_of
from feed_assets_tests.support.own_sources import as_declared

DAYS = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-06")
DAY, NEXT_DAY, THIRD_DAY = "2020-01-01", "2020-01-02", "2020-01-03"
SCHEMA = "k string, n int"
RAW, SUMS, PICKED = "t/raw/v1.0", "t/sums/v1.0", "t/picked/v1.0"
UNLUCKY = 13
BOTH = ("t/sums", "t/sums_rejects")

opened = ExitStack()
"""Harnesses of the running test; its fixture closes them."""


def nothing() -> None:
    """Do nothing during a run."""


def raw_feed(name: str = RAW, partitions_def=DAYS) -> dg.AssetSpec:
    return foreign_feed(name, partitions_def=partitions_def, schema=SCHEMA)


def sums_of(
    raw: dg.AssetSpec | Input,
    *,
    partitions_def=DAYS,
    late: Late | None = None,
    name: str = SUMS,
    retention: Retention | None = None,
    code_version: str | None = None,
    resources: Resources | None = None,
    compact: Compact | None = None,
    at: At = "primary",
    blackboard: str | None = None,
) -> dg.AssetsDefinition:
    """Declare sums of `n` by `k`: a sum over 100 fails the audit, and a sum of 13 fails the function."""

    @feed_asset(
        name,
        partitions_def=partitions_def,
        inputs={"raw": raw},
        checks=[checks.not_empty(), checks.within("n", 0, 100)],
        late=late,
        retention=retention,
        code_version=code_version,
        resources=resources,
        compact=compact,
        at=at,
        blackboard=blackboard,
    )
    def sums(raw):
        """Return the numbers summed by key."""
        unlucky = f"raise_error('{UNLUCKY} is unlucky')"
        return raw.groupBy("k").sum("n").selectExpr("k", f"IF(`sum(n)` = {UNLUCKY}, {unlucky}, `sum(n)`) AS n")

    return sums


def picked_of(sums: dg.AssetsDefinition | Input, partitions_def=DAYS) -> dg.AssetsDefinition:
    @feed_asset(PICKED, partitions_def=partitions_def, inputs={"sums": sums})
    def picked(sums):
        """Return the sums above zero."""
        return sums.where("n > 0")

    return picked


def given(task: Task) -> Given:
    """Return the rows of the datasets of these tests: for `sums` a sum by key, otherwise the rows that it reads.

    A sum of 13 fails the function of `sums`.
    """
    found = [
        row
        for source in task.recipe.sources
        for each in task.updates.get(source.name, ())
        for row in read(source, each, task.boards.get(source.name))
    ]
    good, bad = [row for row in found if isinstance(row["n"], int)], [row for row in found if isinstance(row["n"], str)]
    if str(task.recipe.feed) != SUMS:
        return Given(sorted(good, key=str), bad)
    sums: Counter[str] = Counter()
    for row in good:
        sums[row["k"]] += row["n"]
    if UNLUCKY in sums.values():
        raise RuntimeError("13 is unlucky")
    failed = {"within_n": len(more)} if (more := [n for n in sums.values() if n > 100]) else {}
    return Given([{"k": k, "n": sums[k]} for k in sorted(sums)], bad, failed)


def read(source: RecipeInput, update: Update, board: Blackboard | None = None) -> list[dict]:
    """Return the rows of an update; `n` of a foreign one stays text if it is no number."""
    board = board or open_board(settings())
    if source.schema is None:
        return rows_of(board, update)
    texts = [(board.get(file.key) or b"").decode() for file in update.files]
    lines = [row for text in texts for row in csv.DictReader(StringIO(text))]
    return [{"k": row["k"], "n": int(row["n"]) if row["n"].isdigit() else row["n"]} for row in lines]


def short(*, during: Callable[[], object] = nothing, **options) -> Harness:
    """Return a harness of raw -> sums; `during` is called during each run."""
    raw = raw_feed()

    def give(task: Task) -> Given:
        during()
        return given(task)

    return harness(raw, sums_of(raw, **options), give=give)


def chain(**options) -> Harness:
    """Return a harness of raw -> sums -> picked."""
    raw = raw_feed()
    sums = sums_of(raw, **options)
    return harness(raw, sums, picked_of(sums))


def harness(*assets, give: Callable[[Task], Given] = given, **options) -> Harness:
    definitions = with_automation(dg.Definitions(assets=[*assets]))
    options = {"maker": PlainMaker(give), "sources": as_declared(definitions), **options}
    return opened.enter_context(Harness(definitions, **options))


def later(harness: Harness, wait: timedelta) -> None:
    """Move the clock of a harness forward."""
    now = harness.now
    harness.now = lambda: now() + wait


def until_given_up(harness: Harness) -> list[Ran]:
    """Run until idle, and again after each pause between two attempts. Return all runs."""
    found: list[Ran] = []
    for number in range(1, settings().max_attempts + 1):
        found += harness.run_until_idle()
        later(harness, pause_after(number))
    return found


def requested(harness: Harness, cursor: str | None = None) -> list[str | None]:
    """Return the partitions of `sums` that a tick requests, although earlier requests never began."""
    end_waits(harness)
    return [partition for assets, partition in harness.ask(cursor).targets if assets == BOTH]


def reports_of(harness: Harness, cursor: str | None = None) -> RequestedTick:
    """Return the tick of the feeds from a cursor on, with its reports to Dagster."""
    return harness.ask(cursor)


def inputs_of(reported: Reported) -> dict[str, str]:
    """Return what a materialization says was read of each input, by the input's path."""
    return {path: read for path, (read, _) in inputs_read(reported).items()}


def inputs_read(reported: Reported) -> dict[str, tuple[str, str]]:
    """Return what was read of each input by path, with the beginning of its data version."""
    rows = [line[2:-2].split(" | ") for line in reported.metadata["inputs"].splitlines()[2:]]
    named = [(name[1:].partition("]")[0], key.replace("\\|", "|"), *rest) for name, key, *rest in rows]
    return {"/".join(filter(None, (feed, key))): (read, version) for feed, key, read, version, *_ in named}


def end_waits(harness: Harness) -> None:
    """End the waits for requested runs, as if their requester had died."""
    due.end_waits(open_ledger(settings().ledger), harness.now())


def rows(*numbers: int) -> str:
    """Return a raw file: each number is a row of the key 'a'."""
    return "".join(["k,n\n", *(f"a,{number}\n" for number in numbers)])


def outcomes(runs) -> list[tuple[str, str | None, bool]]:
    """Return each run as (its dataset, partition, whether it succeeded), in order."""
    return [(run.assets[0].removeprefix("t/"), run.partition, run.succeeded) for run in runs]


def without_place(error: str) -> str:
    """Return the error of a function in a run, without the file and line that it names."""
    return re.sub(r"FunctionFailed: \S+\.py:\d+: ", "", error)
