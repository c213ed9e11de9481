"""Random rows of every type, through a chunk into each warehouse and back."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from struct import pack, unpack
from typing import Any
from uuid import UUID

from feed_assets_tests.warehouse.avro_types import DECIMAL, TYPES, comparable
from feed_assets_tests.warehouse.stream import ID

FORMATS = ("csv", "parquet")

DAY = datetime(1970, 1, 1, tzinfo=UTC)


def text(chance: Random) -> str:
    """Texts of any Unicode except lone surrogates, often with special characters; a few are long, or have a NUL."""
    if chance.random() < 0.001:
        return chr(chance.randint(1, 0xD7FF)) * chance.randint(65_536, 100_000)
    if chance.random() < 0.001:
        return "a\0b"
    odd = ['"', ",", "\n", "\r", "\\N", "\\", "'", " ", "\x01", "é", "\U0010ffff"]
    letters = [chance.choice(odd), chr(chance.randint(1, 0xD7FF)), chr(chance.randint(0xE000, 0x10FFFF))]
    return "".join(chance.choice(letters) for _ in range(chance.randint(0, 20)))


def moment(chance: Random) -> datetime:
    return DAY + timedelta(seconds=chance.randint(-60 * 10**9, 250 * 10**9), microseconds=chance.randint(0, 999_999))


COUNT = 10_000
ODD = [math.nan, math.inf, -math.inf]
MAKERS = {
    "boolean": lambda chance: chance.random() < 0.5,
    "int": lambda chance: chance.randint(-(2**31), 2**31 - 1),
    "long": lambda chance: chance.randint(-(2**63), 2**63 - 1),
    "float": lambda chance: chance.choice([*ODD, *[float(chance.randint(-(2**20), 2**20)) / 8] * 20]),
    "double": lambda chance: _double(chance),
    "string": text,
    "bytes": lambda chance: chance.randbytes(chance.randint(0, 20)),
    "decimal": lambda chance: Decimal(f"{chance.randint(-(10**37), 10**37)}E-{DECIMAL['scale']}"),
    "uuid": lambda chance: UUID(int=chance.getrandbits(128)),
    "date": lambda chance: date.fromordinal(chance.randint(1, date.max.toordinal())),
    "time_us": lambda chance: moment(chance).time(),
    "moment_us": moment,
    "local_us": lambda chance: moment(chance).replace(tzinfo=None),
    "array": lambda chance: [chance.choice([None, 1, -5]) for _ in range(chance.randint(0, 3))],
    "map": lambda chance: {text(chance): text(chance) for _ in range(chance.randint(0, 2))},
}


def _double(chance: Random) -> float:
    """Floats of any bits, often NaN or infinite."""
    (found,) = unpack("<d", pack("<Q", chance.getrandbits(64)))
    return chance.choice([*ODD, *[found] * 20])


def texts(row: dict[str, Any]) -> list[str]:
    """Return all texts of a row."""
    found = row["map"] or {}
    return [row["string"] or "", *found, *found.values()]


def has_nul(row: dict[str, Any]) -> bool:
    """Return True if a text has a NUL, which no database accepts."""
    return any("\0" in each for each in texts(row))


def is_long(row: dict[str, Any]) -> bool:
    """Return True if a text is too long for Redshift."""
    return any(len(each.encode()) > 65_535 for each in texts(row))


def test_rows_come_back_as_they_were_or_are_rejected(loader, stream):
    chance = Random(COUNT)  # noqa: S311
    fields = [{"name": name, "type": ["null", TYPES[name][0]]} for name in MAKERS]
    rows = [
        {"id": number, **{name: make(chance) if chance.random() < 0.9 else None for name, make in MAKERS.items()}}
        for number in range(COUNT)
    ]
    signal = stream.send(stream.schemas.add(ID, *fields), *rows).signal
    loader.load(stream)
    written = [row for row in rows if not has_nul(row)]
    kept = [row for row in written if not (loader.engine.reads_chunks and is_long(row))]
    assert signal.dead_letters == COUNT - len(written) > 0
    refused = f"SELECT count(*) FROM feed_assets.refused WHERE topic = '{stream.name}'"
    assert loader.ask(refused) == [(len(written) - len(kept),)]
    columns = ", ".join(f'"{name}"' for name in MAKERS)
    found = loader.ask(f'SELECT {columns} FROM "{stream.name}" ORDER BY id')
    assert len(found) == len(kept)
    for number, name in enumerate(MAKERS):
        as_text = name == "uuid" and loader.engine.reads_chunks  # Redshift has no type for it.
        expected = [comparable(str(row[name]) if as_text and row[name] else row[name]) for row in kept]
        assert [comparable(row[number], as_json=name in ("array", "map")) for row in found] == expected, name
