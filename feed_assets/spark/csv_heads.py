"""The beginning of each CSV file, compared with its declaration before Spark reads, and ignores, it."""

import bz2
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from pyspark.sql import SparkSession

from feed_assets.core.csv_dialect import Beginning, CsvDialect, beginning_of, first_bytes
from feed_assets.core.errors import UnreadableUpdate, UpdateChanged
from feed_assets.core.feeds import PACKED
from feed_assets.feeds.blackboard import Blackboard

_UNPACKED: Mapping[str, Callable[[bytes, int], bytes]] = {
    ".gz": lambda data, size: zlib.decompressobj(31).decompress(data, size),
    ".deflate": lambda data, size: zlib.decompressobj().decompress(data, size),
    ".bz2": lambda data, size: bz2.BZ2Decompressor().decompress(data, size),
}
"""Packings that are unpacked here; of the others Spark is asked for the first line."""

_NAMES = {".gz": "gzip", ".deflate": "zlib", ".bz2": "bzip2"}


def line_ends(
    spark: SparkSession, board: Blackboard, paths: Mapping[str, str], names: Sequence[str], dialect: CsvDialect
) -> Mapping[str, Literal["\n", "\r"]]:
    """Return what the records of each file end with, by key.

    Raises UnreadableUpdate for a file that is not as declared, UpdateChanged for one that is gone.
    """

    def beginning(key: str) -> Beginning:
        return beginning_of(_head(spark, board, key, paths[key]), names, dialect)

    with ThreadPoolExecutor(16) as pool:
        beginnings = dict(zip(paths, pool.map(beginning, paths), strict=True))
    for key, each in beginnings.items():
        if each.problem:
            raise UnreadableUpdate(
                f"{key} is not as declared: {each.problem}. Correct the declaration, or invalidate the update "
                "(`feed-assets feed invalidate`) and have the producer send it right: a file that is pulled under "
                "another name."
            )
    return {key: each.line_end for key, each in beginnings.items()}


def _head(spark: SparkSession, board: Blackboard, key: str, path: str) -> bytes:
    packing = next((ending for ending in PACKED if key.endswith(ending)), "")
    if packing and packing not in _UNPACKED:
        return "\n".join(row.value for row in spark.read.text(path).head(1)).encode()

    def read(size: int) -> bytes:
        if (data := board.get(key, size)) is None:
            raise UpdateChanged(f"{key} is gone or altered since it was listed: pin the newest and read again.")
        return _UNPACKED[packing](data, size) if packing else data

    try:
        return first_bytes(read)
    except (zlib.error, OSError, ValueError) as error:
        why = f"not a {_NAMES[packing]} file ({error})" if packing and not isinstance(error, ValueError) else error
        raise UnreadableUpdate(f"{key} cannot be read: {why}. Invalidate it, or correct the format.") from error
