"""CSV and JSON files that are packed, truncated or replaced: read completely, or refused before Spark reads."""

import bz2
import gzip
import lzma
import random

import pyarrow as pa
import pytest

from feed_assets.core.errors import UnreadableUpdate, UpdateChanged
from feed_assets.feeds.text_files import check_unaltered
from feed_assets.spark.input_frames import read
from feed_assets.spark.spark_errors import reading
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.spark_updates import put_update

SCHEMA = "id int, name string"
BLOCK = f"{0x314159265359:048b}"
"""Marker of the beginning of a bzip2 block, at any bit."""


def _rows(count: int) -> bytes:
    chance = random.Random(7)  # noqa: S311 (choices of a test)
    return b"".join(b"%d,%x\n" % (n, chance.getrandbits(64)) for n in range(count))


CONTENT = b"id,name\n" + _rows(60_000)
LINES = b"".join(b'{"id": %d, "name": "%d"}\n' % (n, n * n) for n in range(9))
XZ = lzma.compress(LINES)
TWO_BLOCKS = bz2.compress(CONTENT[:150_000].rpartition(b"\n")[0], 1)


def _behind_a_block() -> int:
    """Return the byte in which the second block begins."""
    return f"{int.from_bytes(TWO_BLOCKS, 'big'):0{len(TWO_BLOCKS) * 8}b}".find(BLOCK, 100) // 8


def _count(spark, board, name: str, content: bytes) -> int:
    update = put_update(board, {name: content})
    with reading([update]):
        return read(spark, board, [update], "json" if ".json" in name else "csv", SCHEMA).count()


CUT = "it is cut short, or something follows it: expected the end mark of bzip2"
NO_BLOCK = "the file is cut short: found 14 bytes, expected a whole block of gzip"
NO_HADOOP = "it is packed in another way: found .*, expected blocks of Hadoop's format, as Spark writes"
PLAIN = bz2.compress(CONTENT)


@each_case(
    ("name", "content", "says"),
    [
        ("a.csv.bz2", TWO_BLOCKS[: _behind_a_block()], CUT),
        ("a.csv.bz2", TWO_BLOCKS[: _behind_a_block() + 1], CUT),
        ("a.csv.bz2", TWO_BLOCKS[: _behind_a_block() + 6], CUT),
        ("a.csv.bz2", TWO_BLOCKS[:-1], CUT),
        ("a.csv.bz2", TWO_BLOCKS[:-5], CUT),
        ("a.csv.bz2", PLAIN[:400], CUT),
        ("a.csv.bz2", PLAIN + bytes(9), CUT),
        ("a.json.bz2", bz2.compress(LINES)[:-5], CUT),
        ("a.csv.gz", gzip.compress(CONTENT)[:14], NO_BLOCK),
        ("a.csv.snappy", pa.compress(CONTENT, codec="snappy", asbytes=True), NO_HADOOP),
        ("a.json.snappy", pa.compress(LINES, codec="snappy", asbytes=True), NO_HADOOP),
        (
            "a.csv.lz4",
            pa.compress(CONTENT, codec="lz4", asbytes=True),
            "found LZ4 in frames, expected blocks of Hadoop",
        ),
        ("a.csv.lz4", pa.compress(CONTENT, codec="lz4_raw", asbytes=True), NO_HADOOP),
        ("a.csv.zst", PLAIN, "it is not a Zstandard file: found bzip2"),
        (
            "a.csv",
            PLAIN,
            r"it is packed by bzip2, and its name does not end in \.bz2: have the producer add this ending",
        ),
        ("a.csv", pa.compress(CONTENT, codec="zstd", asbytes=True), r"packed by Zstandard, .* not end in \.zst"),
        (
            "a.csv",
            XZ,
            "it is packed by xz, which Spark does not read. Have the producer pack it by",
        ),
        ("a.csv.xz", XZ, "it is packed by xz, which Spark does not read"),
        ("a.csv.gz", XZ, "it is not a gzip file: found xz"),
        ("a.json", gzip.compress(LINES), r"it is packed by gzip, and its name does not end in \.gz"),
    ],
)
def test_a_file_that_is_packed_otherwise_or_cut_short_is_refused_with_what_it_is(
    spark, local_board, name, content, says
):
    with pytest.raises(UnreadableUpdate, match=rf"{name} cannot be read: .*{says}"):
        _count(spark, local_board, name, content)


ZSTD_OF_MACS = pa.compress(CONTENT.replace(b"\n", b"\r"), codec="zstd", asbytes=True)


@each_case(
    ("name", "content", "rows"),
    [
        ("a.csv.bz2", PLAIN, 60_000),
        ("a.csv.bz2", PLAIN + bz2.compress(b"1,a\n") + bz2.compress(b"2,b\n"), 60_002),
        ("a.csv.bz2", bz2.compress(b"") + PLAIN, 60_000),
        ("a.csv.gz", gzip.compress(b"") + gzip.compress(CONTENT), 60_000),
        *(("a.csv.bz2", bz2.compress(b"id,name\n" + b"1,a\n" * n + b"2,%d\n" % n), n + 1) for n in range(9)),
        ("a.json.bz2", bz2.compress(LINES), 9),
        ("a.csv.zst", pa.compress(CONTENT, codec="zstd", asbytes=True), 60_000),
        ("a.csv.zst", ZSTD_OF_MACS, 60_000),
        ("a.csv.zst", pa.compress(b"\n\nid,name\r\n1,a\r\n", codec="zstd", asbytes=True), 1),
        ("a.csv.snappy", bytes.fromhex("00000010 00000012 103c") + b"id,name\n1,x\n2,yz", 2),
        ("a.csv.lz4", bytes.fromhex("00000010 00000012 f001") + b"id,name\n1,x\n2,yz", 2),
    ],
)
def test_a_packed_file_is_read_whole(spark, local_board, name, content, rows):
    assert _count(spark, local_board, name, content) == rows


@each_case(
    ("name", "listed", "served"),
    [
        ("a.csv", b"id,name\n1,a\n", b"id,name\n8,x\n9,y\n"),
        ("a.csv.zst", *(pa.compress(b"id,name\n%d,a\n" % n, codec="zstd", asbytes=True) for n in (1, 20))),
        ("a.json", b'{"id": 1}\n', b'{"id": 8}\n{"id": 9}\n'),
        ("a.json", b"", b'{"id": 8}\n'),
    ],
)
def test_a_file_that_is_replaced_after_it_was_listed_is_not_read(spark, local_board, name, listed, served):
    update = put_update(local_board, {name: listed})
    check_unaltered(local_board, update.files)
    local_board.put(update.files[0].key, served)
    with pytest.raises(UpdateChanged, match=r"a\.\S+ has \d+ bytes .* when it was listed"):
        read(spark, local_board, [update], "json" if ".json" in name else "csv", SCHEMA)
    with pytest.raises(UpdateChanged, match="when it was listed"):
        check_unaltered(local_board, update.files)
