"""A build by events that is killed on its way. What Spark does is played: kills within that are in `test_killed`."""

import os
import signal
from contextlib import nullcontext
from types import SimpleNamespace

import alembic.command  # noqa: F401  (imported once, in the fork server)

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.plans import Work
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.runs import build as module
from feed_assets.runs.recipe import Recipe, Source
from feed_assets.runs.workbench import Workbench
from feed_assets_tests.feeds import workers as feed_workers
from feed_assets_tests.ledger import workers as ledger_workers
from feed_assets_tests.runs.lakes import NOW

REPORT, A, B = (Feed.parse(name) for name in ("team/report/v1.0", "team/a", "team/b"))
RECIPE = Recipe(
    REPORT, (Source("a", A, is_table=True), Source("b", B, is_table=True)), lambda a, b: None, code_version="1"
)

feed_workers.processes.set_forkserver_preload(
    [feed_workers.__name__, ledger_workers.__name__, "feed_assets_tests.runs.killed", __name__]
)


class Played(module._Build):
    """A build whose rows are a constant."""

    def _transformed(self, found, cut):
        return nullcontext()

    def _write(self, claimed, made):
        ((partition, update_id),) = claimed
        self.bench.board.put(f"{partition.path}/{update_id}/part-0", b"rows")
        files = self.bench.board.files(f"{partition.path}/{update_id}")
        written = SimpleNamespace(files=files, records=1, first=None, last=None, data_version=update_id)
        self.bench.on_step(f"parts of {partition.feed} written")
        outputs = (module.Output(partition, update_id, written),)
        self._stage(outputs)
        return outputs

    def _audit(self, outputs, made):
        self.bench.on_step("audited")
        return module._Audit((), "", None)


def play(bench: Workbench, key: str, work: Work) -> module.Outcome:
    """Build a partition of the report."""
    module._Build = Played
    inputs = {"a": [Partition(A)], "b": [Partition(B)]}
    return module.build(RECIPE, Partition(REPORT, key), inputs, bench, work=work)


def build_and_die(board_url: str, ledger_url: str, key: str, work: Work, last: str) -> None:
    """Build a partition, and be killed right after the step `last`."""

    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def no_spark():
        raise AssertionError("what Spark does is played")

    play(Workbench(Blackboard.open(board_url), open_ledger(ledger_url), no_spark, lambda: NOW, die), key, work)
