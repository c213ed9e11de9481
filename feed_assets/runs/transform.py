"""From pinned updates to the frames that are written: read, sort out what does not parse, run the function."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.runs.maker import Task
from feed_assets.runs.recipe import Source
from feed_assets.spark import read
from feed_assets.spark.errors import reading
from feed_assets.spark.parse import is_clean
from feed_assets.spark.rejects import is_tagged, split


@dataclass(frozen=True)
class Frames:
    """What a run works on: the frames that the function saw, and those to write, one for each output.

    `read` are the inputs with the records in them that do not parse.
    """

    inputs: Mapping[str, DataFrame]
    read: Mapping[str, DataFrame]
    outputs: tuple[DataFrame, ...]


@contextmanager
def transformed(task: Task, spark: SparkSession, board: Blackboard) -> Generator[Frames]:
    """Read the inputs and run the function. Spark's errors about pinned files get their names while this is open."""
    every = [update for updates in task.updates.values() for update in updates]
    kept: list[DataFrame] = []
    with reading(every):
        try:
            yield _frames(task, spark, board, kept)
        finally:
            for frame in kept:
                frame.unpersist()


def _frames(task: Task, spark: SparkSession, board: Blackboard, kept: list[DataFrame]) -> Frames:
    recipe, found = task.recipe, task.updates
    tagged = {
        source.name: _read(spark, board, source, found[source.name], kept) for source in recipe.sources if source.schema
    }
    inputs = {
        source.name: _input(spark, board, source, found[source.name], tagged.get(source.name))
        for source in recipe.sources
        if not source.is_table
    }
    result = recipe.transform(**inputs, **_told(task))
    if not isinstance(result, DataFrame):
        raise InvalidDefinition(f"{recipe.feed}: the function returned {type(result).__name__}: expected a DataFrame.")
    if is_tagged(result) != any(source.tagged for source in recipe.sources):
        raise InvalidDefinition(
            f"{recipe.feed}: a function with a tagged input returns its rows with _raw, _file and _reasons, and one "
            "without does not: rows would be lost otherwise. Keep the three columns, or take the input untagged."
        )
    rejected = [split(tagged[source.name])[1] for source in recipe.sources if source.schema and not source.tagged]
    if is_tagged(result):
        result, turned_away = split(_keep(_without_clean_texts(result), kept))
        rejected.append(turned_away)
    every = {**inputs, **tagged}
    if recipe.rejects is None:
        return Frames(inputs, every, (result,))
    return Frames(inputs, every, (reduce(DataFrame.unionByName, rejected), result))


def _told(task: Task) -> dict[str, Any]:
    """What the function gets besides frames: slices of event tables, the partition, the work."""
    recipe = task.recipe
    many = {source.name for source in recipe.sources if source.fans_in}
    told: dict[str, Any] = {n: [*each] if n in many else next(iter(each), None) for n, each in task.slices.items()}
    told |= {"partition": task.output} if recipe.wants_partition else {}
    return told | ({"work": task.work} if recipe.wants_work else {})


def _keep(frame: DataFrame, kept: list[DataFrame]) -> DataFrame:
    """Clean and rejected rows are written by two jobs: they must be of one and the same evaluation."""
    kept.append(frame.persist())
    return kept[-1]


def _without_clean_texts(tagged: DataFrame) -> DataFrame:
    """Of a clean row nobody asks for the text any more: what is kept is half as much."""
    return tagged.withColumn("_raw", sf.when(~is_clean(), sf.col("_raw")))


def _read(
    spark: SparkSession, board: Blackboard, source: Source, updates: Sequence[Update], kept: list[DataFrame]
) -> DataFrame:
    """A tagged frame. It is kept if clean and rejected rows are taken from it, and not from what the function makes."""
    tagged = _tagged(spark, board, source, updates)
    return tagged if source.tagged else _keep(tagged, kept)


def _tagged(spark: SparkSession, board: Blackboard, source: Source, updates: Sequence[Update]) -> DataFrame:
    """One frame of the files of all batches and partitions: a frame for each would have Spark plan each anew."""
    tagged = read.read(spark, board, updates, source.format, source.schema or "")
    return tagged.withColumn("_partition", _partition_of_file(source, updates)) if source.fans_in else tagged


def _partition_of_file(source: Source, updates: Sequence[Update]) -> Column:
    holders = {(update.partition.holder if source.is_appendable else None) or update.partition for update in updates}
    file = sf.col("_file")
    return sf.coalesce(*(sf.when(file.startswith(f"{each.path}/"), sf.lit(each.key)) for each in sorted(holders)))


def _input(
    spark: SparkSession, board: Blackboard, source: Source, updates: Sequence[Update], tagged: DataFrame | None
) -> DataFrame:
    if tagged is not None:
        return tagged if source.tagged else read.clean(tagged)
    frames = [read.read_own(spark, board, update) for update in updates]
    if source.fans_in:
        keys = [update.partition.key for update in updates]
        frames = [frame.withColumn("_partition", sf.lit(key)) for frame, key in zip(frames, keys, strict=True)]
    return reduce(DataFrame.unionByName, frames)
