"""The demo's transforms: datasets with all safety features, against a plain PySpark script on the same session."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks import Benchmark, Built, Goal, Pair, at_home, tick_once
from feed_assets.cli.loaded_location import open_instance
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads.sample import CAMPAIGNS, clicked_csv, days, shown_csv
from feed_assets.feeds import read
from feed_assets.feeds.write import publish
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.spark.session import session
from feed_assets.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = days()[:2]
PLACES = [(day, campaign) for day in DAYS for campaign in CAMPAIGNS]
SHOWN, CLICKED = Feed.parse("ads/shown_raw/v1.0"), Feed.parse("ads/clicked_raw/v1.0")
PARTITIONS = 3 * len(PLACES) + len(DAYS)
LARGE = 100
"""Copies of each row: 350,000 rows in a partition instead of 3,500."""


def drop(services: Services, copies: int) -> None:
    """Publish the raw files of two days as two teams would; write each row `copies` times, with distinct ids."""
    for day, campaign in PLACES:
        for feed, content in ((SHOWN, shown_csv), (CLICKED, clicked_csv)):
            parts = {"part-1.csv": _copied(content(day, campaign), copies)}
            publish(services.board, Partition(feed, f"{day}/{campaign}"), parts, datetime.now(UTC))


def _copied(content: bytes, copies: int) -> bytes:
    header, *rows = content.splitlines(keepends=True)
    return header + b"".join(b"%d-%b" % (copy, row) for copy in range(copies) for row in rows)


def script(spark: "SparkSession", raw: Path, made: Path) -> None:
    """Do the same transforms in the same order in a plain script."""
    from benchmarks import plain

    for day, campaign in PLACES:
        here, shown, clicked = made / day / campaign, made / "s" / day / campaign, made / "c" / day / campaign
        plain.clean_shown(spark, raw / str(SHOWN) / day / campaign, day, shown)
        plain.clean_clicked(spark, raw / str(CLICKED) / day / campaign, day, clicked)
        plain.effectiveness(spark, shown, clicked, here)
    for day in DAYS:
        plain.daily(spark, {campaign: made / day / campaign for campaign in CAMPAIGNS}, made / "daily" / day)


def copy_newest(services: Services, raw: Path) -> None:
    """Copy the same files into plain folders, without manifests."""
    for feed in (SHOWN, CLICKED):
        for partition in read.partitions(services.board, feed):
            folder = raw / partition.path
            if not folder.exists():
                read.download(services.board, read.require(read.latest(services.board, partition)), folder)


@contextmanager
def against_a_script(copies: int) -> Iterator[Pair]:
    """Compare two days, run until idle in a fresh home each round, with the script in the same warm session."""
    from feed_assets.definitions import defs

    with TemporaryDirectory() as root, at_home(Path(root)):
        spark = session(settings())
        made, raw, rounds = Path(root, "made"), Path(root, "raw"), iter(range(1_000))
        todo: list[Harness] = []

        def before() -> None:
            folder = Path(root, str(next(rounds)))
            folder.mkdir()
            with at_home(folder):
                tick_once(defs())
                services = Services.of(settings())
                drop(services, copies)
                copy_newest(services, raw)
                todo[:] = [Harness(defs(), open_instance())]

        def case() -> Built:
            folder = Path(todo[0].instance.root_directory)
            with at_home(folder), todo[0] as harness:
                ran = harness.run_until_idle()
            if [run.succeeded for run in ran] != [True] * PARTITIONS:
                raise RuntimeError(f"{len(ran)} ended: {[run.error for run in ran]}. Expected {PARTITIONS}, all good.")
            return Built(len(ran), len({run.id for run in ran}))

        yield Pair(case, partial(script, spark, raw, made), before)


ROWS = 5_000_000
"""Rows of one day, in four tasks."""


@contextmanager
def counted() -> Iterator[Pair]:
    """Compare the write of a day of rows with counts of its five-minute windows with a write without counts."""
    from pyspark.sql import functions as sf

    from feed_assets.spark.window_counts import Counting
    from feed_assets.spark.written_frame import write

    with TemporaryDirectory() as root, at_home(Path(root)):
        spark, services = session(settings()), Services.of(settings())
        moment = sf.timestamp_seconds((sf.col("id") * 7919) % 86_400 + 1_574_553_600)
        frame = spark.range(0, ROWS, 1, 4).select("id", moment.alias("at"), sf.rand(7).alias("price"), sf.lit("a"))
        day, seconds = Partition(SHOWN, DAYS[0]), iter(range(1, 60_000))

        def written(counting: Counting | None) -> None:
            number = next(seconds)
            update_id = f"20191124.{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}"
            write(frame, services.board, day, update_id, event_time="at", counting=counting)

        yield Pair(partial(written, Counting("at", timedelta(minutes=5))), partial(written, None))


BENCHMARKS = [
    Benchmark(
        "windows-counted",
        f"{ROWS:,} rows of a day written and counted by five minutes",
        "written with the other statistics",
        Goal(2),
        10,
        3,
        counted,
    ),
    Benchmark(
        "transforms",
        f"{PARTITIONS} partitions of the demo's datasets, until idle",
        "a plain PySpark script",
        Goal(1.6),
        10,
        3,
        lambda: against_a_script(1),
    ),
    Benchmark(
        "transforms-large",
        f"the same with {LARGE} times the rows",
        "the same script",
        Goal(1.5),
        3,
        2,
        lambda: against_a_script(LARGE),
    ),
]
