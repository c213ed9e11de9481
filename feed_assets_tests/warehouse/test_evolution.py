"""A table follows its topic's schemas: forward only, and without loss."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from feed_assets.core.errors import NotMigratable, OffsetsMissing
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load as loads
from feed_assets.warehouse.load_files import batches
from feed_assets.warehouse.load_groups import LoadGroup, runs
from feed_assets.warehouse.load_state import Position
from feed_assets.warehouse.migrations import migrate
from feed_assets.warehouse.shapes import shape_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.warehouse.migrations import DECIMAL, MIGRATIONS, UUID, N, field, rows_by_id
from feed_assets_tests.warehouse.stream import ID, Stream

FORMATS = ("csv", "both")

MOMENT = {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize("name", MIGRATIONS)
def test_rows_of_both_schemas_are_loaded_and_older_chunks_are_migrated(loader, stream, name):
    old_fields, old, new_fields, new, expected = MIGRATIONS[name]
    first, second = stream.schemas.add(ID, *old_fields), stream.schemas.add(ID, *new_fields)
    stream.send(first, {"id": 1, **old})
    loader.load(stream)
    stream.send(second, {"id": 2, **new})
    stream.send(first, {"id": 3, **old}, (None, {"id": 9}))
    stream.send(second, {"id": 4, **new})
    known = loader.load(stream)
    assert rows_by_id(loader, stream) == {1: expected, 2: new, 3: expected, 4: new}
    assert (known.schema_id, loader.known(stream)) == (second, known)


@pytest.mark.parametrize(
    ("old", "value", "new", "said"),
    [
        (N, 1, field("boolean"), "n was integer and is boolean, which would lose data"),
        (field("long"), 1, field("double"), "n was bigint and is double"),
        (N, 1, field({"type": "array", "items": "int"}), "n was integer and is json"),
        (field(MOMENT), datetime(2026, 1, 2, tzinfo=UTC), field("string"), "n was timestamp and is text"),
        (field(DECIMAL), Decimal(1), field({**DECIMAL, "scale": 4}), r"decimal\(12, 2\) and is decimal\(12, 4\)"),
    ],
)
def test_a_schema_change_that_would_lose_data_leaves_the_table_unchanged(loader, stream, old, value, new, said):
    stream.send(stream.schemas.add(ID, old), {"id": 1, "n": value})
    known = loader.load(stream)
    newer = stream.schemas.add(ID, new)
    with pytest.raises(NotMigratable, match=said):
        loads.load(loader.place, stream.name, known, [LoadGroup(newer, tuple(stream.signals))], stream.shape)
    assert loader.known(stream) == known


def test_a_schema_change_is_refused_before_any_copy(loader, stream, monkeypatch):
    stream.send(stream.schemas.add(ID, N), {"id": 1, "n": 1})
    loader.load(stream)
    stream.send(stream.schemas.add(ID, field("boolean")), {"id": 2, "n": True})
    monkeypatch.setattr(loads.load_files, "fetch", lambda *_: pytest.fail("chunks are copied"))
    with pytest.raises(NotMigratable, match="n was integer and is boolean"):
        loader.load(stream)


@each_case("kind", [UUID, DECIMAL])
def test_a_key_is_not_made_a_text_in_which_it_would_be_another_one(kind):
    stream = Stream(Blackboard.open("memory://"), "clicks")
    older, newer = (
        shape_of(stream.schemas.get(stream.schemas.add({"name": "id", "type": each}, N)), ["id"])
        for each in (kind, "string")
    )
    with pytest.raises(NotMigratable, match="is text, which would change keys"):
        migrate(older, newer)


def test_a_text_that_became_a_number_stays_a_text(loader, stream):
    stream.send(stream.schemas.add(ID, field("string")), {"id": 1, "n": "five"})
    stream.send(stream.schemas.add(ID, N), {"id": 2, "n": 5})
    loader.load(stream)
    assert rows_by_id(loader, stream) == {1: {"n": "five"}, 2: {"n": "5"}}


def test_an_older_chunk_that_the_table_cannot_hold_is_refused(loader, stream):
    older = stream.schemas.add(ID, field("string"))
    stream.send(stream.schemas.add(ID, N), {"id": 1, "n": 1})
    loader.load(stream)
    stream.send(older, {"id": 2, "n": "no number"})
    with pytest.raises(NotMigratable, match="n is text, which integer cannot store"):
        loader.load(stream)


def test_schemas_that_take_turns_are_loaded_in_the_order_of_their_offsets(loader, stream):
    first, second = stream.schemas.add(ID, N), stream.schemas.add(ID, N, field("string", "m", default="-"))
    for number in range(6):
        value = {"id": 1, "n": number}
        stream.send(*((second, {**value, "m": "x"}) if number % 2 else (first, value)))
        stream.send(second, {"id": 10 + number, "n": number, "m": "y"}, partition=1)
    assert [run.schema_id for run in runs(stream.signals)] == [first, second] * 3
    loader.load(stream)
    assert rows_by_id(loader, stream)[1] == {"n": 5, "m": "x"}
    assert len(rows_by_id(loader, stream)) == 7


def test_schemas_that_alternate_are_loaded_together_once_the_table_fits_them(loader, stream, monkeypatch):
    first = stream.schemas.add(ID, N)
    second = stream.schemas.add(ID, N, field("int", "m", default=5))
    for number in range(40):
        schema = (first, second)[number % 2]
        stream.send(schema, {"id": number % 7, "n": number, **({"m": number} if schema == second else {})})
    stream.send(first, {"id": 100, "n": 1}, (None, {"id": 3}))
    copied = list[int]()
    monkeypatch.setattr(loads.load_files, "batches", lambda *args: copied.append(len(batches(*args))) or batches(*args))
    loader.load(stream)
    assert copied == [1, 2]  # The first chunk, then all others by one COPY for each schema.
    rows = loader.ask(f'SELECT id, n, m, _partition, _offset FROM "{stream.name}" ORDER BY id')
    assert rows == sorted((*row[:2], 5, *row[2:]) if len(row) == 4 else row for row in stream.model())


def test_a_schema_that_does_not_fit_stops_the_table_after_all_chunks_before_it(loader, stream):
    first, second = stream.schemas.add(ID, N), stream.schemas.add(ID, N, field("int", "m", default=5))
    for number in range(6):
        stream.send((first, second)[number % 2], {"id": number, "n": number, **({"m": 1} if number % 2 else {})})
    stream.send(stream.schemas.add(ID, field("boolean")), {"id": 9, "n": True})
    with pytest.raises(NotMigratable, match="n was integer and is boolean"):
        loader.load(stream)
    assert loader.known(stream).positions[0].next_offset == 6
    assert loader.ask(f'SELECT count(*) FROM "{stream.name}"') == [(6,)]


def test_a_buffer_for_each_schema_would_lose_rows(loader, stream, monkeypatch):
    """Load all chunks of one schema together, the wrong way: the position passes chunks that are not loaded."""
    first, second = stream.schemas.add(ID, N), stream.schemas.add(ID, N, field(["null", "string"], "m"))
    for number, schema in enumerate((first, second, first)):
        stream.send(schema, {"id": number, "n": number, **({"m": "x"} if schema == second else {})})
    known = loader.known(stream)
    of_first = LoadGroup(first, tuple(each for each in stream.signals if each.signal.schema_id == first))
    with pytest.raises(OffsetsMissing, match="continues at offset 2: expected 1"):
        loads.load(loader.place, stream.name, known, [of_first], stream.shape)
    monkeypatch.setattr(loads, "_positions", unchecked)
    loads.load(loader.place, stream.name, known, [of_first], stream.shape)  # And killed before the other buffer.
    loader.load(stream)
    assert len(stream.table(loader.engine)) < len(stream.model())


def unchecked(_, __, signals, ___):
    return {each.signal.partition: Position(each.signal.next_offset, each.signal_offset) for each in signals}


def test_a_key_may_widen_in_table_and_state(loader):
    stream = Stream(loader.place.board, f"wide.{id(loader)}", "id")
    small, large = (stream.schemas.add(field(each, "id"), N) for each in ("int", "long"))
    stream.send(small, {"id": 1, "n": 1}, {"id": 2, "n": 1}, (None, {"id": 2}))
    loader.load(stream)
    stream.send(large, {"id": 1, "n": 2}, {"id": 2**40, "n": 2}, (None, {"id": 2**40}))
    loader.load(stream)
    assert loader.ask(f'SELECT id, n, _partition, _offset FROM "{stream.name}"') == stream.model()
    assert loader.ask(f'SELECT id FROM feed_assets_deleted."{stream.name}" ORDER BY id') == [(2,), (2**40,)]


def test_a_key_that_is_declared_anew_is_refused(loader, stream):
    schema = stream.schemas.add(ID, N)
    stream.send(schema, {"id": 1, "n": 1})
    loader.load(stream)
    stream.topic = stream.topic.model_copy(update={"key": ("n",)})
    with pytest.raises(NotMigratable, match="the key is n, not id"):
        loads.change(loader.engine, stream.name, loader.known(stream), schema, stream.shape(schema))


def test_a_key_that_the_value_has_not_is_text(loader, stream):
    stream.send(stream.schemas.add(N), {"id": 7, "n": 1}, {"id": 8, "n": 2}, (None, {"id": 8}))
    loader.load(stream)
    assert loader.ask(f'SELECT id, n FROM "{stream.name}"') == [("7", 1)]


OUT_OF_TURN = {
    "nulls": ([field(["null", "int"])], {"n": None}, [N], {"n": 1}, {"n": None}),
    "a field that was not there": ([], {}, [N], {"n": 1}, {"n": None}),
    "a default": ([], {}, [field(default=7)], {"n": 1}, {"n": 7}),
    "wider numbers": ([field("long")], {"n": 2**40}, [N], {"n": 1}, {"n": 2**40}),
    "wider numbers with a default": ([field("double")], {"n": 0.5}, [field(default=1)], {"n": 1}, {"n": 0.5}),
}


@pytest.mark.parametrize("name", OUT_OF_TURN)
def test_a_table_that_the_newer_schema_made_holds_older_rows_as_well(loader, stream, name):
    old_fields, old, new_fields, new, expected = OUT_OF_TURN[name]
    older, newer = stream.schemas.add(ID, *old_fields), stream.schemas.add(ID, *new_fields)
    for number, (schema, row) in enumerate([(newer, new), (older, old), (newer, new), (older, old)]):
        stream.send(schema, {"id": number, **row})
        known = loader.load(stream)
    assert rows_by_id(loader, stream) == {0: new, 1: expected, 2: new, 3: expected}
    assert (known.schema_id, loader.known(stream)) == (newer, known)


@pytest.mark.parametrize(("type_", "value"), [("int", 5), (["null", "string"], "x"), (["null", "string"], None)])
def test_a_field_of_a_schema_whose_id_was_given_earlier_is_not_left_out(loader, stream, type_, value):
    later, first = stream.schemas.add(ID, N, field(type_, "m")), stream.schemas.add(ID, N)
    stream.send(first, {"id": 1, "n": 1}, {"id": 3, "n": 1})
    loader.load(stream)
    stream.send(later, {"id": 2, "n": 2, "m": value}, {"id": 1, "n": 3, "m": value})
    loader.load(stream)
    expected = {1: {"n": 3, "m": value}, 2: {"n": 2, "m": value}, 3: {"n": 1, "m": None}}
    assert rows_by_id(loader, stream) == expected


def test_a_column_that_was_dropped_does_not_come_back_with_an_older_chunk(loader, stream):
    first, second = stream.schemas.add(ID, N, field(name="m")), stream.schemas.add(ID, N)
    for schema, row in ((first, {"n": 1, "m": 2}), (second, {"n": 2}), (first, {"n": 3, "m": 4})):
        stream.send(schema, {"id": row["n"], **row})
        known = loader.load(stream)
    assert rows_by_id(loader, stream) == {1: {"n": 1}, 2: {"n": 2}, 3: {"n": 3}}
    assert loader.known(stream).shape.dropped == known.shape.dropped == ("m",)
    third = stream.schemas.add(ID, N, field(name="m", default=9))
    stream.send(third, {"id": 4, "n": 4, "m": 5})
    assert loader.load(stream).shape.dropped == ()
    assert rows_by_id(loader, stream)[3] == {"n": 3, "m": 9}
