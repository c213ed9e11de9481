"""Parquet files, and the ways in which copies of them go wrong."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PLAIN = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}


def numbers(rows: int = 20_000) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64())})


def parquet(table: pa.Table, **options: Any) -> bytes:
    written = io.BytesIO()
    pq.write_table(table, written, **{**PLAIN, **options})
    return written.getvalue()


def two_groups() -> bytes:
    return parquet(numbers(), row_group_size=10_000)


def without_middle(data: bytes, first: float, last: float) -> bytes:
    """A file of which only the first and the last part, as shares, have arrived."""
    return data[: int(len(data) * first)] + data[-int(len(data) * last) :]


def without_second_group() -> bytes:
    data = two_groups()
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(1).column(0)
    return data[: chunk.data_page_offset] + data[chunk.data_page_offset + chunk.total_compressed_size :]


def with_flipped_bit(data: bytes, column: int = 0, at: int = 1000) -> bytes:
    """A file of which one bit of a page's values is another one."""
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(column)
    flipped = bytearray(data)
    flipped[chunk.data_page_offset + at] ^= 4
    return bytes(flipped)


def with_other_number(data: bytes, old: int, new: int, occurrence: int) -> bytes:
    """A file whose footer has another number in one place; both are of one length as Thrift writes them."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    before, after = _thrift(old), _thrift(new)
    assert len(before) == len(after)
    places = [at for at in range(footer, len(data) - 8) if data[at : at + len(before)] == before]
    at = places[occurrence]
    return data[:at] + after + data[at + len(before) :]


def with_group_that_spark_leaves_out() -> bytes:
    """A whole file whose second row group says that it is longer than the file: its middle is in no task's part.

    Nobody but parquet-java reads that figure, so that the footer looks right to others.
    """
    data = two_groups()
    size = pq.read_metadata(io.BytesIO(data)).row_group(1).column(0).total_compressed_size
    return with_other_number(data, size, 1_000_000, -1)


def _thrift(number: int) -> bytes:
    """An integer in Thrift's compact form: zigzag, seven bits at a time."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
