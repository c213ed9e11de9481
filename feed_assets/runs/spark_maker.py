"""Spark as the maker of rows. Whoever imports this pays for PySpark."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession

from feed_assets.core.feeds import Partition, Update
from feed_assets.core.windows import step_of
from feed_assets.core.written import Counts, Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.runs.checks import Audited
from feed_assets.runs.maker import Audit, Output, Task
from feed_assets.runs.profiling import audit
from feed_assets.runs.transform import Frames, path_of_file, transformed
from feed_assets.runs.wrong_sql import naming_sql
from feed_assets.spark.digest import measured
from feed_assets.spark.errors import reading
from feed_assets.spark.read import read_own
from feed_assets.spark.rejects import REJECTS, write_rejects
from feed_assets.spark.windows import Counting
from feed_assets.spark.write import write

PROFILE_SCHEMA = "measure string, found double, median double, mad double, is_anomaly boolean"


@dataclass(frozen=True)
class SparkMade:
    """The frames of one task."""

    task: Task
    board: Blackboard
    spark: SparkSession
    frames: Frames

    def write(self, partition: Partition, update_id: str) -> Written:
        """Write the rows of one output."""
        if partition.feed != self.task.output.feed:
            return write_rejects(self.frames.rejected, self.board, partition, update_id)
        recipe = self.task.recipe
        counting = _counting(recipe.event_time, recipe.grain)
        rows = self.frames.rows
        return write(rows, self.board, partition, update_id, event_time=recipe.event_time, counting=counting)

    def counted(self) -> list[tuple[Update, Counts]]:
        """Count what was read and kept: once it is written, nothing is read or parsed for that again."""
        found: list[tuple[Update, Counts]] = []
        for source in self.task.recipe.sources:
            updates = self.task.uncounted.get(source.name, ())
            if updates and (counting := _counting(source.event_time, source.grain)):
                counts = counting.counted(self.frames.read[source.name], path_of_file(updates))
                found += [(update, counts.get(update.path, ())) for update in updates]
        return found

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """Run the checks on the parts of the dataset, which is the last output."""
        recipe, main = self.task.recipe, outputs[-1]
        written = read_own(self.spark, self.board, main.update, self.frames.rows.schema)
        rejected = sum(output.written.records for output in outputs[:-1])
        rejects = partial(self._rejects, outputs[:-1]) if outputs[:-1] else None
        audited = Audited(written, main.written.records, rejected, self.frames.inputs, self.frames.read, rejects)
        with naming_sql(recipe, audited):
            checks, measures, figures = audit(recipe, audited, self.task.baseline, is_suspect=self.task.is_suspect)
        chart = recipe.chart(written) if recipe.chart else None
        return Audit(checks, main.written.preview, chart, measures if recipe.profile else None, figures)

    def _rejects(self, outputs: Sequence[Output]) -> DataFrame:
        """The rejected records, read back."""
        frames = [read_own(self.spark, self.board, output.update, REJECTS) for output in outputs]
        return reduce(DataFrame.unionByName, frames)


@dataclass(frozen=True)
class SparkProfiled(SparkMade):
    """The profile of rows that others wrote, in place of these."""

    found: Audit

    @classmethod
    def of(cls, made: SparkMade) -> "SparkProfiled":
        """Measure and check the rows that the function gave."""
        rows, task = made.frames.rows, made.task
        audited = Audited(rows, rows.count(), 0, made.frames.inputs, made.frames.read)
        with naming_sql(task.recipe, audited):
            checks, measures, _ = audit(task.recipe, audited, task.baseline, is_suspect=task.is_suspect)
        profile: DataFrame = made.spark.createDataFrame([*checks[0].sample], PROFILE_SCHEMA)  # pyright: ignore[reportUnknownMemberType]
        frames = replace(made.frames, rows=profile)
        return cls(task, made.board, made.spark, frames, Audit(checks, "", None, measures))

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """What was found in the rows; what is shown is the profile itself."""
        return replace(self.found, preview=outputs[-1].written.preview)


@dataclass(frozen=True)
class SparkMaker:
    """Makes with the session that `sessions` opens for each task, and closes or restores after it."""

    sessions: Callable[[], AbstractContextManager[SparkSession]]

    @contextmanager
    def make(self, task: Task, board: Blackboard) -> Generator[SparkMade]:
        """Read the inputs as frames and run the function on them."""
        with self.sessions() as spark, transformed(task, spark, board) as frames:
            made = SparkMade(task, board, spark, frames)
            yield SparkProfiled.of(made) if task.recipe.is_companion else made

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:
        """Count and digest the rows of an update, in one job."""
        with self.sessions() as spark, reading([update]):
            return measured(read_own(spark, board, update))


def _counting(event_time: str | None, grain: str | None) -> Counting | None:
    """How rows are counted, if they are."""
    return Counting(event_time, step_of(grain)) if event_time and grain else None
