"""A backfill as the web UI launches it: the real webserver and daemon, in a process group of their own."""

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.request import Request, urlopen

import dagster as dg
import pytest

from feed_assets.cli.processes import free_port, group, wait_for_port
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.runs.workbench import open_board
from feed_assets.settings import settings
from feed_assets_tests.servers import wait_until

DAYS = ("2020-01-01", "2020-01-02")
PROJECT = dedent(
    '''
    import dagster as dg

    from feed_assets import checks, feed_asset, foreign_feed

    days = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-06")
    raw = foreign_feed("t/raw/v1.0", partitions_def=days, schema="k string, n int")


    @feed_asset("t/copy/v1.0", partitions_def=days, inputs={"raw": raw}, checks=[checks.not_empty()])
    def copy(raw):
        """The rows as they are."""
        return raw


    # No sensors: whatever is built, the backfill had it built.
    defs = dg.Definitions(assets=[raw, copy], executor=dg.in_process_executor)
    '''
)
INSTANCE = dedent(
    """
    run_coordinator:
      module: dagster
      class: QueuedRunCoordinator
      config: {dequeue_interval_seconds: 1}
    telemetry: {enabled: false}
    """
)
LAUNCH = """
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
STATUS = """
query($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status assetBackfillData { rootTargetedPartitions { partitionKeys } } }
  }
}
"""

GraphQL = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def graphql(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GraphQL]:
    """The GraphQL endpoint of `dagster dev` on a project of one dataset."""
    (tmp_path / "backfilled.py").write_text(PROJECT)
    (home / "dagster.yaml").write_text(INSTANCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    monkeypatch.chdir(tmp_path)
    port = free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port), "-m", "backfilled"]
    with group("dagster dev", command, tmp_path / "dev.log") as server:
        wait_for_port(server, port)
        yield lambda query, variables: ask(port, query, variables)


def ask(port: int, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as response:  # noqa: S310
        return json.load(response)["data"]


def test_a_backfill_from_the_ui_is_one_run_for_each_partition_and_publishes_all(graphql):
    board = open_board(settings())
    for day in DAYS:
        write.publish(board, Partition(Feed.parse("t/raw/v1.0"), day), {"part.csv": b"k,n\na,1\n"}, datetime.now(UTC))
    selection = [{"path": ["t", "copy"]}, {"path": ["t", "copy_rejects"]}]
    launched = graphql(LAUNCH, {"params": {"assetSelection": selection, "partitionNames": [*DAYS]}})
    backfill = launched["launchPartitionBackfill"]["backfillId"]

    def status() -> str:
        return graphql(STATUS, {"id": backfill})["partitionBackfillOrError"]["status"]

    wait_until(lambda: status().startswith("COMPLETED"), "the end of the backfill", 180, pause=1)
    with dg.DagsterInstance.get() as instance:
        runs = instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
    assert sorted((run.tags["dagster/partition"], run.status.value) for run in runs) == [
        (day, "SUCCESS") for day in DAYS
    ]
    for feed in ("t/copy/v1.0", "t/copy_rejects/v1.0"):
        assert all(read.latest(board, Partition(Feed.parse(feed), day)).update for day in DAYS)
