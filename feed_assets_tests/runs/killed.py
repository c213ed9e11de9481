"""A build that is killed on its way, in a process of its own: a module of its own, so that it imports little else."""

import os
import signal

import pyspark.sql.connect.dataframe  # noqa: F401  (imported once, in the fork server)
from dagster_pyspark import LazyPySparkResource  # noqa: F401  (the same)

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import Services, spark_maker
from feed_assets.settings import Settings
from feed_assets_tests.feeds import workers as feed_workers
from feed_assets_tests.ledger import workers as ledger_workers
from feed_assets_tests.runs.lakes import NOW, Lake

feed_workers.processes.set_forkserver_preload([feed_workers.__name__, ledger_workers.__name__, __name__])


def build_and_die(board_url: str, ledger_url: str, spark_remote: str, key: str, last: str) -> None:
    """Build a partition, and be killed right after the step `last`."""

    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = Settings(spark_remote=spark_remote)
    board, ledger = Blackboard.open(board_url), open_ledger(ledger_url)
    Lake(Services(board, ledger, lambda: spark_maker(settings), lambda: NOW, die)).clean(key)
