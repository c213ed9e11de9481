"""`feed-assets demo`: a week of real ads, from two teams' raw files to a result, with what goes wrong on the way."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

from feed_assets.cli.location import DEFAULT_MODULE, load, open_instance
from feed_assets.cli.run import sentence
from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import MANIFEST, Feed, Partition

if TYPE_CHECKING:
    import dagster as dg
    from rich.console import Console
    from rich.table import Table

    from feed_assets.feeds.blackboard import Blackboard

SHOWN_RAW, CLICKED_RAW = Feed.parse("ads/shown_raw/v1.0"), Feed.parse("ads/clicked_raw/v1.0")
EFFECTIVENESS = Feed.parse("ads/effectiveness/v1.0")
LATE, CORRUPT = ("2019-11-26", "men"), ("2019-11-28", "women")
MARK = "this-is-the-demo"


@dataclass(frozen=True)
class Line:
    """One line of the result: a day and campaign, with a 95 % interval (Wilson) around the click-through rate."""

    day: str
    campaign: str
    impressions: int
    clicks: int
    update_id: str

    @property
    def interval(self) -> tuple[float, float]:
        """The interval's ends."""
        n, share, z = self.impressions, self.clicks / self.impressions, 1.959963984540054
        middle, half = share + z * z / (2 * n), z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def demo() -> None:
    """Run a week of real ads from raw files to a result, in about two minutes, and check that it is right."""
    from rich.console import Console

    console = Console(highlight=False)
    folder = _fresh_home()
    definitions = load(DEFAULT_MODULE)
    with open_instance() as instance:
        _Demo(console, definitions, instance, folder).play()


def _fresh_home() -> Path:
    """The demo has a home of its own, made anew each time; nothing else in the user's home is touched."""
    from feed_assets.settings import home, settings

    folder = home() / "demo"
    if folder.exists() and not (folder / MARK).exists():
        raise DemoFailed(f"{folder} is there and is not the demo's: move it away.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    for name in ("FEED_ASSETS_BLACKBOARD", "FEED_ASSETS_LEDGER", "FEED_ASSETS_ADS_CAMPAIGNS"):
        os.environ.pop(name, None)
    os.environ["DAGSTER_HOME"] = str(folder)
    settings.cache_clear()
    return folder


class _Demo:
    def __init__(
        self, console: "Console", definitions: "dg.Definitions", instance: "dg.DagsterInstance", folder: Path
    ) -> None:
        from feed_assets.orchestration.runner import Runner
        from feed_assets.runs.workbench import Workbench
        from feed_assets.settings import settings

        self.console, self.folder = console, folder
        self.bench = Workbench.of(settings())
        self.board: Blackboard = self.bench.board
        self.runner = Runner(definitions, instance, self._on_run)
        self.runs: list[dg.ExecuteInProcessResult] = []

    def play(self) -> None:
        """The story, in the order in which things go wrong."""
        from feed_assets.defs.ads.sample import CAMPAIGNS, days

        places = [(day, campaign) for day in days() for campaign in CAMPAIGNS]
        self._say("1", "starting Spark")
        self.bench.spark()
        self._say("2", f"two foreign teams drop {len(places)} days of impressions and of clicks on {self.board.url}")
        for place in places:
            self._drop(*place)
        self._say("3", "sensors tick, and every partition whose inputs are there is built, audited and published")
        self._expect(self._run(total=len(places) * 3 + len(days())), len(places) * 3 + len(days()))
        self._say("4", f"late clicks of {' '.join(LATE)} arrive: that day alone is built again")
        self._drop_late()
        self._expect(self._run(total=3), 3)
        self._say(
            "5", f"a corrupt update of {' '.join(CORRUPT)} arrives: its manifest says one file more than there is"
        )
        self._drop_corrupt()
        self._expect(self._run(total=None), 0)
        self._check_refusal()
        self._finish(places)

    def _say(self, number: str, text: str) -> None:
        self.console.print(f"[bold]{number}[/] {text}", soft_wrap=True)

    def _drop(self, day: str, campaign: str) -> None:
        from feed_assets.defs.ads.sample import clicked_csv, shown_csv

        clicked = clicked_csv(day, campaign)
        if (day, campaign) == LATE:
            clicked = b"".join(clicked.splitlines(keepends=True)[:3])
        self._publish(SHOWN_RAW, day, campaign, shown_csv(day, campaign))
        self._publish(CLICKED_RAW, day, campaign, clicked)

    def _publish(self, feed: Feed, day: str, campaign: str, content: bytes) -> None:
        from feed_assets.feeds.write import publish

        publish(self.board, Partition(feed, f"{day}/{campaign}"), {"part-1.csv": content}, datetime.now(UTC))

    def _drop_late(self) -> None:
        from feed_assets.defs.ads.sample import clicked_csv

        self._publish(CLICKED_RAW, *LATE, clicked_csv(*LATE))

    def _drop_corrupt(self) -> None:
        """As a foreign producer does that was cut off after its manifest was written too early."""
        from feed_assets.defs.ads.sample import shown_csv
        from feed_assets.feeds.write import claim

        partition = Partition(SHOWN_RAW, "/".join(CORRUPT))
        update_id = claim(self.board, partition, b"demo", datetime.now(UTC))
        self.board.put(f"{partition.path}/{update_id}/part-1.csv", shown_csv(*CORRUPT)[:1000])
        self.board.put(f"{partition.path}/{update_id}/{MANIFEST}", b"2")

    def _run(self, total: int | None) -> int:
        """Run until idle with a progress bar; how many runs that were."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        before = len(self.runs)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self.console) as self.progress:
            self.task = self.progress.add_task("looking", total=total)
            self.runner.run_until_idle()
            self.progress.update(self.task, description="idle", total=total or 0)
        return len(self.runs) - before

    def _on_run(self, result: "dg.ExecuteInProcessResult") -> None:
        self.runs.append(result)
        self.progress.update(self.task, advance=1, description=sentence(result))
        if not result.success:
            raise DemoFailed(f"{sentence(result)}. See the run's log: {self._where_next()}")

    def _expect(self, found: int, expected: int) -> None:
        if found != expected:
            raise DemoFailed(f"{found} runs were made: expected {expected}. See them: {self._where_next()}")

    def _check_refusal(self) -> None:
        from feed_assets.feeds.read import latest

        reading = latest(self.board, Partition(SHOWN_RAW, "/".join(CORRUPT)))
        if reading.update is None or not reading.skipped:
            raise DemoFailed(f"{reading.partition}: the corrupt update was not refused in favour of the one before.")
        skipped = reading.skipped[0]
        refused = f"  refused {skipped.id}: {skipped.reason}; {reading.update.id} goes on serving"
        self.console.print(refused, soft_wrap=True)

    def _finish(self, places: Sequence[tuple[str, str]]) -> None:
        from feed_assets.defs.ads.sample import figures

        lines = [self._line(*place) for place in places]
        self.console.print(f"\n{EFFECTIVENESS}, by day and campaign")
        self.console.print(_table(lines))
        for line in lines:
            if (line.impressions, line.clicks) != figures(line.day, line.campaign):
                raise DemoFailed(f"{line} differs from the sample's own {figures(line.day, line.campaign)}.")
        self.console.print(f"\nAll {len(lines)} lines are what the sample says.\n{self._where_next()}", soft_wrap=True)

    def _line(self, day: str, campaign: str) -> Line:
        """Sum a published partition up, as any reader of the feed could."""
        from feed_assets.feeds.read import latest, require
        from feed_assets.spark.read import read_own

        update = require(latest(self.board, Partition(EFFECTIVENESS, f"{day}/{campaign}")))
        rows = read_own(self.bench.spark(), self.board, update)
        total = rows.selectExpr("sum(impressions) AS impressions", "sum(clicks) AS clicks").collect()[0]
        return Line(day, campaign, total["impressions"], total["clicks"], update.id)

    def _where_next(self) -> str:
        at = f"DAGSTER_HOME={self.folder}"
        return (
            f"In the web UI:  {at} make ui\n"
            f"The files:      {at} .venv/bin/feed-assets feed show {EFFECTIVENESS} {'/'.join(LATE)}\n"
            f"Why or why not: {at} .venv/bin/feed-assets explain {EFFECTIVENESS} {'/'.join(CORRUPT)}"
        )


def _table(lines: Sequence[Line]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("day", "campaign"):
        table.add_column(name, no_wrap=True)
    for name in ("impressions", "clicks", "CTR", "95 % interval", "update id"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        low, high = line.interval
        rate, interval = f"{line.clicks / line.impressions:.2%}", f"{low:.2%}-{high:.2%}"
        table.add_row(line.day, line.campaign, f"{line.impressions}", f"{line.clicks}", rate, interval, line.update_id)
    return table
