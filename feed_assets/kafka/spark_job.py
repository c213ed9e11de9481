"""Chunks of a large backlog. Spark's executors make them from planned offset ranges, with the connector's own cutter.

Executors write the files of chunks, and the driver signals the chunks in the order of offsets. The time limit of a
chunk does not apply here. So chunks depend only on their messages, and a repeated task writes the same bytes.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.chunks import OffsetRange, line_before, plan
from feed_assets.core.errors import ChunkDiffers, KafkaUnavailable, SchemaRefused
from feed_assets.core.topics import Topic
from feed_assets.kafka.messages import DeadLetter, Headers, Message
from feed_assets.kafka.offset_range import Chunking, ChunkWriter, Kept, PartitionOfTopic
from feed_assets.kafka.partition import PartitionReader
from feed_assets.kafka.range_reader import Reached, follow
from feed_assets.kafka.registry_schemas import RegistryFails
from feed_assets.kafka.signal_message import Signal
from feed_assets.spark.guarded import guarded
from feed_assets.spark.spark_errors import SPARK_ERRORS, cause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pa: Any = pyarrow  # This library has no type hints.

SPAN = 100_000
"""The usual number of offsets of one task. An executor needs some seconds for them."""

SPANS = 128
"""The most tasks of one Spark job. Their results, mainly dead letters, must fit into the driver's memory."""

DEAD_BYTES = 4 << 20
"""Bytes of dead letters after which a task ends. The next job continues there."""

_HEADER = pa.struct({"name": pa.string(), "value": pa.binary()})
_DEAD = pa.struct(
    {
        "offset": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(_HEADER),
        "timestamp": pa.int64(),
        "reason": pa.string(),
        "seal": pa.list_(_HEADER),
    }
)
_TOLD = pa.schema({"span": pa.int64(), "first_offset": pa.int64(), "signal": pa.binary(), "dead": pa.list_(_DEAD)})
_TOLD_DDL = (
    "span bigint, first_offset bigint, signal binary, dead array<struct<offset: bigint, key: binary, value: binary, "
    "headers: array<struct<name: string, value: binary>>, timestamp: bigint, reason: string, "
    "seal: array<struct<name: string, value: binary>>>>"
)


@dataclass(frozen=True)
class Executors:
    """Access to Spark. The session starts only for a lag of at least `least` offsets.

    Each task calls `chunking` to create its own clients.
    """

    session: "Callable[[], SparkSession]"
    chunking: Callable[[], Chunking]
    least: int = 1_000_000


class TaskRange(NamedTuple):
    """The offsets of one task in partition `number`. If `until` is after `start`, the task's first chunk ends there."""

    number: int
    start: int
    end: int
    until: int


def spans(opened: Mapping[int, PartitionReader], ends: Mapping[int, int], limit: int) -> list[TaskRange]:
    """Return the offset ranges that the tasks of a Spark job make into chunks.

    Each partition is cut from its reader's start up to the last multiple of `limit` before its end in `ends`. `limit`
    is the greatest number of offsets in a chunk, so each range contains whole chunks. The first range of each partition
    comes first, then the second ranges, and so on.
    """
    ordered_ranges = list[tuple[int, TaskRange]]()
    for number, each in opened.items():
        first = max(each.start, each.until)
        cut = plan(first, line_before(ends[number], limit), limit * max(1, SPAN // limit))
        starts = [each.start, *(start for start, _ in cut[1:])]
        ordered_ranges += [(at, TaskRange(number, starts[at], end, each.until)) for at, (_, end) in enumerate(cut)]
    return [span for _, span in sorted(ordered_ranges)]


def cut(
    executors: Executors, name: str, topic: Topic, task_ranges: Sequence[TaskRange]
) -> Iterator[tuple[TaskRange, Kept]]:
    """Yield the chunks of some ranges, in the order of ranges and offsets.

    A task may end after any chunk, so the last chunks of a range may be missing. Raise KafkaUnavailable if a task fails
    repeatedly, and SparkUnavailable.
    """
    make = executors.chunking

    def tell(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                for each in _cut(make(), name, topic, task_ranges[int(at)]):
                    yield pa.RecordBatch.from_pylist([_row(at, each)], schema=_TOLD)

    spark = executors.session()
    tasks: Any = spark.range(0, len(task_ranges), 1, len(task_ranges))
    with guarded(spark), _translated(name):
        rows = tasks.mapInArrow(tell, _TOLD_DDL).toArrow().to_pylist()
    for row in sorted(rows, key=itemgetter("span", "first_offset")):
        yield task_ranges[row["span"]], _kept(row)


@contextmanager
def _translated(name: str) -> Generator[None]:
    try:
        yield
    except SPARK_ERRORS as error:
        raise KafkaUnavailable(
            f"executors cannot make the chunks of {name}: {cause(str(error))}. "
            "Each needs feed-assets[kafka], and access to the broker, the registry and the store."
        ) from error


def _cut(chunking: Chunking, name: str, topic: Topic, span: TaskRange) -> Iterator[Kept]:
    """Yield the chunks of one task's range, in an executor. Their files are written, but not signalled yet."""
    chunks = ChunkWriter(chunking, PartitionOfTopic(name, span.number), topic, span.start, span.until)
    with closing(chunking.schemas), closing(chunking.clients.reader()) as reader, closing(chunks):
        size = 0
        for each in follow(reader, name, {span.number: OffsetRange(span.start, span.end)}):
            if not isinstance(each, Reached):
                ended = chunks.take(each.message)
            else:
                ended = chunks.reach(each.offset) if each.offset == span.end else ()
            try:
                for kept in ended:
                    yield kept
                    size += _size(kept)
            # The connector cuts the rest of this range again. It recovers, or reports the partition that cannot go on.
            except (ChunkDiffers, SchemaRefused, RegistryFails):
                return
            if size > DEAD_BYTES:
                return


def _size(kept: Kept) -> int:
    return sum(each.message.size for each in kept.dead)


def _row(at: int, kept: Kept) -> dict[str, Any]:
    dead = [_letter(each) for each in kept.dead]
    return {"span": at, "first_offset": kept.signal.first_offset, "signal": kept.signal.encoded(0), "dead": dead}


def _letter(letter: DeadLetter) -> dict[str, Any]:
    message = letter.message
    headers = {"headers": _structs(message.headers), "seal": _structs(letter.seal)}
    return {**message._asdict(), **headers, "reason": letter.reason}


def _structs(headers: Headers) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in headers]


def _kept(row: Mapping[str, Any]) -> Kept:
    return Kept(Signal.of(row["signal"]), tuple(map(_dead, row["dead"])))


def _dead(row: Mapping[str, Any]) -> DeadLetter:
    headers, seal = [[(each["name"], each["value"]) for each in row[name]] for name in ("headers", "seal")]
    message = Message(row["offset"], row["key"], row["value"], headers, row["timestamp"])
    return DeadLetter(message, row["reason"], seal)
