"""The first bytes of each CSV file, compared with its declaration. Spark itself reads a header but ignores it."""

import bz2
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from feed_assets.core.csv_dialect import HEAD_BYTES, Beginning, CsvDialect, beginning_of, first_bytes
from feed_assets.core.errors import NotAsDeclared, UnreadableUpdate
from feed_assets.core.feeds import File
from feed_assets.core.packed import FORMS, ending_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.text_files import AT_A_TIME, first_part


class _Unpacker(Protocol):
    """The methods of `zlib`'s and `bz2`'s decompressors that this module uses."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


_UNPACKERS: Mapping[str, Callable[[], _Unpacker]] = {
    ".gz": lambda: zlib.decompressobj(31),
    ".deflate": zlib.decompressobj,
    ".bz2": bz2.BZ2Decompressor,
}
"""Compressions that this module can decompress. For other compressions, Spark reads the first line."""

_BLOCK = 1 << 20
"""Number of bytes that surely contain a whole bzip2 block. Part of a block decompresses to nothing."""


def line_ends(
    spark: SparkSession, board: Blackboard, paths: Mapping[File, str], names: Sequence[str], dialect: CsvDialect
) -> Mapping[str, Literal["\n", "\r"]]:
    """Return the line end of the records of each file, by key.

    Raise UnreadableUpdate if a file differs from the declaration, and UpdateChanged if it is not as listed.
    """

    def beginning(file: File) -> Beginning:
        return beginning_of(_head(spark, board, file, paths[file]), names, dialect)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        beginnings = dict(zip(paths, pool.map(beginning, paths), strict=True))
    for file, each in beginnings.items():
        if each.problem:
            raise NotAsDeclared(
                f"{file.key} is not as declared: {each.problem}. Correct the declaration, or invalidate the update "
                "(`feed-assets feed invalidate`) and have the producer send a correct file. If files are pulled, the "
                "correct file needs another name."
            )
    return {file.key: each.line_end for file, each in beginnings.items()}


def _head(spark: SparkSession, board: Blackboard, file: File, path: str) -> bytes:
    packing = ending_of(file.key)
    if packing and packing not in _UNPACKERS:
        first_part(board, file, HEAD_BYTES)
        return _first_line(spark, path)

    def read(size: int) -> bytes:
        data = first_part(board, file, max(size, _BLOCK) if packing == ".bz2" else size)
        return _unpacked(packing, data, size, is_all=len(data) == file.size) if packing else data

    try:
        return first_bytes(read)
    except (zlib.error, OSError, ValueError) as error:
        why = f"not a {FORMS[packing]} file ({error})" if packing and not isinstance(error, ValueError) else error
        raise UnreadableUpdate(
            f"{file.key} cannot be read: {why}. Invalidate the update, or correct the format."
        ) from error


def _unpacked(packing: str, data: bytes, size: int, *, is_all: bool) -> bytes:
    """Return a file's first bytes, decompressed. Raise ValueError if it is cut off so early that there are none."""
    unpacker = _UNPACKERS[packing]()
    text = unpacker.decompress(data, size)
    # If the first of several concatenated compressed streams is empty, continue with the next one.
    while not text and unpacker.eof and (remaining := unpacker.unused_data):
        unpacker = _UNPACKERS[packing]()
        text = unpacker.decompress(remaining, size)
    if not text and not unpacker.eof and is_all:
        raise ValueError(
            f"the file is cut short: found {len(data):,} bytes, expected a whole block of {FORMS[packing]}"
        )
    return text


def _first_line(spark: SparkSession, path: str) -> bytes:
    """Return the text up to the first LF, for a file that only Spark can decompress.

    The text keeps each CR, because in some files the records end with CR alone.
    """
    lines = spark.read.option("lineSep", "\n").text(path).where("value != ''")
    begins = sf.substring("value", 1, HEAD_BYTES).alias("value")
    text = "".join(row.value for row in lines.select(begins).head(1))
    return (text if "\r" in text.rstrip("\r") else f"{text}\n").encode()
