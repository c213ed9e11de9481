"""Random chunks of a topic with `newest_by`, whose keys move between partitions, and an oracle in plain Python."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from feed_assets.core.sql_text import quoted
from feed_assets.warehouse.order_column import with_order
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.topic_loader import Loader

PARTITIONS, KEYS, VALUES = 4, 6, 5
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[Any, Any]] = {
    "long": ("long", lambda number: number),
    "decimal": (DECIMAL, lambda number: Decimal(number) / 4),
    "date": ({"type": "int", "logicalType": "date"}, lambda number: date(2026, 1, 1) + timedelta(number)),
    "timestamp": (
        {"type": "long", "logicalType": "timestamp-micros"},
        lambda number: EPOCH + timedelta(microseconds=number),
    ),
}
"""Avro types for the ordering column, each with a function that makes a value of a small number."""


EXTRA = ("rowid", "x")
"""Fields of later schemas. A column `rowid` hides DuckDB's own."""


def at_field(avro_type: Any) -> dict[str, Any]:
    return {"name": "at", "type": ["null", avro_type], "default": None}


class OrderedStream(Stream):
    """A topic whose rows are ordered by the field `at`, or another one that a test declares."""

    newest_by = "at"

    def shape(self, schema_id: int | None):
        shape = super().shape(schema_id)
        return with_order(shape, self.newest_by) if shape and self.newest_by else shape


def produce_ordered(stream: OrderedStream, chance: Random, kind: str) -> None:
    """Produce some chunks: any key in any partition, values that are often equal or null, deletes with and without.

    The topic has one partition at first and gets more. The first chunk makes the table: before it no deletes are
    remembered. Later schemas have one field more, and both stay in use.
    """
    avro_type, value_of = KINDS[kind]
    schemas = [each for each in stream.schemas.known if each != stream.key_id]
    if not schemas or (len(schemas) < 3 and chance.random() < 0.3):
        extra = [{"name": each, "type": "int", "default": 1} for each in EXTRA[: len(schemas)]]
        schemas.append(stream.schemas.add(ID, at_field(avro_type), TEXT, *extra))
    if not stream.signals:
        stream.send(schemas[0], {"id": 0, "at": None, "text": "first"})
    for _ in range(chance.randint(1, 4)):
        schema, most = chance.choice(schemas[-2:]), min(PARTITIONS, 1 + len(stream.signals) // 4)
        extra_names = [each["name"] for each in stream.schemas.get(schema).declared["fields"]][3:]
        rows = [
            (
                chance.choice(["update", "update", "create", "delete", None]),
                {
                    "id": chance.randint(0, KEYS),
                    "at": chance.choice([None, *map(value_of, range(VALUES))]),
                    "text": f"é{chance.random()}",
                    **dict.fromkeys(extra_names, 7),
                },
            )
            for _ in range(chance.randint(1, 6))
        ]
        stream.send(schema, *rows, partition=chance.randrange(most))


def winners(stream: Stream, nexts: dict[int, int]) -> dict[Any, tuple[Any, ...]]:
    """Return the expected rows by key: text, partition and offset of the greatest message before these offsets."""
    messages_by_key = defaultdict[Any, list[tuple[Any, ...]]](list)
    greatest = dict[tuple[Any, int], Any]()
    for partition, offset, operation, value in sorted(stream.messages, key=lambda each: each[:2]):
        if offset >= nexts.get(partition, 0):
            continue
        own, place = None if operation is None else value["at"], (value["id"], partition)
        before = greatest.get(place)
        greatest[place] = max([each for each in (own, before) if each is not None], default=None)
        order = greatest[place] if operation in (None, "delete") else own
        rank = (order is not None, order, partition, offset) if order is not None else (False, 0, partition, offset)
        messages_by_key[value["id"]].append((rank, operation, value))
    rows = dict[Any, tuple[Any, ...]]()
    for key, messages in messages_by_key.items():
        # Ranks with and without a value never compare their second parts.
        (_, _, partition, offset), operation, value = max(messages, key=lambda each: each[0])
        if operation not in (None, "delete"):
            rows[key] = (value["at"], value["text"], partition, offset)
    return rows


def check_winners(loader: Loader, stream: Stream) -> None:
    """Check that the table has the winners among the messages before its positions."""
    known = loader.known(stream)
    if known.shape is None:
        return
    columns = 'id, "at", text, _partition, _offset'
    rows = {key: (*row,) for key, *row in loader.ask(f"SELECT {columns} FROM {quoted(stream.name)}")}
    expected = winners(stream, {number: each.next_offset for number, each in known.positions.items()})
    assert rows == expected, "the table is not the winners of its messages"
    deleted = loader.ask(f"SELECT id FROM feed_assets_deleted.{quoted(stream.name)}")
    assert len({*deleted}) == len(deleted), "a deleted key is remembered twice"
    assert not {key for (key,) in deleted} & rows.keys(), "a key is in the table and deleted"


def loads_by_chance(stream: Stream, chance: Random) -> Iterator[list[Any]]:
    """Yield the signals after the first one in loads by chance: those of each partition in their order."""
    waiting = {number: list[Any]() for number in stream.ends}
    for each in stream.signals[1:]:
        waiting[each.signal.partition].append(each)
    while any(waiting.values()):
        due = list[Any]()
        for number in chance.sample([*waiting], chance.randint(1, len(waiting))):
            count = chance.randint(0, len(waiting[number]))
            due += waiting[number][:count]
            waiting[number] = waiting[number][count:]
        if due:
            yield due
