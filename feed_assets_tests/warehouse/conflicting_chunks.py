"""Random chunks with rows that a table cannot take, and the check that they are refused, each once."""

import json
from collections import defaultdict
from random import Random
from typing import Any

from feed_assets.core.sql_text import quoted
from feed_assets.kafka import avro
from feed_assets.kafka.messages import Message
from feed_assets_tests.warehouse.stream import ID, Registry, Stream
from feed_assets_tests.warehouse.topic_loader import Loader

N = {"name": "n", "type": "long", "default": 9}
FITS, OTHER_TYPE, OTHER_KEY, LATER = "fits", "other type", "other key", "later"
FIELDS = {
    FITS: (ID, N),
    OTHER_TYPE: (ID, {"name": "n", "type": "boolean"}),
    OTHER_KEY: ({"name": "id", "type": "double"}, N),
    LATER: (ID, N, {"name": "m", "type": "string", "default": "é"}),
}
BAD_KEY = "bad key"
"""Operation of a tombstone whose key is a text."""


class ConflictStream(Stream):
    """A topic whose partitions share keys, and whose schemas contradict each other."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.schemas: Registry
        self.ids = {name: self.schemas.add(*fields) for name, fields in FIELDS.items()}
        self.text_key = self.schemas.add({"name": "id", "type": "string"}, name="Key")
        self.sent: list[tuple[int, int, str, str | None, dict[str, Any]]] = []
        self._sending = FITS

    def produce(self, name: str, *rows: Any, partition: int = 0) -> None:
        """Send a chunk of a schema, given by its name."""
        self._sending = name
        self.send(self.ids[name], *rows, partition=partition)

    def _message(self, offset: int, schema_id: int, row: Any) -> Message:
        if row[0] != BAD_KEY:
            return super()._message(offset, schema_id, row)
        key = avro.encoded({"id": f"x{row[1]['id']}"}, self.schemas.get(self.text_key), self.text_key)
        return Message(offset, key, None, [])

    def _fold(self, rows: Any, partition: int, start: int) -> None:
        self.sent += [(partition, offset, self._sending, *row) for offset, row in enumerate(rows, start)]


def produce_conflicts(stream: ConflictStream, chance: Random) -> None:
    """Produce some chunks of two partitions: most rows fit, and any kind of conflict may come.

    The first one makes the table: before it, no deletes are remembered.
    """
    if not stream.sent:
        stream.produce(FITS, ("update", {"id": 0, "n": 0}))
    for _ in range(chance.randint(1, 3)):
        name = chance.choice([FITS, FITS, FITS, LATER, OTHER_TYPE, OTHER_KEY])
        stream.produce(name, *(_row(name, chance) for _ in range(chance.randint(1, 5))), partition=chance.randint(0, 1))


def _row(name: str, chance: Random) -> tuple[str | None, dict[str, Any]]:
    kinds = ["update", "create", "delete"] if name == OTHER_KEY else ["update", "update", "delete", None, BAD_KEY]
    value: dict[str, Any] = {"id": chance.randint(0, 9), "n": chance.randint(0, 99)}
    if name == OTHER_KEY:
        value["id"] = float(value["id"])
    if name == OTHER_TYPE:
        value["n"] = value["n"] > 50
    return chance.choice(kinds), value | ({"m": "ü"} if name == LATER else {})


def check_conflicts(loader: Loader, stream: ConflictStream) -> None:
    """Check the table and the refused rows: each message before the positions is in one of them, or was replaced.

    Of a key from two partitions one keeps it, whichever was loaded first, and all rows of the other are refused.
    """
    known, has_variants = loader.known(stream), loader.place.conflicts == "variant"
    nexts = {number: each.next_offset for number, each in known.positions.items()}
    refused, expected = _refused(loader, stream), set[tuple[int, int]]()
    by_key = defaultdict[Any, dict[int, list[Any]]](lambda: defaultdict(list))
    for partition, offset, name, operation, value in stream.sent:
        if offset >= nexts.get(partition, 0):
            continue
        is_unfit = name == OTHER_TYPE and operation not in ("delete", None) and not has_variants
        if name == OTHER_KEY or operation == BAD_KEY or is_unfit:
            expected.add((partition, offset))
        else:
            by_key[value["id"]][partition].append((offset, operation, value))
    rows, booleans = dict[Any, tuple[Any, ...]](), dict[Any, bool]()
    for key, by_partition in by_key.items():
        strays = {each: {(each, offset) for offset, *_ in sent} for each, sent in by_partition.items()}
        owners = [each for each, places in strays.items() if not places & refused.keys()]
        assert len(owners) == 1, f"the key {key} has rows of the partitions {owners}"
        for each, places in strays.items():
            expected |= places if each != owners[0] else set()
        offset, operation, value = by_partition[owners[0]][-1]
        if operation in ("update", "create"):
            n = value["n"]
            rows[key] = (None if n is True or n is False else n, owners[0], offset)
            if n is True or n is False:
                booleans[key] = n
    assert refused.keys() == expected, "other rows are refused"
    found = loader.ask(f"SELECT id, n, _partition, _offset FROM {quoted(stream.name)}") if known.shape else []
    assert {key: (*row,) for key, *row in found} == rows, "the table is not what its positions say"
    has_column = known.shape is not None and "n__boolean" in [each.name for each in known.shape.columns]
    of_variant = f'SELECT id, "n__boolean" FROM {quoted(stream.name)} WHERE "n__boolean" IS NOT NULL'
    assert dict(loader.ask(of_variant) if has_column else []) == booleans, "other values have a column of their own"
    _check_json(loader, stream, refused)


def _refused(loader: Loader, stream: Stream) -> dict[tuple[int, int], str | None]:
    columns = "topic_partition, topic_offset, row_json"
    rows = loader.ask(f"SELECT {columns} FROM feed_assets.refused WHERE topic = '{stream.name}'")
    assert len({(partition, offset) for partition, offset, _ in rows}) == len(rows)
    return {(partition, offset): row for partition, offset, row in rows}


def _check_json(loader: Loader, stream: ConflictStream, refused: dict[tuple[int, int], str | None]) -> None:
    """Check that a refused row says its key, and the value of another type as its chunk has it."""
    sent = {(partition, offset): each for partition, offset, *each in stream.sent}
    for place, text in refused.items():
        if loader.engine.reads_chunks:
            assert text is None
            continue
        name, operation, value = sent[place]
        row = json.loads(text or "")
        key = f"x{value['id']}" if operation == BAD_KEY else str(value["id"])
        assert row["id"] == key
        if name == OTHER_TYPE and operation not in ("delete", None, BAD_KEY):
            assert (row.get("n__boolean") or row["n"]) == str(value["n"]).lower()
