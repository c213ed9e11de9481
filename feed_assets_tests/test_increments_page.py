"""The code of docs/increments.md: the shop's statements, the dataset, and each run's input and output."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
import yaml
from pyspark.sql import SparkSession

from feed_assets import with_automation
from feed_assets.core.events import Operation, Recorded, decode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import batch_set, read
from feed_assets.ledger import event_store, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.session import session
from feed_assets.testing import Harness

TEXT = (Path(__file__).parents[1] / "docs" / "increments.md").read_text(encoding="utf-8")
ORDERS = Partition(Feed.parse("sales/orders/v1.0"), "")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


DDL, *STEPS, BY_HAND = blocks("sql")
DATASET, SOFT_DELETES, APPENDED = blocks("python")
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| \w+ \| (?:rel|inc).*", TEXT, re.M)
]


@dataclass
class Story:
    """Plan, slice and published rows of each run of the page, and the event that reported its update."""

    harness: Harness
    shop: sa.Engine
    runs: list[list[str]] = field(default_factory=list[list[str]])
    told: list[Recorded] = field(default_factory=list[Recorded])

    def run(self, statements: str) -> None:
        with self.shop.begin() as connection:
            connection.exec_driver_sql(statements)
        (ran,) = self.harness.run_until_idle()
        assert ran.error is None
        with open_ledger(settings().ledger).read() as connection:
            (pin,) = updates.consumed_by(connection, ORDERS, self.harness.newest(str(ORDERS.feed)) or "")
            self.told += event_store.newest(connection, 1, ORDERS.feed)
        markers = [f"{decode(each):%Y-%m-%d %H:%M}" if each else "" for each in (pin.start, pin.update_id)]
        self.runs.append([ran.tags["feed_assets/plan"], *markers, self.rows()])

    def rows(self) -> str:
        update = read.require(read.latest(self.harness.board, ORDERS))
        rows = read_own(session(settings()), self.harness.board, update).orderBy("number").collect()
        return ", ".join(f"{row['number']} {row['item']} {row['amount']}" for row in rows)

    def by_hand(self, run_config: dict[str, Any]) -> dg.ExecuteInProcessResult:
        job = self.harness.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.harness.instance, run_config=run_config)


def module_of(code: str) -> ModuleType:
    """Return the page's code as a module."""
    module = ModuleType("increments_page")
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)  # noqa: S102
    return module


@pytest.fixture
def story(spark: SparkSession, home: Path, postgresql: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    """Play the page up to its table of runs."""
    url = str(postgresql.database())
    monkeypatch.setenv("SHOP_URL", url)
    shop = sa.create_engine(url, poolclass=sa.NullPool)
    with shop.begin() as connection:
        connection.exec_driver_sql(DDL)
    page = module_of(DATASET)
    with Harness(with_automation(dg.Definitions(assets=[page.orders, page.all_orders]))) as harness:
        found = Story(harness, shop)
        for statements in STEPS:
            found.run(statements)
        yield found
    del sys.modules[page.__name__]


def test_each_run_of_the_page_reads_and_publishes_what_its_table_says(story: Story) -> None:
    assert story.runs == [row[1:] for row in ROWS]
    assert [told.operation for told in story.told] == [
        Operation.OVERWRITE if plan == "reload" else Operation.UPSERT for plan, *_ in story.runs
    ]
    (shown,) = blocks("json")
    assert story.told[1].context["slices"] == yaml.safe_load(shown)["slices"]
    assert {"added_to", "slices"} <= story.told[1].context.keys()
    with story.shop.begin() as connection:
        connection.exec_driver_sql(BY_HAND)
    (config,) = blocks("yaml")
    assert story.by_hand(yaml.safe_load(config)).success
    assert story.rows() == ROWS[-1][-1].replace("tea", "green tea")
    assert story.harness.run_until_idle() == []


def test_rows_that_are_marked_as_deleted_are_merged_as_deletes(spark: SparkSession) -> None:
    merged = module_of(SOFT_DELETES).merged
    previous = spark.createDataFrame([(1, "ice", 1), (2, "tea", 1)], "number int, item string, updated_at int")
    increment = [(1, "ice", 2, True), (3, "jam", 2, False)]
    rows = spark.createDataFrame(increment, "number int, item string, updated_at int, deleted boolean")
    assert sorted(tuple(row) for row in merged(previous, rows).collect()) == [(2, "tea", 1), (3, "jam", 2)]


def test_the_appendable_dataset_of_the_page_is_batches_that_are_put_together(
    spark: SparkSession, home: Path, postgresql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(postgresql.database())
    monkeypatch.setenv("SHOP_URL", url)
    shop, at = sa.create_engine(url, poolclass=sa.NullPool), Partition(Feed.parse("sales/order_log/v1.0"), "")
    page = module_of(f"{DATASET}\n\n{APPENDED}")
    with Harness(with_automation(dg.Definitions(assets=[page.orders, page.order_log]))) as harness:
        for statements in (DDL, *STEPS[:2]):
            with shop.begin() as connection:
                connection.exec_driver_sql(statements)
            harness.run_until_idle()
        before, then = rows_in(harness, at), datetime.now(UTC)
        would = {"partition": "", "batches": ["b00000001", "b00000002"], "into": "b00000001-00000002", "applied": False}
        assert json.loads(compacted(at, "--json")) == [would]
        assert compacted(at, "--apply").splitlines()[-1] == "1 batches were made of 2"
        assert len(before) > 1
        assert rows_in(harness, at, batches_there=1) == before
        assert rows_in(harness, at, as_of=then) == before
        assert harness.run_until_idle() == []


def compacted(at: Partition, *options: str) -> str:
    """Return the output of the command."""
    command = [Path(sys.executable).with_name("feed-assets"), "feed", "compact", str(at.feed), "--least", "2", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def rows_in(
    harness: Harness, at: Partition, batches_there: int = 2, as_of: datetime | None = None
) -> list[tuple[Any, ...]]:
    found = batch_set.latest(harness.board, at, as_of).updates
    assert len(found) == batches_there
    return sorted(tuple(row) for each in found for row in read_own(session(settings()), harness.board, each).collect())
