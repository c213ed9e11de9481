"""Partitions that become ready together: the cost to build all of them, without computing their rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg

from benchmarks import Benchmark, Built, Goal, Pair, at_home
from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.cli.loaded_location import open_instance
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker

RAW, MADE = Feed.parse("b/raw/v1.0"), Feed.parse("b/made/v1.0")
FIRST = date(2019, 1, 1)


def definitions() -> dg.Definitions:
    """Define a foreign feed and one dataset made from it, by day."""
    days = dg.DailyPartitionsDefinition(FIRST.isoformat())
    raw = foreign_feed(str(RAW), partitions_def=days, schema="n int")

    @feed_asset(str(MADE), partitions_def=days, inputs={"raw": raw})
    def made(raw: Any) -> Any:
        """Stand for a transform that PlainMaker replaces."""
        return raw

    return with_automation(dg.Definitions(assets=[raw, made]))


def drop(board: Blackboard, feed: Feed, count: int) -> None:
    """Publish `count` days of a feed."""
    for number in range(count):
        partition = Partition(feed, (FIRST + timedelta(days=number)).isoformat())
        publish(board, partition, {"part-0.csv": b"n\n1\n"}, datetime.now(UTC))


def built(count: int, instance: dg.DagsterInstance) -> Built:
    """Run until idle; return how many partitions were built, and in how many runs."""
    with Harness(definitions(), instance, maker=PlainMaker()) as harness:
        ran = harness.run_until_idle(max_ticks=count + 10)
    if [run.succeeded for run in ran] != [True] * count:
        raise RuntimeError(f"{len(ran)} were built: {[run.error for run in ran if run.error][:3]}. Expected {count}.")
    return Built(count, len({run.id for run in ran}))


@contextmanager
def ready(count: int) -> Iterator[Pair]:
    """Compare `count` ready days, each round in a fresh home, with as many updates published by hand."""
    with TemporaryDirectory() as root, at_home(Path(root)):
        rounds, todo = iter(range(1_000)), list[Path]()

        def before() -> None:
            todo[:] = [Path(root, str(next(rounds)))]
            todo[0].mkdir(0o700)
            with at_home(todo[0]):
                drop(open_board(settings()), RAW, count)

        def case() -> Built:
            with at_home(todo[0]):
                return built(count, open_instance())

        yield Pair(case, partial(_by_hand, todo, count), before)


def _by_hand(homes: list[Path], count: int) -> None:
    with at_home(homes[0]):
        drop(open_board(settings()), Feed.parse("b/by_hand/v1.0"), count)


def _benchmark(count: int, rounds: int, *, large: bool = False) -> Benchmark:
    what = f"{count:,} ready partitions built until idle, rows by the PlainMaker"
    floor = "as many updates published, without tick, ledger and Dagster"
    return Benchmark(f"ready-{count}", what, floor, Goal(0.2 * count, "s"), rounds, 2, lambda: ready(count), large)


BENCHMARKS = [_benchmark(14, 10), _benchmark(140, 5), _benchmark(1400, 2, large=True)]
