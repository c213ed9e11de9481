"""A build by events killed on its way. Its rows are given: `test_killed` has kills within Spark."""

import os
import signal

import alembic.command  # noqa: F401  (imported once, in the fork server)

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.plans import RunSpec
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.build import build
from feed_assets.runs.phases import Outcome
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.services import Services
from feed_assets.testing import PlainMaker
from feed_assets_tests.support import feed_processes, ledger_processes
from feed_assets_tests.support.build_lake import NOW

REPORT, A, B = (Feed.parse(name) for name in ("team/report/v1.0", "team/a", "team/b"))
RECIPE = Recipe(
    REPORT,
    (RecipeInput("a", A, is_table=True), RecipeInput("b", B, is_table=True)),
    lambda a, b: None,
    code_version="1",
)

feed_processes.processes.set_forkserver_preload(
    [feed_processes.__name__, ledger_processes.__name__, "feed_assets_tests.runs.killed", __name__]
)


def play(services: Services, key: str, run_spec: RunSpec) -> Outcome:
    """Build a partition of the report."""
    return build(
        RECIPE, Partition(REPORT, key), {"a": [Partition(A)], "b": [Partition(B)]}, services, run_spec=run_spec
    )


def build_and_die(board_url: str, ledger_url: str, key: str, run_spec: RunSpec, last: str) -> None:
    """Build a partition, and be killed right after the step `last`."""

    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    play(Services(Blackboard.open(board_url), open_ledger(ledger_url), PlainMaker, lambda: NOW, die), key, run_spec)
