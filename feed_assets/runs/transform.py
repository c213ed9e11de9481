"""From pinned updates to the frames that are written: read, sort out what does not parse, run the function."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.csv_dialect import RFC_4180
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import check_footers
from feed_assets.feeds.text_files import check_unaltered
from feed_assets.runs.maker import Task
from feed_assets.runs.recipe import PREVIOUS, Source
from feed_assets.spark import read
from feed_assets.spark.errors import reading
from feed_assets.spark.parse import is_clean
from feed_assets.spark.rejects import Rejected, is_tagged, split_on_the_way
from feed_assets.spark.row_counts import NOT_ANNOUNCED


@dataclass(frozen=True)
class Frames:
    """What a run works on: the frames that the function saw, its rows, and what is turned away.

    `read` are the inputs with the records in them that do not parse.
    """

    inputs: Mapping[str, DataFrame]
    read: Mapping[str, DataFrame]
    rows: DataFrame
    rejected: Sequence[Rejected]


@contextmanager
def transformed(task: Task, spark: SparkSession, board: Blackboard) -> Generator[Frames]:
    """Read the inputs and run the function. Spark's errors about pinned files get their names while this is open."""
    transform = _Transform(task, spark, board)
    own = [task.previous] if task.previous else []
    with reading([*own, *(update for updates in task.updates.values() for update in updates)]):
        try:
            yield transform.frames()
            transform.check_unaltered()
        except OF_ITS_OWN:
            transform.give_back()
            raise
        transform.give_back()


@dataclass(frozen=True)
class _Transform:
    """One task on one session; `kept` are the frames that Spark keeps until its end."""

    task: Task
    spark: SparkSession
    board: Blackboard
    kept: list[DataFrame] = field(default_factory=list[DataFrame])
    announced: dict[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    """Rows that the files of each input announce; they are compared when its rejects are written."""

    def frames(self) -> Frames:
        """The frames of the task: what is turned away while reading and by the function comes first."""
        sources = [source for source in self.task.recipe.sources if self.task.updates.get(source.name)]
        tagged = {source.name: self._tagged(source) for source in sources if source.schema}
        inputs = {source.name: self._input(source, tagged) for source in sources}
        rows = self._result(inputs)
        untagged = [each.name for each in sources if each.schema and not each.tagged]
        rejected = [Rejected.of(tagged[name], self.announced.get(name, NOT_ANNOUNCED)) for name in untagged]
        if is_tagged(rows):
            rows, turned_away = split_on_the_way(self._keep(_without_clean_texts(rows)))
            rejected.append(turned_away)
        if self.task.recipe.is_companion:
            rows = self._keep(rows)  # Others' rows may change between the jobs that measure and check them.
        return Frames(inputs, {**inputs, **tagged}, rows, rejected)

    def check_unaltered(self) -> None:
        """Raise UpdateChanged if a CSV or JSON file is not as listed any more: its rows may be those of another file.

        Parquet files are left out: their footers were compared, and their rows are counted.
        """
        for source in self.task.recipe.sources:
            if source.schema and source.format != "parquet":
                updates = self.task.updates.get(source.name, ())
                board = self.task.boards.get(source.name, self.board)
                check_unaltered(board, [file for update in updates for file in update.files])

    def give_back(self) -> None:
        """Have Spark keep nothing more; not after an interrupt, when it answers nobody."""
        for frame in self.kept:
            frame.unpersist()

    def _result(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """What the function makes of its inputs. Raises InvalidDefinition if that is not what it declares."""
        recipe = self.task.recipe
        absent = {source.name: None for source in recipe.sources if source.name not in inputs}
        result = recipe.transform(**{**absent, **inputs, **_further_arguments(self.task, self._previous())})
        if not isinstance(result, DataFrame):
            what = "a DataFrame of pandas" if _is_of_pandas(result) else type(result).__name__
            raise InvalidDefinition(
                f"{recipe.feed}: the function returned {what}: expected a DataFrame of pyspark.sql. Return one."
            )
        if is_tagged(result) != any(source.tagged and source.name in inputs for source in recipe.sources):
            raise InvalidDefinition(
                f"{recipe.feed}: a function with a tagged input returns its rows with _raw, _file and _reasons, one "
                "without does not: rows would be lost otherwise. Keep the three columns, or take the input untagged."
            )
        return result

    def _previous(self) -> DataFrame | None:
        update = self.task.previous
        if update is None:
            return None
        check_footers(self.board, [update])
        return read.read_own(self.spark, self.board, update)

    def _keep(self, frame: DataFrame) -> DataFrame:
        """The frame, evaluated once: clean and rejected rows are written by two jobs, and must be of one evaluation."""
        self.kept.append(frame.persist())
        return self.kept[-1]

    def _tagged(self, source: Source) -> DataFrame:
        """One frame of the files of all batches and partitions: a frame for each would have Spark plan each anew.

        It is kept if clean and rejected rows are taken from it, and not from what the function makes, or if its records
        are counted.
        """
        updates = self.task.updates[source.name]
        board = self.task.boards.get(source.name, self.board)
        columns = None
        if source.format == "parquet" and self.task.recipe.rejects and not source.tagged:
            columns = read.columns_of(board, updates)
            self.announced[source.name] = read.announced(columns)
        dialect = source.dialect or RFC_4180
        schema = source.schema or ""
        tagged = read.read(self.spark, board, updates, source.format, schema, columns=columns, dialect=dialect)
        if source.fans_in:
            tagged = tagged.withColumn("_partition", _partition_of_file(source, updates))
        is_used_twice = not source.tagged or source.name in self.task.uncounted
        return self._keep(tagged) if is_used_twice else tagged

    def _input(self, source: Source, tagged: Mapping[str, DataFrame]) -> DataFrame:
        """The frame that the function gets of an input."""
        if source.name in tagged:
            return tagged[source.name] if source.tagged else read.clean(tagged[source.name])
        check_footers(self.board, self.task.updates[source.name])  # Refuses what Spark would read in part.
        frames: list[DataFrame] = []
        for update in self.task.updates[source.name]:
            frame = read.read_own(self.spark, self.board, update)
            frames.append(frame.withColumn("_partition", sf.lit(update.partition.key)) if source.fans_in else frame)
        return reduce(DataFrame.unionByName, frames)


def _further_arguments(task: Task, previous: DataFrame | None) -> dict[str, Any]:
    """What the function gets in addition to its inputs' frames: slices, the partition, the run spec, its own rows."""
    recipe = task.recipe
    many = {source.name for source in recipe.sources if source.fans_in}
    further: dict[str, Any] = {n: [*each] if n in many else next(iter(each), None) for n, each in task.slices.items()}
    known = {"partition": task.output, "run_spec": task.run_spec, PREVIOUS: previous}
    return further | dict(task.spans) | {name: known[name] for name in recipe.wants}


def _without_clean_texts(tagged: DataFrame) -> DataFrame:
    """The frame without the texts of clean rows, which are not needed any more: half as much is kept."""
    return tagged.withColumn("_raw", sf.when(~is_clean(), sf.col("_raw")))


def path_of_file(updates: Sequence[Update]) -> Column:
    """The path of the update that a row's file is in."""
    file = sf.col("_file")
    return sf.coalesce(*(sf.when(file.startswith(f"{each.path}/"), sf.lit(each.path)) for each in updates))


def _partition_of_file(source: Source, updates: Sequence[Update]) -> Column:
    """The key of the partition that a row's file is in; of an appendable input the one that holds the batch."""
    partitions = {(source.is_appendable and update.partition.parent) or update.partition for update in updates}
    file = sf.col("_file")
    return sf.coalesce(*(sf.when(file.startswith(f"{each.path}/"), sf.lit(each.key)) for each in sorted(partitions)))


def _is_of_pandas(result: object) -> bool:
    return type(result).__module__.partition(".")[0] == "pandas"
