"""Spark as the maker of rows. Importing this module loads PySpark."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession

from feed_assets.core.errors import OutOfMemory, SparkDied
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.message_words import shortened
from feed_assets.core.packed import ending_of
from feed_assets.core.slices import SliceReader
from feed_assets.core.source_lines import line_of
from feed_assets.core.write_result import Counts, Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import check_footers
from feed_assets.runs.checks import Audited, Unique
from feed_assets.runs.maker import Audit, Output, Task
from feed_assets.runs.profiling import audit, sql_aggregates
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.transform import RECORDS, Frames, path_of_file, transformed
from feed_assets.runs.wrong_sql import naming_sql
from feed_assets.spark.digest import measured
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.rejects import REJECTS, write_rejects
from feed_assets.spark.sizing import bytes_of
from feed_assets.spark.spark_errors import SPARK_ERRORS, of_function, reading
from feed_assets.spark.window_counts import Counting, counting_of
from feed_assets.spark.written_frame import observable, write

_NAMED = 5
"""Greatest number of packed inputs that an error names."""

PROFILE_SCHEMA = "measure string, found double, median double, mad double, is_anomaly boolean"


@dataclass(frozen=True)
class SparkMade:
    """The results of one task as Spark frames, which are not written yet."""

    task: Task
    board: Blackboard
    spark: SparkSession
    frames: Frames

    def write(self, partition: Partition, update_id: str) -> Written:
        """Write the rows, or the rejects, of one output as parts of an update."""
        if partition.feed != self.task.output.feed:
            return write_rejects(self.frames.rejected, self.board, partition, update_id)
        recipe = self.task.recipe
        counting = counting_of(recipe.event_time, recipe.grain)
        rows, measured = self.frames.rows, observable(self.frames.rows, self._measured)
        at, time = (self.board, partition, update_id), recipe.event_time
        with naming_sql(recipe, rows):
            return write(rows, *at, event_time=time, counting=counting, measured=measured, row_group=recipe.row_group)

    @property
    def _measured(self) -> dict[str, str]:
        """Return the SQL aggregates of the rows by name.

        Leave out aggregates of unique keys, which need another job.
        """
        apart = {check.name for check in self.task.recipe.checks if isinstance(check, Unique)}
        return {name: sql for name, sql in sql_aggregates(self.task.recipe).items() if name not in apart}

    def counted(self) -> list[tuple[Update, Counts]]:
        """Return record counts of the updates in `Task.uncounted`.

        Run a job only if they were not counted while reading.
        """
        update_counts: list[tuple[Update, Counts]] = []
        for source in self.task.recipe.sources:
            updates = self.task.uncounted.get(source.name, ())
            if updates and (counting := counting_of(source.event_time, source.grain)):
                counts = self._counted_on_the_way(source.name, counting)
                if counts is None:
                    by_path = counting.counted(self.frames.read[source.name], path_of_file(updates))
                    counts = {number: by_path.get(each.path, ()) for number, each in enumerate(updates)}
                update_counts += [(update, counts.get(number, ())) for number, update in enumerate(updates)]
        return update_counts

    def _counted_on_the_way(self, name: str, counting: Counting) -> dict[int, Counts] | None:
        """Return the counts of an input that were made while reading, by the position of each update.

        Return None if there are none, or if they are not exact.
        """
        tally = self.frames.tallies.get(name)
        if tally is None or "bins" not in tally.counts:
            return None
        return counting.exact_by_part(**{each: tally.values[each] for each in ("bins", "first", "last")})

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """Run the checks on the last output, the dataset. Aggregates computed while writing are not computed again."""
        recipe, main = self.task.recipe, outputs[-1]
        written = read_own(self.spark, self.board, main.update, self.frames.rows.schema)
        audited = Audited(
            written,
            main.written.records,
            sum(output.written.records for output in outputs[:-1]),
            inputs=self.frames.inputs,
            read=self.frames.read,
            rejects=partial(self._rejects, outputs[:-1]) if outputs[:-1] else None,
            records_read=self._records_read,
        )
        observed = {**main.written.observed, **self._repeated(main)}
        with naming_sql(recipe, written):
            checks, measures, figures = audit(
                recipe, audited, self.task.baseline, observed=observed, is_suspect=self.task.is_suspect
            )
        chart = recipe.chart(written) if recipe.chart else None
        return Audit(checks, main.written.preview, chart, measures if recipe.profile else None, figures)

    def _repeated(self, main: Output) -> dict[str, int]:
        """Count the rows that repeat a key, for each check of unique keys.

        Skip checks with a key type that DuckDB compares differently.
        """
        unique = [check for check in self.task.recipe.checks if isinstance(check, Unique)]
        if not unique:
            return {}
        # Import DuckDB here, because only a check of unique keys needs it.
        from feed_assets.reading.repeated_keys import is_judged_alike, repeated_rows

        kinds = dict(main.written.columns)
        repeated: dict[str, int] = {}
        for check in unique:
            if all(is_judged_alike(kinds.get(name, "")) for name in check.keys):
                repeated[check.name] = repeated_rows(self.board, main.update, check.keys)
        return repeated

    def _records_read(self) -> int:
        """Return the number of records of all inputs. Records of Parquet files are counted by the footers."""
        counted = {name: tally.values[RECORDS] for name, tally in self.frames.tallies.items()}
        for name in self.frames.read.keys() - counted.keys():
            board = self.task.boards.get(name, self.board)
            counted[name] = sum(check_footers(board, self.task.updates[name]).values())
        return sum(counted.values())

    def _rejects(self, outputs: Sequence[Output]) -> DataFrame:
        """Return the rejected records of all outputs, read back from the files that were written."""
        frames = [read_own(self.spark, self.board, output.update, REJECTS) for output in outputs]
        return reduce(DataFrame.unionByName, frames)


@dataclass(frozen=True)
class SparkProfiled(SparkMade):
    """The frames of a companion: a dataset that checks the rows of another team's feed.

    The profile (the measures of these rows) is written in place of the rows.
    """

    audited: Audit

    @property
    def _measured(self) -> dict[str, str]:
        """Return no aggregates, because the aggregates of the input's rows are already computed."""
        return {}

    @classmethod
    def of(cls, task_frames: SparkMade) -> "SparkProfiled":
        """Measure and check the rows that the function returned."""
        rows, task = task_frames.frames.rows, task_frames.task
        audited = Audited(
            rows,
            rows.count(),
            0,
            inputs=task_frames.frames.inputs,
            read=task_frames.frames.read,
            records_read=task_frames._records_read,
        )
        with naming_sql(task.recipe, rows):
            checks, measures, _ = audit(task.recipe, audited, task.baseline, is_suspect=task.is_suspect)
        profile: DataFrame = task_frames.spark.createDataFrame([*checks[0].sample], PROFILE_SCHEMA)  # pyright: ignore[reportUnknownMemberType]
        frames = replace(task_frames.frames, rows=profile)
        return cls(task, task_frames.board, task_frames.spark, frames, Audit(checks, "", None, measures))

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """Return the results for the input's rows, with the profile as the preview."""
        return replace(self.audited, preview=outputs[-1].written.preview)


@contextmanager
def naming_lines(recipe: Recipe) -> Generator[None]:
    """Turn Spark's error about a line of the user's code into FunctionFailed, which names the line.

    Use it outside of the session: the session needs Spark's own error to detect whether Spark has died.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        if (named := of_function(error, line_of(recipe.transform))) is None:
            raise
        raise named from error


@contextmanager
def naming_packed(updates: Sequence[Update]) -> Generator[None]:
    """Add the packed inputs to an error about memory or Spark's death, because they may unpack to very many bytes.

    Use it outside of the session, which raises these errors.
    """
    try:
        yield
    except (OutOfMemory, SparkDied) as error:
        files = [file for update in updates for file in update.files if ending_of(file.key)]
        if not files:
            raise
        packed = shortened([f"{file.key} ({file.size:,} bytes)" for file in files], _NAMED)
        raise type(error)(
            f"{error} Packed inputs may unpack to far more: {packed}. Examine these files, and invalidate the update "
            "of a wrong file (`feed-assets feed invalidate`)."
        ) from error


@dataclass(frozen=True)
class SparkMaker:
    """A maker on Spark.

    For each task, `sessions` opens a session of the right size, and closes or restores it afterwards. `reader` reads
    the slices that a function gets.
    """

    sessions: Callable[[int], AbstractContextManager[SparkSession]]
    reader: SliceReader | None = None

    @contextmanager
    def make(self, task: Task, board: Blackboard) -> Generator[SparkMade]:
        """Read the inputs as frames and run the function on them."""
        task = task.with_reader(self.reader)
        pinned = [update for updates in task.updates.values() for update in updates]
        size = bytes_of([*pinned, *([task.previous] if task.previous else [])])
        with (
            naming_packed(pinned),
            naming_lines(task.recipe),
            self.sessions(size) as spark,
            transformed(task, spark, board) as frames,
        ):
            task_frames = SparkMade(task, board, spark, frames)
            yield SparkProfiled.of(task_frames) if task.recipe.is_companion else task_frames

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:
        """Count and digest the rows of an update, in one job."""
        with self.sessions(bytes_of([update])) as spark, reading([update]):
            return measured(read_own(spark, board, update))
