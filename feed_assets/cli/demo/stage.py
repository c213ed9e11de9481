"""The stage of every story of the demo: a home of its own, the runner, and the expected outcome of each step."""

import json
import os
import shlex
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import sqlalchemy as sa
import typer
from pydantic import SecretStr

from feed_assets.cli.demo.crm import Crm
from feed_assets.cli.loaded_location import open_services
from feed_assets.cli.run_output import sentence
from feed_assets.cli.terminal import echo
from feed_assets.core.errors import DemoFailed
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.warehouses import Warehouse
from feed_assets.defs.retail.customers import VARIABLE
from feed_assets.feeds import read, write
from feed_assets.home import home, make_home
from feed_assets.orchestration.run_outcomes import ends_of
from feed_assets.orchestration.runner import Runner
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.jvm import hide_banner
from feed_assets.spark.session import session
from feed_assets.warehouse import loader
from feed_assets.warehouse.dataset import DatasetUpdates
from feed_assets.warehouse.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = "this-is-the-demo"
BOARDS = "FEED_ASSETS_BLACKBOARDS"


def fresh_home() -> Path:
    """Make a new home for the demo; nothing else in the user's home is touched."""
    folder = home() / "demo"
    if folder.exists() and not (folder / MARK).exists():
        raise DemoFailed(f"{folder} exists and was not made by the demo: move it away.")
    shutil.rmtree(folder, ignore_errors=True)
    make_home(folder.parent)
    folder.mkdir(0o700)
    (folder / MARK).touch()
    for name in ("FEED_ASSETS_BLACKBOARD", "FEED_ASSETS_LEDGER", "FEED_ASSETS_ADS_CAMPAIGNS"):
        os.environ.pop(name, None)
    os.environ["DAGSTER_HOME"] = str(folder)
    (partner_folder := folder / "women").mkdir()
    os.environ[BOARDS] = json.dumps({partner_folder.name: {"url": partner_folder.as_uri()}})
    os.environ[VARIABLE] = sa.URL.create("sqlite", database=str(folder / "crm.db")).render_as_string()
    Crm(os.environ[VARIABLE])  # This makes the CRM's database, because sensors read it from the first step on.
    settings.cache_clear()
    return folder


class Stage:
    """The demo's runner.

    It ends the demo if a partition fails, or if the number of built partitions is not the expected one.
    """

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance, folder: Path) -> None:
        self.definitions, self.folder = definitions, folder
        hide_banner()
        self.services = open_services()
        self.board = self.services.board_named(None)
        self.runner = Runner(definitions, instance, self._on_run)
        self.warehouse = Target("demo", Warehouse(url=SecretStr(f"duckdb://{folder / 'warehouse.db'}")))
        self._built = self._steps = 0

    def step(self, text: str) -> None:
        """Print the next step."""
        self._steps += 1
        self.say(f"{typer.style(self._steps, bold=True)} {text}")

    def say(self, text: str) -> None:
        """Print a line below the current step."""
        echo(text)

    def publish(self, feed: Feed, key: str, content: bytes) -> None:
        """Drop a file as its foreign producer does."""
        write.publish(self.board, Partition(feed, key), {"part-1.csv": content}, self.services.now())

    def published(self, feed: Feed, key: str) -> "tuple[Update, DataFrame]":
        """Return the newest update of a dataset, and its rows as any reader gets them."""
        update = read.require(read.latest(self.board, Partition(feed, key)))
        return update, read_own(session(settings()), self.board, update)

    def load(self, feed: Feed, expected: int) -> None:
        """Load a dataset into the warehouse. Raise DemoFailed unless `expected` partitions are loaded."""
        loads = loader.once(self.warehouse, {str(feed): DatasetUpdates(feed, self.services.ledger, self.board)})
        if loads != expected:
            raise DemoFailed(f"{loads} partitions of {feed} were loaded: expected {expected}. {self.where_next}")
        self.say(f"  loaded {loads} partitions of {feed} into {self.folder / 'warehouse.db'}, a DuckDB file")

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """Return the warehouse's answer to a query."""
        with self.warehouse.engine.open() as connection:
            return connection.execute(question)

    def later(self, hours: int) -> None:
        """Set the runner's clock `hours` hours ahead."""
        self.runner = replace(self.runner, now=lambda: utc_now() + timedelta(hours=hours))

    def run(self, expected: int) -> None:
        """Run until idle and print a line for each partition. Raise DemoFailed unless `expected` ones are built."""
        before = self._built
        self.runner.run_until_idle()
        built = self._built - before
        if built != expected:
            raise DemoFailed(f"{built} partitions were built: expected {expected}. See them: {self.where_next}")
        self.say(f"  idle after {built}/{expected} partitions")

    def _on_run(self, result: dg.ExecuteInProcessResult) -> None:
        for each in ends_of(result):
            self._built += 1
            self.say(f"  {sentence(each, result.run_id)}")
            if not each.succeeded:
                raise DemoFailed(f"{sentence(each, result.run_id)}. See the run's log: {self.where_next}")

    @property
    def where_next(self) -> str:
        """Return commands for a closer look."""
        at = f"DAGSTER_HOME={self.folder}"
        variables = " ".join(f"{name}={shlex.quote(os.environ[name])}" for name in (BOARDS, VARIABLE))
        return (
            f"In the web UI:  {at} {variables} make ui\n"
            f"The files:      {at} .venv/bin/feed-assets feed show ads/effectiveness/v1.0 2019-11-26/men\n"
            f"Why or why not: {at} .venv/bin/feed-assets explain retail/daily_summary/v1.0 2010-12-05\n"
            f"Late data:      {at} .venv/bin/feed-assets late ls ads/partners_daily/v1.0\n"
            f"The windows:    {at} .venv/bin/feed-assets state show ads/impressions\n"
            f"The events:     {at} .venv/bin/feed-assets events ls retail/daily_summary/v1.0\n"
            f"Increments:     {at} .venv/bin/feed-assets events ls retail/customers/v1.0"
        )
