"""The data version: a digest of the rows, independent of their order and files.

It is made of numbers over all rows (a count, sums and an xor of hashes), so the numbers of several files can be
combined.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

SLICES = ((0, 22), (22, 21), (43, 21))
"""Bits of a row's hash that are summed separately, as (first bit, number of bits).

A 64-bit sum of so few bits cannot overflow below 2^41 rows.
"""

NO_ROWS = dict.fromkeys(("_records", "_xor", *(f"_sum{low}" for low, _ in SLICES)), 0)
"""Digest parts of an empty set of rows."""


def data_version(columns: Sequence[tuple[str, str]], values: Mapping[str, int | None]) -> str:
    """Return the data version, 32 hexadecimal digits.

    It depends on the columns (names, types, order) and on `values`, the digest parts of all rows.
    """
    lines = [f"{name}\t{kind}\n" for name, kind in columns]
    numbers = [f"{name}\t{values[name] or 0}\n" for name in NO_ROWS]
    return sha256("".join(lines + numbers).encode()).hexdigest()[:32]


def combined(parts: Sequence[Mapping[str, int | None]]) -> dict[str, int]:
    """Combine the digest parts of disjoint sets of rows into the digest parts of all rows."""
    total = dict(NO_ROWS)
    for each in parts:
        for name in NO_ROWS:
            value = each[name] or 0
            total[name] = total[name] ^ value if name == "_xor" else total[name] + value
    return total
