"""Spark as the maker of rows. Whoever imports this pays for PySpark."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from feed_assets.core.feeds import Partition, Update
from feed_assets.core.written import Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.runs.checks import Audited, run_checks
from feed_assets.runs.maker import Audit, Output, Task
from feed_assets.runs.transform import Frames, transformed
from feed_assets.spark.digest import measured
from feed_assets.spark.errors import reading
from feed_assets.spark.read import read_own
from feed_assets.spark.write import preview, write


@dataclass(frozen=True)
class SparkMade:
    """The frames of one task."""

    task: Task
    board: Blackboard
    spark: SparkSession
    frames: Frames

    def write(self, partition: Partition, update_id: str) -> Written:
        """Write the frame of one output."""
        event_time = self.task.recipe.event_time if partition == self.task.output else None
        return write(self._frame(partition), self.board, partition, update_id, event_time=event_time)

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """Run the checks on the parts of the dataset, which is the last output."""
        recipe, main = self.task.recipe, outputs[-1]
        written = read_own(self.spark, self.board, main.update, self._frame(main.partition).schema)
        rejected = sum(output.written.records for output in outputs[:-1])
        audited = Audited(written, main.written.records, rejected, self.frames.inputs, self.frames.read)
        checks = run_checks(recipe.checks, audited)
        chart = recipe.chart(written) if recipe.chart else None
        return Audit(checks, preview(written), chart)

    def _frame(self, partition: Partition) -> DataFrame:
        return self.frames.outputs[self.task.recipe.outputs.index(partition.feed)]


@dataclass(frozen=True)
class SparkMaker:
    """Makes with the session that `sessions` opens for each task, and closes or restores after it."""

    sessions: Callable[[], AbstractContextManager[SparkSession]]

    @contextmanager
    def make(self, task: Task, board: Blackboard) -> Generator[SparkMade]:
        """Read the inputs as frames and run the function on them."""
        with self.sessions() as spark, transformed(task, spark, board) as frames:
            yield SparkMade(task, board, spark, frames)

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:
        """Count and digest the rows of an update, in one job."""
        with self.sessions() as spark, reading([update]):
            return measured(read_own(spark, board, update))
