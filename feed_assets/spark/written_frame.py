"""The write of a frame as the parts of a claimed update. The same pass computes statistics of the rows."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType, TimestampType

from feed_assets.core.errors import InvalidDefinition, UpdateAbandoned
from feed_assets.core.feeds import File, Partition, Update
from feed_assets.core.write_result import Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import listed
from feed_assets.spark.checksums import WRITTEN
from feed_assets.spark.digest import digest, parts
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.parse import SCHEMAS
from feed_assets.spark.preview import SHOWN, first_rows, markdown, with_shown
from feed_assets.spark.urls import spark_path
from feed_assets.spark.window_counts import Counting, countable

_PART = re.compile(r"part-[0-9]+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[.-]c[0-9]+\.[a-z0-9.]*parquet")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOWS, _PREVIEW, _MEASURED = "_windows", "_preview", "_measured:"
NOTHING: Mapping[str, str] = MappingProxyType({})
# Set these options for each write. Otherwise the configuration of a Connect server or a user would override them.
_COMMITTER = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}


def write(
    df: DataFrame,
    board: Blackboard,
    partition: Partition,
    update_id: str,
    *,
    event_time: str | None = None,
    counting: Counting | None = None,
    measured: Mapping[str, str] = NOTHING,
    files: int | None = None,
    row_group: int | None = None,
) -> Written:
    """Write Parquet parts under an empty claimed update. The caller writes the manifest.

    `event_time` names a timestamp column. The same pass counts the rows of each window by `counting`, and computes the
    SQL aggregates `measured`, by name (see `observable`). `files` is the greatest number of parts, and of tasks that
    compute them. `row_group` is the size of Parquet's row groups in bytes. An empty frame is one part. Raise
    UpdateAbandoned if the update's prefix is not empty before the write, or if it does not have the parts of exactly
    one job after the write. After any exception, never publish under this id.
    """
    observation = Observation()
    narrowed = with_shown(df.coalesce(files) if files else df)
    # Observe in the last step before the write, so that rows of failed and repeated task attempts do not count.
    aggregates = _statistics(df.sparkSession, df.schema, event_time, counting)
    observed = narrowed.observe(observation, *aggregates, *_measured(df.sparkSession, tuple(measured.items())))
    _save(observed.drop(SHOWN), board, partition, update_id, row_group)
    values = observation.get
    result = written(board, partition, update_id, df.schema, values)
    result = replace(result, observed={name: values[f"{_MEASURED}{name}"] for name in measured})
    if counting is None:
        return result
    counts = counting.exact(values[_WINDOWS], values["_first"], values["_last"])
    # If the times are too far apart to be counted in the same pass, count the rows of the written files.
    if counts is None:
        update = Update(partition, update_id, result.files)
        rows = read_own(df.sparkSession, board, update, df.schema)
        counts = counting.counted(rows, sf.lit("")).get("", ())
    return replace(result, windows=counts)


def written(
    board: Blackboard, partition: Partition, update_id: str, schema: StructType, values: Mapping[str, Any]
) -> Written:
    """Return the write result: the update's files and the observed figures of their rows.

    Raise UpdateAbandoned if the files are not from exactly one job.
    """
    files = listed(board, partition, update_id)
    _refuse_leftovers(files, f"{partition.path}/{update_id}")
    return Written(
        files=files,
        records=values["_records"],
        bytes=sum(file.size for file in files),
        first=_moment(values.get("_first")),
        last=_moment(values.get("_last")),
        data_version=digest(schema, values),
        columns=tuple((field.name, field.dataType.simpleString()) for field in schema),
        preview=markdown(schema, values.get(_PREVIEW, ())),
    )


def _save(frame: DataFrame, board: Blackboard, partition: Partition, update_id: str, row_group: int | None) -> None:
    path = f"{partition.path}/{update_id}"
    sized = {"parquet.block.size": str(row_group)} if row_group else NOTHING
    writer = frame.write.mode("error").options(**_COMMITTER, **WRITTEN, **sized)
    try:
        writer.parquet(spark_path(board.url, path))
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise UpdateAbandoned(f"{path} exists already: expected a new id without files. Claim another one.") from error


def observable(frame: DataFrame, measured: Mapping[str, str]) -> dict[str, str]:
    """Return the SQL aggregates that an observation accepts.

    An observation accepts no DISTINCT, no subqueries and no unknown columns.
    """
    aggregates = tuple(measured.items())
    if _are_observable(frame.sparkSession, frame.schema, aggregates):
        return dict(aggregates)
    return dict(each for each in aggregates if _are_observable(frame.sparkSession, frame.schema, (each,)))


@lru_cache(SCHEMAS)
def _are_observable(spark: SparkSession, schema: StructType, measured: tuple[tuple[str, str], ...]) -> bool:
    """Return whether an observation accepts all these aggregates, by a test on an empty frame.

    The test is needed, because one wrong aggregate in the real plan would end all observations.
    """
    empty: DataFrame = spark.createDataFrame([], schema)  # pyright: ignore[reportUnknownMemberType]
    try:
        return not measured or bool(empty.observe(Observation(), *_measured(spark, measured)).schema)
    except AnalysisException:
        return False


@lru_cache(SCHEMAS)
def _measured(_session: SparkSession, measured: tuple[tuple[str, str], ...]) -> list[Column]:
    return [sf.expr(sql).alias(f"{_MEASURED}{name}") for name, sql in measured]


@lru_cache(SCHEMAS)
def _statistics(
    _session: SparkSession, schema: StructType, event_time: str | None, counting: Counting | None
) -> list[Column]:
    """Return the aggregates to observe for a schema. They cost thousands of JVM calls, so each session caches them."""
    column_by_name = {**parts(schema), **_times(schema, event_time), _PREVIEW: first_rows()}
    if counting:
        column_by_name[_WINDOWS] = counting.histogram()
    return [each.alias(name) for name, each in column_by_name.items()]


def _times(schema: StructType, event_time: str | None) -> dict[str, Column]:
    """Return aggregates for the first and last event time, as numbers of microseconds.

    A timestamp would arrive in the time zone of this process.
    """
    if event_time is None:
        return {}
    if event_time not in schema.fieldNames() or not isinstance(schema[event_time].dataType, TimestampType):
        raise InvalidDefinition(
            f"event time {event_time!r} is not a timestamp column of {schema.simpleString()}: name one, or omit it."
        )
    micros = sf.unix_micros(countable(event_time))
    return {"_first": sf.min(micros), "_last": sf.max(micros)}


def _refuse_leftovers(files: tuple[File, ...], path: str) -> None:
    names = {file.key: _PART.fullmatch(file.key.removeprefix(f"{path}/")) for file in files}
    if foreign := [key for key, name in names.items() if not name]:
        raise UpdateAbandoned(
            f"{path} contains {foreign[:3]}, which are not part files of a finished job (but of a dead job, or `.crc` "
            "files of a Spark without fs.file.impl=RawLocalFileSystem). Claim another id and write again."
        )
    jobs = {name[1] for name in names.values() if name}
    if len(jobs) != 1:
        raise UpdateAbandoned(
            f"{path} contains parts of {len(jobs)} jobs: expected one job. If there are no parts, Spark and the "
            "blackboard use different stores. Claim another id and write again."
        )


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
