"""Chunks of random nested values, and an oracle in plain Python for the table whose columns are fields of records."""

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from feed_assets.core.sql_text import quoted
from feed_assets.core.topics import Conflicts, Topic
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.shapes import Shape, shape_of
from feed_assets_tests.warehouse.stream import ID, Stream
from feed_assets_tests.warehouse.topic_loader import Loader

Path = tuple[str, ...]


class Field(NamedTuple):
    """A field of a random type: a whole number, a text, or with `fields` a record. It may be null or not."""

    name: str
    kind: str
    is_nullable: bool
    fields: tuple["Field", ...] = ()


class FlatStream(Stream):
    """A topic whose values have records. `trees` are the fields of each schema, by its id."""

    def __init__(self, *place: Any, flatten: int = 1, conflicts: Conflicts = "stop", **options: Any) -> None:
        super().__init__(*place, **options)
        self.topic = Topic(key=("id",), operation="header:op", flatten=flatten, conflicts=conflicts)
        self.trees: dict[int, tuple[Field, ...]] = {}
        self.made = 0

    def shape(self, schema_id: int | None) -> Shape | None:
        return schema_id and shape_of(self.schemas.get(schema_id), self.topic.key, flatten=self.topic.flatten)

    def add(self, tree: Sequence[Field]) -> int:
        """Register the schema of a value with these fields and an id."""
        schema_id = self.schemas.add(ID, *(self._declared(each) for each in tree), name=f"V{len(self.trees)}")
        self.trees[schema_id] = tuple(tree)
        return schema_id

    def _declared(self, field: Field) -> dict[str, Any]:
        self.made += 1
        kind: Any = field.kind
        if kind == "record":
            kind = {"type": "record", "name": f"R{self.made}", "fields": []}
            kind["fields"] += [self._declared(each) for each in field.fields]
        return {"name": field.name, "type": ["null", kind] if field.is_nullable else kind}


def random_tree(chance: Random, levels: int = 3) -> tuple[Field, ...]:
    """Return some of the fields a to d. The outermost d is a number in some schemas, and a record in others."""
    fields = list[Field]()
    for name in "abcd":
        is_record = name == "c" or (name == "d" and levels == 3 and chance.random() < 0.5)
        if (chance.random() < 0.7 or name + str(levels) == "d3") and (levels or not is_record):
            inner = random_tree(chance, levels - 1) if is_record else ()
            inner = inner or ((Field("a", "long", True),) if name == "d" and is_record else ())
            kind = "record" if is_record else "string" if name == "b" else "long"
            fields.append(Field(name, kind, chance.random() < 0.5, inner))
    return tuple(fields)


def random_value(chance: Random, tree: Sequence[Field]) -> dict[str, Any]:
    value = dict[str, Any]()
    for each in tree:
        kinds = {"long": chance.randint(-9, 9), "string": f"é,\n{chance.random()}"}
        cell = random_value(chance, each.fields) if each.kind == "record" else kinds[each.kind]
        value[each.name] = None if each.is_nullable and chance.random() < 0.3 else cell
    return value


def columns_of(tree: Sequence[Field], depth: int, at: Path = ()) -> Iterator[Path]:
    """Yield the path of each column: a record above the depth has those of its fields, unless it has none."""
    for each in tree:
        if each.kind == "record" and each.fields and depth:
            yield from columns_of(each.fields, depth - 1, (*at, each.name))
        else:
            yield (*at, each.name)


def cell_at(value: Any, path: Path) -> str | None:
    """Return the text of a cell: null if a record on the way is null."""
    for name in path:
        value = None if value is None else value[name]
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else None if value is None else str(value)


class Oracle:
    """The table as the documentation says it: columns by their paths, and rows by key."""

    def __init__(self, stream: FlatStream) -> None:
        self._stream, self._schema_id = stream, 0
        self.columns: set[Path] = set()
        self.refused, self._dropped, self._kept = 0, set[Path](), set[Path]()
        self.rows: dict[int, tuple[dict[Path, str | None], int, int]] = {}

    def load(self, signal: Signalled) -> None:
        """Load the messages of a chunk."""
        facts = signal.signal
        is_fitting = facts.schema_id is None or self._fits(facts.schema_id)
        for partition, offset, operation, value in self._stream.messages:
            if partition != facts.partition or not facts.first_offset <= offset <= facts.last_offset:
                continue
            if operation in (None, "delete"):
                self.rows.pop(value["id"], None)
            elif is_fitting:
                paths = columns_of(self._stream.trees[facts.schema_id or 0], self._stream.topic.flatten)
                cells = {path: cell_at(value, path) for path in paths if path in self.columns}
                self.rows[value["id"]] = (cells, partition, offset)
            else:
                self.refused += 1

    def _fits(self, schema_id: int) -> bool:
        """Change the columns for a schema. Return False if a record became another type, which the table refuses."""
        new = {*columns_of(self._stream.trees[schema_id], self._stream.topic.flatten)}
        is_newer, is_first = schema_id > self._schema_id, not self._schema_id
        gone, live = self.columns - new - self._kept, new if is_newer else new - self._dropped
        changed = {path for path in gone | live for other in gone | live if _is_changed(path, other, gone, live)}
        if changed and self._stream.topic.conflicts != "variant":
            return False
        self._kept |= changed
        if is_newer:
            dropped = set() if is_first else self.columns - new - self._kept
            self._dropped, self.columns = (self._dropped | dropped) - new, (self.columns - dropped) | new
            for cells, _, _ in self.rows.values():
                for path in dropped:
                    cells.pop(path, None)
        else:
            self.columns |= live
        self._schema_id = max(schema_id, self._schema_id)
        return True


def _is_changed(path: Path, other: Path, gone: set[Path], live: set[Path]) -> bool:
    """Return whether one of two columns is a field of a record that the other one is, before and after a schema."""
    pair = {path, other}
    is_inside = path != other and (path[: len(other)] == other or other[: len(path)] == path)
    return is_inside and bool(pair & gone) and bool(pair & live) and bool(pair - gone or pair - live)


def produce_nested(stream: FlatStream, chance: Random) -> None:
    """Produce some chunks of two partitions with the last two schemas; now and then there is a new one."""
    if not stream.trees or chance.random() < 0.4:
        stream.add(random_tree(chance))
    for _ in range(chance.randint(1, 3)):
        partition, schema_id = chance.randint(0, 1), chance.choice([*stream.trees][-2:])
        keys = [2 * chance.randint(0, 7) + partition for _ in range(chance.randint(1, 5))]
        rows = [{"id": key, **random_value(chance, stream.trees[schema_id])} for key in keys]
        stream.send(schema_id, *((chance.choice(["update", "delete", None]), row) for row in rows), partition=partition)


def check_nested(loader: Loader, stream: FlatStream, oracle: Oracle) -> None:
    """Check that the table has the columns and the rows of the oracle."""
    known = loader.known(stream)
    if known.shape is None:
        return
    names = {"__".join(path): path for path in oracle.columns}
    assert {each.name for each in known.shape.columns} == {"id", *names}, "the table has other columns"
    cells = [f"CAST({quoted(name)} AS text)" for name in names]
    rows = loader.ask(f"SELECT id, _partition, _offset, {', '.join([*cells, '1'])} FROM {quoted(stream.name)}")
    found = {row[0]: (_shown(dict(zip(names.values(), row[3:-1], strict=True))), row[1], row[2]) for row in rows}
    expected = {
        key: ({path: cells.get(path) for path in names.values()}, partition, offset)
        for key, (cells, partition, offset) in oracle.rows.items()
    }
    assert found == expected, "the table has other rows"


def _shown(cells: Mapping[Path, str | None]) -> dict[Path, str | None]:
    """Return cells with JSON in one form, because each warehouse has another one."""
    return {
        path: json.dumps(json.loads(cell), sort_keys=True) if cell and cell[0] == "{" else cell
        for path, cell in cells.items()
    }
