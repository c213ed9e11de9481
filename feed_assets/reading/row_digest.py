"""The data version of rows, computed by numpy with the same result as Spark's `xxhash64`.

| column | hashed as Spark does |
|---|---|
| boolean, tinyint, smallint, int, date | 4 bytes |
| bigint, timestamp, timestamp_ntz, a decimal of up to 18 digits | 8 bytes |
| float, double | the bits, with a single form of NaN and of zero |
| string, binary | their bytes |
| a decimal of more digits | the fewest bytes that hold its unscaled value |

Arrays and structs are not supported, because only Spark can make the JSON that is hashed for them.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.data_version import SLICES, data_version

pa: Any = pyarrow  # pyarrow has no type hints.
pc: Any = pyarrow.compute

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Numbers = np.ndarray[Any, Any]
_HashesOf = Callable[[Any, Hashes], Hashes]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(each)
    for each in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SEED = 42
_STRIPE = 32
_LANES = (0, 8, 16, 24)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_LONG_DIGITS = 18
"""Digits of a decimal that eight bytes hold."""


class RowDigest:
    """A digest of rows, which are added in batches in any order."""

    def __init__(self, columns: Sequence[tuple[str, str]]) -> None:
        """Begin an empty digest. `columns` are names and Spark types, in order. Raise KeyError for a nested type."""
        self._columns = tuple(columns)
        self._hashes = [(name, _hashes_of(kind)) for name, kind in columns]
        self._parts: Counter[str] = Counter()
        self._xor = np.uint64(0)

    @property
    def records(self) -> int:
        """Return the number of rows so far."""
        return self._parts["_records"]

    def add(self, batch: Any) -> None:
        """Add the rows of a `pyarrow.RecordBatch` with these columns."""
        rows: Hashes = np.full(batch.num_rows, _SEED, dtype=np.uint64)
        for name, hashes in self._hashes:
            column = batch.column(name)
            is_null: Numbers = np.asarray(pc.is_null(column))
            rows = np.where(is_null, rows, hashes(column, rows))
            rows = _of_ints(is_null.astype(np.uint64), rows)
        self._parts["_records"] += batch.num_rows
        self._xor ^= np.bitwise_xor.reduce(rows)
        for low, width in SLICES:
            bits = (rows >> np.uint64(low)) & np.uint64((1 << width) - 1)
            self._parts[f"_sum{low}"] += int(bits.sum(dtype=np.uint64))

    @property
    def version(self) -> str:
        """Return the data version of the rows so far."""
        signed = int(self._xor.view(np.int64))
        sums = {f"_sum{low}": self._parts[f"_sum{low}"] for low, _ in SLICES}
        return data_version(self._columns, {"_records": self.records, "_xor": signed, **sums})


def is_flat(columns: Sequence[tuple[str, str]]) -> bool:
    """Return whether rows of these columns can be digested without Spark."""
    return all(kind in _KINDS or _DECIMAL.fullmatch(kind) for _, kind in columns)


def _hashes_of(kind: str) -> _HashesOf:
    if match := _DECIMAL.fullmatch(kind):
        return _of_long_decimals if int(match[1]) > _LONG_DIGITS else _of_short_decimals
    return _KINDS[kind]


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(33))) * _P2
    values = (values ^ (values >> np.uint64(29))) * _P3
    return values ^ (values >> np.uint64(32))


def _of_ints(words: Hashes, seeds: Hashes) -> Hashes:
    return _mixed(_rotated((seeds + _P5 + np.uint64(4)) ^ (words * _P1), 23) * _P2 + _P3)


def _with_word(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotated(hashes ^ (_rotated(words * _P2, 31) * _P1), 27) * _P1 + _P4


def _of_longs(words: Hashes, seeds: Hashes) -> Hashes:
    return _mixed(_with_word(seeds + _P5 + np.uint64(8), words))


def _numbers(column: Any, kind: Any) -> Numbers:
    return pc.fill_null(column.cast(kind), 0).to_numpy(zero_copy_only=False)


def _as_ints(column: Any, seeds: Hashes) -> Hashes:
    return _of_ints(_numbers(column, pa.int32()).view(np.uint32).astype(np.uint64), seeds)


def _as_longs(column: Any, seeds: Hashes) -> Hashes:
    return _of_longs(_numbers(column, pa.int64()).view(np.uint64), seeds)


def _as_floats(column: Any, seeds: Hashes) -> Hashes:
    bits = _one_of_each(_numbers(column, pa.float32())).view(np.uint32)
    return _of_ints(bits.astype(np.uint64), seeds)


def _as_doubles(column: Any, seeds: Hashes) -> Hashes:
    return _of_longs(_one_of_each(_numbers(column, pa.float64())).view(np.uint64), seeds)


def _one_of_each(values: Numbers) -> Numbers:
    """Return floats with a single form of NaN and of zero, as Spark hashes them."""
    values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    return np.where(values == 0, values.dtype.type(0), values)


def _words_of_decimals(column: Any) -> Numbers:
    """Return the unscaled values of 128-bit decimals as rows of two 64-bit words, the low word first."""
    data = np.frombuffer(column.buffers()[1], dtype="<u8")[2 * column.offset : 2 * (column.offset + len(column))]
    return data.reshape(-1, 2)


def _of_short_decimals(column: Any, seeds: Hashes) -> Hashes:
    return _of_longs(_words_of_decimals(column)[:, 0].copy(), seeds)


def _of_long_decimals(column: Any, seeds: Hashes) -> Hashes:
    """Hash the shortest big-endian two's complement bytes, as in Java's `BigInteger.toByteArray`."""
    data: Numbers = np.ascontiguousarray(_words_of_decimals(column)).view(np.uint8).reshape(-1, 16)[:, ::-1]
    data = np.ascontiguousarray(data)
    sign = np.where(data[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # Drop leading bytes that only repeat the sign of the next byte.
    is_spare = (data[:, :-1] == sign) & ((data[:, 1:] >= 0x80) == (sign == 0xFF))
    spare = np.minimum.accumulate(is_spare, axis=1).sum(axis=1)
    starts = np.arange(len(data), dtype=np.int64) * 16 + spare
    return _of_bytes(data.reshape(-1), starts, 16 - spare, seeds)


def _as_bytes(column: Any, seeds: Hashes) -> Hashes:
    column = column.cast(pa.large_binary())
    buffers = column.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(buffers[2] or b"", dtype=np.uint8)
    return _of_bytes(data, offsets[:-1], np.diff(offsets), seeds)


def _of_bytes(data: Numbers, starts: Numbers, lengths: Numbers, seeds: Hashes) -> Hashes:
    """Hash byte strings of different lengths, which are ranges of `data`.

    The strings are sorted by length, longest first. So the strings that still have a whole stripe (`_STRIPE` bytes) are
    always in front.
    """
    order = np.argsort(-lengths, kind="stable")
    at, remaining, seed = starts[order].astype(np.int64), lengths[order].astype(np.int64), seeds[order]
    hashes = seed + _P5
    if striped := int(np.searchsorted(-remaining, -_STRIPE, side="right")):
        hashes[:striped] = _of_stripes(data, at[:striped], remaining[:striped], seed[:striped])
    hashes = hashes + remaining.astype(np.uint64)
    done = remaining - remaining % _STRIPE
    at, remaining = at + done, remaining - done
    for _ in range(3):
        hashes, at, remaining = _step(data, 8, hashes, at=at, remaining=remaining, mix=_with_word)
    hashes, at, remaining = _step(
        data, 4, hashes, at=at, remaining=remaining, mix=lambda one, word: _rotated(one ^ (word * _P1), 23) * _P2 + _P3
    )
    for _ in range(3):
        hashes, at, remaining = _step(
            data, 1, hashes, at=at, remaining=remaining, mix=lambda one, word: _rotated(one ^ (word * _P5), 11) * _P1
        )
    in_order: Hashes = np.empty_like(hashes)
    in_order[order] = _mixed(hashes)
    return in_order


def _of_stripes(data: Numbers, at: Numbers, remaining: Numbers, seed: Hashes) -> Hashes:
    lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
    stripes = remaining // _STRIPE
    for stripe in range(int(stripes[0])):
        active = int(np.searchsorted(-stripes, -(stripe + 1), side="right"))
        for number, offset in enumerate(_LANES):
            words = _words(data, at[:active] + (stripe * _STRIPE + offset), 8)
            lanes[number][:active] = _rotated(lanes[number][:active] + words * _P2, 31) * _P1
    hashes = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        hashes = (hashes ^ (_rotated(lane * _P2, 31) * _P1)) * _P1 + _P4
    return hashes


def _step(
    data: Numbers, size: int, hashes: Hashes, at: Numbers, remaining: Numbers, mix: Callable[[Hashes, Hashes], Hashes]
) -> tuple[Hashes, Numbers, Numbers]:
    """Mix one word of `size` bytes into the hashes of the byte strings that have at least `size` bytes left."""
    has: Numbers = remaining >= size
    if not has.any():
        return hashes, at, remaining
    hashes, at, remaining = hashes.copy(), at.copy(), remaining.copy()
    hashes[has] = mix(hashes[has], _words(data, at[has], size))
    at[has] += size
    remaining[has] -= size
    return hashes, at, remaining


def _words(data: Numbers, at: Numbers, size: int) -> Hashes:
    """Return the little-endian words of `size` bytes at the given positions."""
    gathered = np.ascontiguousarray(data[at[:, None] + np.arange(size)])
    return gathered.view({8: "<u8", 4: "<u4", 1: "u1"}[size]).reshape(-1).astype(np.uint64)


_KINDS: dict[str, _HashesOf] = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "date"), _as_ints),
    **dict.fromkeys(("bigint", "timestamp", "timestamp_ntz"), _as_longs),
    "float": _as_floats,
    "double": _as_doubles,
    **dict.fromkeys(("string", "binary"), _as_bytes),
}
