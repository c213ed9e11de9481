"""Random chunks of several topics that are loaded into one table, and an oracle in plain Python."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from uuid import uuid4

from feed_assets.core.sql_text import quoted
from feed_assets.core.topic_unions import UnionPart, partition_name
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load_state, union_state
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.message_history import with_history
from feed_assets.warehouse.order_column import with_order
from feed_assets.warehouse.shapes import Shape
from feed_assets_tests.warehouse.stream import ID, TEXT, Registry, Stream
from feed_assets_tests.warehouse.topic_loader import Loader, load_signals

AT = {"name": "at", "type": ["null", "long"], "default": None}
KEYS, PARTITIONS, VALUES = 5, 2, 4
NUMBERS = ({"name": "n", "type": "int", "default": 7}, {"name": "n", "type": ["null", "long"], "default": 8})
"""A field that two topics have in two types, and with two defaults that no row of the other topic may have."""


@dataclass
class Union:
    """Topics with one registry, and the table that they are loaded into. `mode` is `newest`, `key` or `disjoint`."""

    board: Blackboard
    mode: str = "disjoint"
    is_history: bool = False
    topics: list[Stream] = field(default_factory=list[Stream])
    table: str = field(default_factory=lambda: f"union.{uuid4().hex[:12]}")
    registry: Registry = field(default_factory=Registry)
    _key_id: int = 0

    def add(self, name: str) -> Stream:
        """Declare one more topic."""
        stream = Stream(self.board, f"{name}.{self.table}", format="both")
        self._key_id = self._key_id or self.registry.add({"name": "id", "type": "long"}, name="Key")
        stream.schemas, stream.key_id = self.registry, self._key_id
        self.topics.append(stream)
        return stream

    def state(self, loader: Loader) -> TopicState:
        with loader.engine.open() as connection:
            known = load_state.read(connection, self.table)
        return union_state.with_topics(self.table, known, [each.name for each in self.topics])

    def part(self, state: TopicState, stream: Stream) -> UnionPart:
        [part] = union_state.parts(self.table, state, [stream.name], topic_in_key=self.mode == "key")
        return part

    def shape(self, part: UnionPart, stream: Stream, schema_id: int | None) -> Shape | None:
        shape = stream.shape(schema_id)
        if shape is None:
            return None
        shape = with_order(shape, "at") if self.mode == "newest" else shape
        shape = with_history(shape) if self.is_history else shape
        return union_state.with_topic(shape, part)

    def load(self, loader: Loader, stream: Stream, *signals: Signalled) -> TopicState:
        """Load signals of one topic, or all new ones."""
        state = self.state(loader)
        part = self.part(state, stream)
        place = replace(loader.place, part=part)
        due = signals or self.new(state, stream)
        return load_signals(place, self.table, state, due, lambda schema_id: self.shape(part, stream, schema_id))

    def new(self, state: TopicState, stream: Stream) -> list[Signalled]:
        """Return the signals of a topic that are not loaded yet."""
        known = union_state.positions_of(state, self.part(state, stream))
        nexts = {number: each.next_offset for number, each in known.items()}
        return [each for each in stream.signals if each.signal.next_offset > nexts.get(each.signal.partition, 0)]


def produce(union: Union, chance: Random) -> None:
    """Produce some chunks of each topic. Its schemas have fields that others lack, and get more of them.

    Keys move between all partitions if the newest wins. Otherwise each has its partition, and in a table of disjoint
    keys its topic.
    """
    for number, stream in enumerate(union.topics):
        own = {"name": f"of_{number}", "type": ["null", "string"], "default": None}
        more = [{"name": "more", "type": "int", "default": 1}] if chance.random() < 0.3 else []
        schema = union.registry.add(ID, AT, TEXT, NUMBERS[number % 2], own, *more)
        for _ in range(chance.randint(1, 3)):
            partition = chance.randrange(PARTITIONS)
            rows = [_row(union, number, partition, chance, bool(more)) for _ in range(chance.randint(1, 5))]
            stream.send(schema, *rows, partition=partition)


def _row(
    union: Union, number: int, partition: int, chance: Random, has_more: bool
) -> tuple[str | None, dict[str, Any]]:
    key = chance.randrange(KEYS)
    if union.mode != "newest":
        key = key * PARTITIONS + partition + (number * 1000 if union.mode == "disjoint" else 0)
    at = chance.choice([None, *range(VALUES)])
    value = {"id": key, "at": at, "text": f"é{chance.random()}", "n": chance.randint(0, 9), f"of_{number}": "x"}
    return chance.choice(["update", "create", "delete", None]), {**value, **({"more": 5} if has_more else {})}


def messages(union: Union, state: TopicState) -> Iterator[tuple[int, int, str | None, dict[str, Any]]]:
    """Yield the messages before the stored positions, each with its partition's number in the table."""
    for stream in union.topics:
        first = union.part(state, stream).partitions.start
        for partition, offset, operation, value in stream.messages:
            position = state.positions.get(first + partition)
            if position and offset < position.next_offset:
                values = value if operation else {"id": value["id"]}
                yield first + partition, offset, operation, {**values, "_topic": stream.name}


def expected(union: Union, state: TopicState) -> set[tuple[Any, ...]]:
    """Return the expected rows, each as its values that are not null."""
    rows, greatest = defaultdict[Any, list[Any]](list), dict[tuple[Any, int], Any]()
    for partition, offset, operation, value in sorted(messages(union, state), key=lambda each: each[:2]):
        values = {**value, "_partition": partition, "_offset": offset}
        if union.is_history:
            rows[partition, offset].append((0, "", values | {"_operation": operation or "delete"}))
            continue
        key = (value["_topic"], value["id"]) if union.mode == "key" else value["id"]
        rank: tuple[Any, ...] = (partition, offset)
        if union.mode == "newest":
            own = [each for each in (value.get("at"), greatest.get((key, partition))) if each is not None]
            greatest[key, partition] = max(own, default=None)
            order = greatest[key, partition] if operation in (None, "delete") else value["at"]
            rank = (-1 if order is None else order, partition, offset)
        rows[key].append((rank, operation, values))
    winners = [max(each, key=lambda row: row[0]) for each in rows.values()]
    return {_set(values) for _, operation, values in winners if operation not in (None, "delete")}


def _set(values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, each) for name, each in values.items() if each is not None))


def check_union(loader: Loader, union: Union) -> None:
    """Check that the table has the rows of the messages before its positions, and each once."""
    state = union.state(loader)
    if state.shape is None:
        return
    more = ["_partition", "_offset", *(["_operation"] if union.is_history else [])]
    names = [*(each.name for each in state.shape.columns), *more]
    columns = ", ".join(map(quoted, names))
    rows = [
        _set(dict(zip(names, row, strict=True))) for row in loader.ask(f"SELECT {columns} FROM {quoted(union.table)}")
    ]
    assert len(rows) == len({*rows}), "a row is there twice"
    assert {*rows} == expected(union, state), "the table is not the union of its topics"
    topics = [each.name for each in union.topics]
    for each in map(dict, rows):
        name = partition_name(topics, each["_partition"])
        assert str(name).rpartition("-")[0] == each["_topic"], "a row has another topic than its partition"
