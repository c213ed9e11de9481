"""A build killed on its way, in a separate process: a small module, so that the process imports little."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyspark.sql.connect.dataframe  # noqa: F401  (imported once, in the fork server)
from dagster_pyspark import LazyPySparkResource  # noqa: F401  (the same)

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.maker import Maker, Task
from feed_assets.runs.services import Services, spark_maker
from feed_assets.settings import Settings
from feed_assets.testing import Given, PlainMaker
from feed_assets_tests.support import feed_processes, ledger_processes
from feed_assets_tests.support.build_lake import CLEAN, NOW, REJECTS, Lake

feed_processes.processes.set_forkserver_preload([feed_processes.__name__, ledger_processes.__name__, __name__])


def plain(board: Blackboard) -> Maker:
    """Return a maker that treats raw lines like Spark: a line whose id is a number is a row, any other is a reject."""

    def given(task: Task) -> Given:
        files = [file for update in task.updates["raw"] for file in update.files]
        lines = [line for file in files for line in (board.get(file.key) or b"").decode().splitlines()[1:]]
        rows = [dict(zip(("id", "at"), line.split(","), strict=True)) for line in lines]
        return Given([row for row in rows if row["id"].isdigit()], [row for row in rows if not row["id"].isdigit()])

    return PlainMaker(given)


def services_on(urls: Sequence[str], ledger_url: str, maker: Callable[[], Maker] | None = None) -> Services:
    """Return services with raw feeds on the first blackboard and datasets on the last, which may be the same."""
    board, own = (Blackboard.open(url, create=True) for url in (urls[0], urls[-1]))
    services = Services(board, open_ledger(ledger_url), maker or (lambda: plain(board)), lambda: NOW)
    if board.url == own.url:
        return services
    elsewhere = dict.fromkeys((CLEAN, REJECTS), "archive")
    return replace(services, elsewhere=elsewhere, other_boards={"archive": own}, own_boards=["archive"])


def build_and_die(urls: Sequence[str], ledger_url: str, spark_remote: str | None, key: str, last: str) -> None:
    """Build a partition, with Spark if there is one, and be killed right after the step `last`."""

    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    make = (lambda: spark_maker(Settings(spark_remote=spark_remote))) if spark_remote else None
    services = services_on(urls, ledger_url, make)
    Lake(replace(services, on_step=die)).clean(key)
