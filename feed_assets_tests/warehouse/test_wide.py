"""Tables with many columns: a schema cannot make DuckDB take all memory of the machine."""

import json

import pytest

from feed_assets.core.errors import InvalidShape
from feed_assets.kafka import avro
from feed_assets.warehouse import migrations, renames, shapes
from feed_assets.warehouse.conflicts import change
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.shapes import MOST_COLUMNS, TEXT, Column, Kind, Shape, shape_of
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.each_case import each_case

DUCKDB, POSTGRESQL = (engine_of(url) for url in ("duckdb:///none.db", "postgresql://u@h/d"))


def shape(count, prefix="a", kind=TEXT, dropped=0, **more):
    columns = tuple(Column(name=f"{prefix}{n}", kind=kind, **more) for n in range(count))
    return Shape(columns=columns, key=(), dropped=tuple(f"d{n}" for n in range(dropped)))


@each_case("engine", [DUCKDB, POSTGRESQL])
@each_case(("count", "dropped"), [(MOST_COLUMNS + 1, 0), (1, MOST_COLUMNS), (8_000, 0)])
def test_a_table_has_a_limited_number_of_columns(engine, count, dropped):
    engine.check("t", shape(MOST_COLUMNS))
    with pytest.raises(InvalidShape, match=f"would have {count + dropped:,} columns.*expected at most 1,598"):
        engine.check("t", shape(count, dropped=dropped))


def test_a_schema_with_too_many_fields_is_refused_before_its_types_are_read():
    fields = [{"name": f"a{n}", "type": "int", "default": 5} for n in range(MOST_COLUMNS + 1)]
    with pytest.raises(InvalidShape, match="1,599 columns"):
        shape_of(avro.parsed(json.dumps({"type": "record", "name": "R", "fields": fields}), {}), [])


@each_case(
    ("first", "second", "message"),
    [
        (shape(800), shape(799, "b"), "1,599 columns"),
        (shape(1_000), shape(1_000, default="x", comment="so many", is_nullable=True), ""),
        (shape(1_598), shape(1_598, comment="so many"), "1,598 statements, each for all 1,598 columns"),
        (shape(1_500, kind=Kind(name="integer"), default="5"), shape(1_500, kind=Kind(name="bigint")), "4,500 statem"),
        (shape(700), shape(898, "b"), ""),
        (shape(1_598), shape(1, "b"), "1,599 columns"),
    ],
)
def test_a_change_of_a_table_copies_a_limited_number_of_columns(first, second, message):
    made = change(DUCKDB, "t", TopicState(), 1, first)
    if not message:
        assert change(DUCKDB, "t", made.state, 2, second).statements
        return
    with pytest.raises(InvalidShape, match=message):
        change(DUCKDB, "t", made.state, 2, second)


def test_each_branch_of_a_union_is_compared_twice(monkeypatch):
    names, widens, compared = [f"n.D{n}" for n in range(1, 300)], shapes.widens, []
    monkeypatch.setattr(shapes, "widens", lambda *kinds: compared.append(kinds) or widens(*kinds))
    fixed = {"type": "fixed", "size": 200, "logicalType": "decimal"}
    named = {name: {**fixed, "name": name, "precision": n + 1} for n, name in enumerate(names)}
    assert str(shapes.kind_of(["null", *names, *names], named)) == "decimal(299, 0)"
    assert len(compared) <= 2 * len(names)


def test_each_alias_of_a_schema_is_tried_once(monkeypatch):
    """Give each field the names of all others as aliases: one way through them all is tried, not each of 7!."""
    names, moved, tried = [f"a{n}" for n in range(7)], renames._moved, []
    monkeypatch.setattr(renames, "_moved", lambda name, *more: tried.append(name) or moved(name, *more))
    columns = [Column(name=name, kind=TEXT, aliases=tuple(names)) for name in [*names, "b", "c"]]
    made = migrations.migrate(shape(7), Shape(columns=tuple(columns), key=()))
    assert [each.name for each in made.shape.columns] == [*names, "b", "c"]
    assert sorted(tried) == sorted([*names, "b", "c"])


def test_a_new_table_copies_a_limited_number_of_columns():
    assert change(DUCKDB, "t", TopicState(), 1, shape(1_400, comment="so many")).statements
    with pytest.raises(InvalidShape, match="1,599 statements, each for all 1,598 columns: expected at most 1,312"):
        change(DUCKDB, "t", TopicState(), 1, shape(1_598, comment="so many"))
