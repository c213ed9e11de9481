"""A build killed on its way, in a separate process: a small module, so that the process imports little."""

import os
import signal

import pyspark.sql.connect.dataframe  # noqa: F401  (imported once, in the fork server)
from dagster_pyspark import LazyPySparkResource  # noqa: F401  (the same)

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.maker import Maker, Task
from feed_assets.runs.services import Services, spark_maker
from feed_assets.settings import Settings
from feed_assets.testing import Given, PlainMaker
from feed_assets_tests.support import feed_processes, ledger_processes
from feed_assets_tests.support.build_lake import NOW, Lake

feed_processes.processes.set_forkserver_preload([feed_processes.__name__, ledger_processes.__name__, __name__])


def plain(board: Blackboard) -> Maker:
    """Return a maker that treats raw lines like Spark: a line whose id is a number is a row, any other is a reject."""

    def given(task: Task) -> Given:
        files = [file for update in task.updates["raw"] for file in update.files]
        lines = [line for file in files for line in (board.get(file.key) or b"").decode().splitlines()[1:]]
        rows = [dict(zip(("id", "at"), line.split(","), strict=True)) for line in lines]
        return Given([row for row in rows if row["id"].isdigit()], [row for row in rows if not row["id"].isdigit()])

    return PlainMaker(given)


def build_and_die(board_url: str, ledger_url: str, spark_remote: str | None, key: str, last: str) -> None:
    """Build a partition, with Spark if there is one, and be killed right after the step `last`."""

    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    board, ledger = Blackboard.open(board_url), open_ledger(ledger_url)

    def make() -> Maker:
        return spark_maker(Settings(spark_remote=spark_remote)) if spark_remote else plain(board)

    Lake(Services(board, ledger, make, lambda: NOW, die)).clean(key)
