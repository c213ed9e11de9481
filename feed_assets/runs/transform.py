"""Make the frames to write from pinned updates: read, separate records that do not parse, run the function."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.csv_dialect import RFC_4180
from feed_assets.core.errors import InvalidDefinition, UnstableRejects
from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import spark_schemas
from feed_assets.feeds.text_files import check_unaltered
from feed_assets.runs.maker import Task
from feed_assets.runs.recipe import PREVIOUS, Recipe, RecipeInput
from feed_assets.spark import input_frames
from feed_assets.spark.rejects import (
    RejectedRows,
    apart,
    is_tagged,
    kept_of,
    reject_counts,
    rejected_rows,
    without_rejects,
)
from feed_assets.spark.spark_errors import reading
from feed_assets.spark.tally import Tally
from feed_assets.spark.window_counts import MOST_PARTS, Counting, counting_of

RECORDS = "records"
"""Name of the count of an input's records in its tally."""


@dataclass(frozen=True)
class Frames:
    """The frames of a run: the inputs, the rows that the function returned, and the rejects.

    `read` has the inputs including records that do not parse. `tallies` count the records of CSV and JSON inputs.
    """

    inputs: Mapping[str, DataFrame]
    read: Mapping[str, DataFrame]
    rows: DataFrame
    rejected: Sequence[RejectedRows]
    tallies: Mapping[str, Tally]


@contextmanager
def transformed(task: Task, spark: SparkSession, board: Blackboard) -> Generator[Frames]:
    """Read the inputs and run the function. Within the block, Spark's errors about pinned files name the files."""
    transform = _Transform(task, spark, board)
    own = [task.previous] if task.previous else []
    with reading([*own, *(update for updates in task.updates.values() for update in updates)]):
        try:
            yield transform.frames()
            transform.check_unaltered()
        except UnstableRejects:
            transform.check_unaltered()  # If a file has changed, report this instead of an error of the function.
            raise
        except OF_ITS_OWN:
            transform.give_back()
            raise
        transform.give_back()


@dataclass(frozen=True)
class _Transform:
    """The user's function applied to one task, on one Spark session.

    `kept` has the frames that Spark caches until the end of the task.
    """

    task: Task
    spark: SparkSession
    board: Blackboard
    kept: list[DataFrame] = field(default_factory=list[DataFrame])

    def frames(self) -> Frames:
        """Return the frames of the task.

        Records that do not parse come first among the rejects, then the rows that the function rejects.
        """
        sources = [source for source in self.task.recipe.sources if self.task.updates.get(source.name)]
        tagged = {source.name: self._tagged(source) for source in sources if source.schema}
        counted = [source for source in sources if _has_records(source) or self._counting(source)]
        tallies = {source.name: self._tally(source, tagged[source.name]) for source in counted}
        inputs = {source.name: self._input(source, tagged) for source in sources}
        rows = self._result({**inputs, **_watched(sources, tallies)})
        tallies = {name: tally.judged(rows) for name, tally in tallies.items()}
        untagged = [source.name for source in sources if _has_records(source) and not source.tagged]
        rejected = [_rejected(tagged[name], tallies[name]) for name in untagged]
        if is_tagged(rows):
            pinned = [update for updates in self.task.updates.values() for update in updates]
            rows, turned_away = RejectedRows.on_the_way(rows, kept_of(pinned))
            rejected.append(turned_away)
        if self.task.recipe.is_companion:
            rows = self._keep(
                rows
            )  # Cache the frame, because the input's rows may change between the jobs that measure and check them.
        return Frames(inputs, {**inputs, **tagged}, rows, rejected, tallies)

    def _counting(self, source: RecipeInput) -> Counting | None:
        """Return how to count the records of an input; None if this run need not count them."""
        is_new = 0 < len(self.task.uncounted.get(source.name, ())) <= MOST_PARTS
        return counting_of(source.event_time, source.grain) if is_new else None

    def _tally(self, source: RecipeInput, tagged: DataFrame) -> Tally:
        """Return the counts of an input's records that Spark computes while it writes the dataset."""
        kept = kept_of(self.task.updates[source.name])
        rejects = {} if source.tagged else reject_counts(self.spark, kept)
        counts = {RECORDS: sf.expr(f"count(1) AS {RECORDS}"), **rejects}
        if counting := self._counting(source):
            updates = self.task.uncounted[source.name]
            counts |= counting.by_part(number_of_file(updates), len(updates))
        return Tally.of(tagged if source.tagged else apart(tagged), counts)

    def check_unaltered(self) -> None:
        """Raise UpdateChanged if a CSV or JSON file has changed since it was listed.

        Rows may have been read from the changed file. Parquet files need no check here: their footers were compared,
        and their rows are counted.
        """
        for source in self.task.recipe.sources:
            if source.schema and source.format != "parquet":
                updates = self.task.updates.get(source.name, ())
                check_unaltered(self._board_of(source), [file for update in updates for file in update.files])

    def give_back(self) -> None:
        """Release the cached frames. It is not called after an interrupt, because Spark may not answer."""
        for frame in self.kept:
            frame.unpersist()

    def _result(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Run the function on its inputs and return the result. Raise InvalidDefinition if it is not as declared."""
        recipe = self.task.recipe
        absent = {source.name: None for source in recipe.handed if source.name not in inputs}
        result = recipe.transform(**{**absent, **inputs, **_further_arguments(self.task, self._previous())})
        if not isinstance(result, DataFrame):
            kind, cure = type(result).__name__, "Return one."
            if _is_of_pandas(result):
                spark = f"{next(iter(inputs))}.sparkSession" if inputs else "spark"
                kind, cure = "a DataFrame of pandas", f"Return `{spark}.createDataFrame(…)` of it."
            raise InvalidDefinition(
                f"{recipe.feed}: the function returned {kind}: expected a DataFrame of pyspark.sql. {cure}"
            )
        _refuse_twice(recipe, result)
        if is_tagged(result) != any(source.tagged and source.name in inputs for source in recipe.sources):
            raise InvalidDefinition(
                f"{recipe.feed}: expected rows with _raw, _file and _reasons from a function with a tagged input, and "
                "rows without them from any other. Keep the three columns, or take the input untagged: rows would be "
                "lost otherwise."
            )
        return result

    def _previous(self) -> DataFrame | None:
        update = self.task.previous
        if update is None:
            return None
        return self._own([update], self.board)[0]

    def _keep(self, frame: DataFrame) -> DataFrame:
        self.kept.append(frame.persist())
        return self.kept[-1]

    def _tagged(self, source: RecipeInput) -> DataFrame:
        """Return one frame with the files of all batches and partitions, so that Spark plans only one frame."""
        updates = self.task.updates[source.name]
        board = self._board_of(source)
        dialect = source.dialect or RFC_4180
        tagged = input_frames.read(self.spark, board, updates, source.format, source.schema or "", dialect=dialect)
        return tagged.withColumn("_partition", _partition_of_file(source, updates)) if source.fans_in else tagged

    def _input(self, source: RecipeInput, tagged: Mapping[str, DataFrame]) -> DataFrame:
        """Return the frame that the user's function gets for an input."""
        if source.name in tagged:
            return tagged[source.name] if source.tagged else input_frames.clean(tagged[source.name])
        updates = self.task.updates[source.name]
        frames = [
            frame.withColumn("_partition", sf.lit(update.partition.key)) if source.fans_in else frame
            for update, frame in zip(updates, self._own(updates, self._board_of(source)), strict=True)
        ]
        return reduce(DataFrame.unionByName, frames)

    def _board_of(self, source: RecipeInput) -> Blackboard:
        return self.task.boards.get(source.name, self.board)

    def _own(self, updates: Sequence[Update], board: Blackboard) -> list[DataFrame]:
        """Return a frame for each of these updates, which our own runs wrote.

        The schema is taken from a footer, so Spark need not run a job to infer it. The footers are also checked,
        because Spark would silently read only a part of a truncated file.
        """
        schemas = spark_schemas(board, updates)
        own = [schemas[each.files[0].key] for each in updates]
        return [
            input_frames.read_own(self.spark, board, each, StructType.fromJson(json.loads(text)) if text else None)
            for each, text in zip(updates, own, strict=True)
        ]


def _further_arguments(task: Task, previous: DataFrame | None) -> dict[str, Any]:
    """Return the arguments of the user's function other than frames.

    These are slices of event tables, spans of state tables, the partition, the run spec, and the dataset's own previous
    rows.
    """
    recipe = task.recipe
    many = {source.name for source in recipe.sources if source.fans_in}
    further: dict[str, Any] = {n: [*each] if n in many else next(iter(each), None) for n, each in task.slices.items()}
    available = {"partition": task.output, "run_spec": task.run_spec, PREVIOUS: previous}
    return further | dict(task.spans) | {name: available[name] for name in recipe.wants}


def _has_records(source: RecipeInput) -> bool:
    """Return whether an input is CSV or JSON, so that some records may not parse."""
    return bool(source.schema) and source.format != "parquet"


def _rejected(tagged: DataFrame, tally: Tally) -> RejectedRows:
    return RejectedRows(rejected_rows(tagged), lambda: tally.values)


def _watched(sources: Sequence[RecipeInput], tallies: Mapping[str, Tally]) -> dict[str, DataFrame]:
    """Return the frames that the user's function gets for those inputs whose records are counted while reading."""
    named = {source.name: source for source in sources}
    return {n: each.frame if named[n].tagged else without_rejects(each.frame) for n, each in tallies.items()}


def path_of_file(updates: Sequence[Update]) -> Column:
    """Return a column with the path of the update that a row's file belongs to."""
    return _of_file({each.path: each.path for each in updates})


def number_of_file(updates: Sequence[Update]) -> Column:
    """Return a column with the position of the update that a row's file belongs to."""
    return _of_file({each.path: number for number, each in enumerate(updates)})


def _partition_of_file(source: RecipeInput, updates: Sequence[Update]) -> Column:
    """Return a column with the key of the partition that a row's file belongs to. For a batch, use its parent's key."""
    partitions = {(source.is_appendable and update.partition.parent) or update.partition for update in updates}
    return _of_file({each.path: each.key for each in sorted(partitions)})


def _of_file(values: Mapping[str, object]) -> Column:
    """Return a column with a value from `values` for each row: the value of the path that contains the row's file."""
    file = sf.col("_file")
    return sf.coalesce(*(sf.when(file.startswith(f"{path}/"), sf.lit(value)) for path, value in values.items()))


def _refuse_twice(recipe: Recipe, rows: DataFrame) -> None:
    """Raise InvalidDefinition if two columns have the same name, because Spark's own error would show our SQL."""
    alike = [[each for each in rows.columns if each.lower() == name.lower()] for name in rows.columns]
    twice = next((names for names in alike if len(names) > 1), None)
    if twice and (len({*twice}) < len(twice) or rows.sparkSession.conf.get("spark.sql.caseSensitive") != "true"):
        named = " and ".join(f"`{name}`" for name in dict.fromkeys(twice))
        raise InvalidDefinition(
            f"{recipe.feed}: the function returned {len(twice)} columns {named}: expected each name once. "
            "Rename or drop one."
        )


def _is_of_pandas(result: object) -> bool:
    return type(result).__module__.partition(".")[0] == "pandas"
