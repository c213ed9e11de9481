"""Tiny datasets for tests of the loop: a raw feed, what is summed from it, and what is picked from that."""

from collections.abc import Callable
from contextlib import ExitStack

import dagster as dg

from feed_assets import Input, Late, Retention, checks, feed_asset, foreign_feed, with_automation
from feed_assets.testing import Harness

DAYS = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-06")
DAY, NEXT_DAY, THIRD_DAY = "2020-01-01", "2020-01-02", "2020-01-03"
SCHEMA = "k string, n int"
RAW, SUMS, PICKED = "t/raw/v1.0", "t/sums/v1.0", "t/picked/v1.0"
UNLUCKY = 13
BOTH = ("t/sums", "t/sums_rejects")

opened = ExitStack()
"""The harnesses of the test that runs; its fixture closes them."""


def nothing() -> None:
    """Nothing happens while a run is under way."""


def raw_feed(name: str = RAW, partitions_def=DAYS) -> dg.AssetSpec:
    return foreign_feed(name, partitions_def=partitions_def, schema=SCHEMA)


def sums_of(
    raw: dg.AssetSpec | Input,
    *,
    partitions_def=DAYS,
    late: Late | None = None,
    during: Callable[[], object] = nothing,
    name: str = SUMS,
    retention: Retention | None = None,
) -> dg.AssetsDefinition:
    """`n` by `k`; a sum over 100 fails the audit, and 13 is more than the function can bear."""

    @feed_asset(
        name,
        partitions_def=partitions_def,
        inputs={"raw": raw},
        checks=[checks.not_empty(), checks.within("n", 0, 100)],
        late=late,
        retention=retention,
    )
    def sums(raw):
        """Numbers summed."""
        during()
        summed = raw.groupBy("k").sum("n").selectExpr("k", "`sum(n)` AS n")
        if summed.where(f"n = {UNLUCKY}").count():
            raise RuntimeError("13 is unlucky")
        return summed

    return sums


def picked_of(sums: dg.AssetsDefinition | Input, partitions_def=DAYS) -> dg.AssetsDefinition:
    @feed_asset(PICKED, partitions_def=partitions_def, inputs={"sums": sums})
    def picked(sums):
        """Sums that are more than nothing."""
        return sums.where("n > 0")

    return picked


def short(**options) -> Harness:
    """raw -> sums."""
    raw = raw_feed()
    return harness(raw, sums_of(raw, **options))


def chain(**options) -> Harness:
    """raw -> sums -> picked."""
    raw = raw_feed()
    sums = sums_of(raw, **options)
    return harness(raw, sums, picked_of(sums))


def harness(*assets, **options) -> Harness:
    return opened.enter_context(Harness(with_automation(dg.Definitions(assets=[*assets])), **options))


def requested(harness: Harness, cursor: str | None = None) -> list[str | None]:
    """The partitions of `sums` that a tick asks for."""
    return [partition for assets, partition in harness.ask(cursor).wanted if assets == BOTH]


def rows(*numbers: int) -> str:
    """A raw file: each number as a row of the key 'a'."""
    return "".join(["k,n\n", *(f"a,{number}\n" for number in numbers)])


def outcomes(runs) -> list[tuple[str, str | None, bool]]:
    """Each run as (its dataset, partition, whether it succeeded), in order."""
    return [(run.assets[0].removeprefix("t/"), run.partition, run.succeeded) for run in runs]
