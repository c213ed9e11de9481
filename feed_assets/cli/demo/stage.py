"""What every story of the demo plays on: a home of its own, a console, the runner, and what must come of a step."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from feed_assets.cli.run import sentence
from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    import dagster as dg
    from rich.console import Console

    from feed_assets.feeds.blackboard import Blackboard

MARK = "this-is-the-demo"


def fresh_home() -> Path:
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


class Stage:
    """The demo's console and runner. A run that fails, or one too many or too few, ends the demo."""

    def __init__(
        self, console: "Console", definitions: "dg.Definitions", instance: "dg.DagsterInstance", folder: Path
    ) -> None:
        from feed_assets.orchestration.runner import Runner
        from feed_assets.runs.workbench import Workbench
        from feed_assets.settings import settings

        self.console, self.folder, self.definitions = console, folder, definitions
        self.bench = Workbench.of(settings())
        self.board: Blackboard = self.bench.board
        self.runner = Runner(definitions, instance, self._on_run)
        self.runs: list[dg.ExecuteInProcessResult] = []
        self._steps = 0

    def step(self, text: str) -> None:
        """Say what comes next."""
        self._steps += 1
        self.console.print(f"[bold]{self._steps}[/] {text}", soft_wrap=True)

    def tell(self, text: str) -> None:
        """Say something of this step."""
        self.console.print(text, soft_wrap=True)

    def publish(self, feed: Feed, key: str, content: bytes) -> None:
        """Drop a file as its foreign producer does."""
        from feed_assets.feeds.write import publish
        from feed_assets.runs.workbench import utc_now

        publish(self.board, Partition(feed, key), {"part-1.csv": content}, utc_now())

    def run(self, expected: int) -> None:
        """Run until idle with a progress bar: so many runs, or the demo has failed."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        before = len(self.runs)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self.console) as self._progress:
            self._task = self._progress.add_task("looking", total=expected or None)
            self.runner.run_until_idle()
            self._progress.update(self._task, description="idle", total=expected)
        found = len(self.runs) - before
        if found != expected:
            raise DemoFailed(f"{found} runs were made: expected {expected}. See them: {self.where_next}")

    def _on_run(self, result: "dg.ExecuteInProcessResult") -> None:
        self.runs.append(result)
        self._progress.update(self._task, advance=1, description=sentence(result))
        if not result.success:
            raise DemoFailed(f"{sentence(result)}. See the run's log: {self.where_next}")

    @property
    def where_next(self) -> str:
        """Commands to look further."""
        at = f"DAGSTER_HOME={self.folder}"
        return (
            f"In the web UI:  {at} make ui\n"
            f"The files:      {at} .venv/bin/feed-assets feed show ads/effectiveness/v1.0 2019-11-26/men\n"
            f"Why or why not: {at} .venv/bin/feed-assets explain retail/daily_summary/v1.0 2010-12-05\n"
            f"What was told:  {at} .venv/bin/feed-assets events ls retail/daily_summary/v1.0"
        )
