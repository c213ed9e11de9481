"""Parquet files, and damaged copies of them."""

import io
from pathlib import Path
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
    """Return a file that lacks its middle: these shares of its start and its end are left."""
    return data[: int(len(data) * first)] + data[-int(len(data) * last) :]


def without_second_group() -> bytes:
    data = two_groups()
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(1).column(0)
    return data[: chunk.data_page_offset] + data[chunk.data_page_offset + chunk.total_compressed_size :]


def with_flipped_bit(data: bytes, column: int = 0, at: int = 1000) -> bytes:
    """Return a file in which one bit of a page's values is flipped."""
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(column)
    flipped = bytearray(data)
    flipped[chunk.data_page_offset + at] ^= 4
    return bytes(flipped)


def with_other_number(data: bytes, old: int, new: int, occurrence: int) -> bytes:
    """Return a file whose footer has another number in one place. Both numbers have the same length in Thrift."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    before, after = _thrift(old), _thrift(new)
    assert len(before) == len(after)
    places = [at for at in range(footer, len(data) - 8) if data[at : at + len(before)] == before]
    at = places[occurrence]
    return data[:at] + after + data[at + len(before) :]


def with_group_that_spark_leaves_out() -> bytes:
    """Return a file whose second row group claims to be longer than the file: its middle is in no task's range.

    Only parquet-java reads that figure, so the footer looks right to other readers.
    """
    data = two_groups()
    size = pq.read_metadata(io.BytesIO(data)).row_group(1).column(0).total_compressed_size
    return with_other_number(data, size, 1_000_000, -1)


def with_long_paths(name: int = 100_000, columns: int = 1000) -> bytes:
    """Return a file without rows, with columns below a group with a long name. pyarrow repeats it for each column."""
    written, below = io.BytesIO(), pa.struct([(f"c{number}", pa.int32()) for number in range(columns)])
    pq.ParquetWriter(written, pa.schema([("x" * name, below)]), store_schema=False).close()
    return written.getvalue()


def with_swapped_columns() -> bytes:
    """Return a file whose row group names its two columns in the wrong order."""
    data = parquet(pa.table({"aa": [1, 2], "bb": [3, 4]}), store_schema=False)
    path = b"\x19\x18\x02"  # a list of one text with two characters
    return with_other_footer(
        data, (path + b"aa", path + b"??"), (path + b"bb", path + b"aa"), (path + b"??", path + b"bb")
    )


def with_index_beyond_dictionary() -> bytes:
    """Return a file of 40 texts, each of which has the number 5 of a dictionary of two."""
    data = parquet(pa.table({"id": ["a", "b"] * 20}), use_dictionary=True, write_page_checksum=False)
    values = bytes.fromhex("010baaaaaaaaaa")  # 0 and 1 by turns, in one bit each
    assert data.count(values) == 1
    return data.replace(values, bytes.fromhex("03500500000000"))  # 40 times 5, in three bits


ENCRYPTED = Path(__file__).parents[1] / "reading/parquet_testing/encrypt_columns_plaintext_footer.parquet.encrypted"


def footers_that_end_processes() -> dict[str, bytes]:
    """Return files by what is wrong: pyarrow ends the process when it reads the metadata of a column of such a file."""
    plain = {"compression": "none", "use_dictionary": False, "store_schema": False}
    groups = parquet(numbers(4), **plain, row_group_size=2)
    histogram = groups.rindex(b"\x29\x06\x19\x26\x00\x04")  # of no repetition levels and two definition levels
    other = groups[:histogram] + b"\x29\x26\x00\x04\x19\x06" + groups[histogram + 6 :]
    codec = (b"\x19\x18\x02id\x15\x00", b"\x19\x18\x02id\x15\x10")  # after the column's path
    columns = pa.table({"a": [1, 2], "b": [1, 2]})
    without_b = [
        (b"\x15\x04\x25\x02\x18\x01b\x00", b""),
        (b"\x19\x3c", b"\x19\x2c"),
        (b"\x18\x06schema\x15\x04", b"\x18\x06schema\x15\x02"),
        (b"\x19\x2c\x1c\x00\x00\x1c\x00\x00", b"\x19\x1c\x1c\x00\x00"),
    ]
    return {
        "encrypted columns": ENCRYPTED.read_bytes(),
        "histogram size mismatch": other,
        "expected 1, as in the schema": with_other_footer(parquet(columns, **plain), *without_b),
        "Unsupported compression codec value": with_other_footer(parquet(numbers(2), **plain), codec),
        "codec value: 8": with_other_footer(parquet(numbers(0), **plain), codec),
    }


def with_other_footer(data: bytes, *changes: tuple[bytes, bytes]) -> bytes:
    """Return a file with other bytes in its footer. Each old text must occur exactly once."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8]
    for old, new in changes:
        assert footer.count(old) == 1
        footer = footer.replace(old, new)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _thrift(number: int) -> bytes:
    """Return an integer in Thrift's compact form: zigzag, seven bits at a time."""
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
