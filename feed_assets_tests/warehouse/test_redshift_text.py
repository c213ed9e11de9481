"""SQL of loads into Redshift, which cannot run here: compared with files, and parsed by sqlglot's Redshift dialect.

The files of `redshift/` are written anew by `WRITE_SQL=1 pytest feed_assets_tests/warehouse/test_redshift_text.py`:
look at what has changed.
"""

import os
import re
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from sqlglot.errors import ParseError

from feed_assets.warehouse import load_state, snapshots
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.warehouse.histories import HistoryStream, check_history
from feed_assets_tests.warehouse.ordered_chunks import OrderedStream, at_field, check_winners
from feed_assets_tests.warehouse.snapshot_chunks import Sent, SnapshotStream, check_snapshots
from feed_assets_tests.warehouse.standin import parsed, refused
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.unions import Union, check_union

FILES = Path(__file__).parent / "redshift"
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIELDS = [
    ID,
    {**TEXT, "doc": "what it's about"},
    {"name": "amount", "type": DECIMAL},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "raw", "type": "bytes"},
    {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "is_new", "type": "boolean"},
    {"name": "count", "type": "int", "default": 1},
]
LATER = [
    ID,
    {**TEXT, "name": "title", "aliases": ["text"], "doc": "how it is called"},
    {"name": "amount", "type": {**DECIMAL, "precision": 12}},
    {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
    {"name": "token", "type": "string"},
    {"name": "is_new", "type": "string"},
    {"name": "count", "type": "long", "default": 2},
    {"name": "path", "type": "string", "default": "C:\\it's"},
]
ROW = {"text": "a", "amount": Decimal("1.50"), "tags": ["x"], "raw": b"\x00", "token": UUID(int=1), "is_new": True}
LATER_ROW = {"title": "b", "amount": Decimal("2.50"), "tags": None, "token": "t", "is_new": "?", "path": "/"}


def written(engine, board) -> str:
    """Return the statements of an engine, with its random names masked."""
    text = ";\n".join(engine.statements) + ";\n"
    engine.statements.clear()
    return re.sub("[0-9a-f]{32}", "0" * 32, text.replace(board.url, "s3://bucket/lake"))


def check(name: str, text: str) -> None:
    path = FILES / f"{name}.sql"
    if os.environ.get("WRITE_SQL"):
        path.write_text(text)
    assert text == path.read_text(), f"{path} has other statements"


@pytest.fixture
def orders(loader) -> Stream:
    stream = Stream(loader.place.board, "shop.orders", gzip=True)
    first = stream.schemas.add(*FIELDS)
    stream.send(first, {"id": 1, **ROW, "count": 1}, {"id": 2, **ROW, "count": 2}, (None, {"id": 3}))
    stream.send(first, {"id": 4, **ROW, "count": 4}, partition=1)
    loader.engine.statements.clear()
    return stream


@pytest.mark.parametrize("url", ["redshift"], indirect=True)
def test_statements_of_loads_match_the_stored_files(loader, orders):
    engine, board = loader.engine, loader.place.board
    engine.statements += load_state.create(engine)
    check("state", written(engine, board))
    loader.load(orders)
    check("create", written(engine, board))
    orders.send(1 + orders.key_id, {"id": 1, **ROW, "text": "é" * 200, "count": 1})
    loader.load(orders)
    check("growth", written(engine, board))
    orders.send(orders.schemas.add(*LATER), {"id": 5, **LATER_ROW, "count": 2**40})
    loader.load(orders)
    check("migrate", written(engine, board))
    orders.send(max(orders.schemas.known), {"id": 6, **LATER_ROW, "title": "x" * 70_000, "count": 1})
    loader.load(orders)
    check("refuse", written(engine, board))
    returned = Stream(board, "shop.returns", format="parquet")
    returned.send(returned.schemas.add(*FIELDS), {"id": 1, **ROW, "count": 1}, (None, {"id": 2}))
    loader.load(returned)
    check("parquet", written(engine, board))
    visits = OrderedStream(board, "shop.visits")
    first = visits.schemas.add(ID, at_field("int"), *FIELDS[1:3])
    for partition in (0, 1):
        visits.send(first, {"id": 1, "at": 1, **ROW}, (None, {"id": 2}), partition=partition)
    loader.load(visits)
    wide = visits.schemas.add(ID, at_field("long"), *FIELDS[1:3])
    visits.send(wide, {"id": 1, "at": 2**40, **ROW}, ("delete", {"id": 2, "at": 1, **ROW}), partition=2)
    loader.load(visits)
    check("ordered", written(engine, board))
    check_winners(loader, visits)
    clicks = HistoryStream(board, "shop.clicks_history")
    clicks.newest_by = "at"
    first = clicks.schemas.add(ID, at_field("int"), *FIELDS[1:3])
    row = {"text": "a", "amount": Decimal("1.50")}
    clicks.send(first, {"id": 1, "at": 1, **row}, (None, {"id": 2}))
    loader.load(clicks)
    wide = clicks.schemas.add(ID, at_field("long"), *FIELDS[1:3])
    clicks.send(wide, {"id": 1, "at": 2**40, **row, "text": "é" * 200}, partition=1)
    loader.load(clicks)
    check("history", written(engine, board))
    check_history(loader, clicks)
    union = Union(board, "key", table="shop.union")
    for number, topic in enumerate((union.add("eu"), union.add("us"))):
        schema = union.registry.add(ID, FIELDS[1 + number])
        value = {"text": "a"} if number == 0 else {"amount": Decimal("1.50")}
        topic.send(schema, {"id": 1, **value}, (None, {"id": 2}))
        union.load(loader, topic)
    check("union", written(engine, board))
    check_union(loader, union)
    clicks = SnapshotStream(board, "shop.marked")
    with engine.open() as connection:
        snapshots.prepare(connection, engine)
    engine.statements.clear()  # Another test may have created the table.
    engine.statements += [each.create(engine, "CREATE TABLE IF NOT EXISTS") for each in snapshots._TABLES]
    loader.place = replace(loader.place, has_snapshots=True)
    for clicks.name, clicks.is_history in (("shop.marked", False), ("shop.marked_history", True)):
        clicks.ends, clicks.signals, clicks.sent = {}, [], defaultdict(list)
        clicks.produce(clicks.schemas.add(ID, TEXT), Sent(1), Sent(2), Sent(2, "refresh", "begin"), Sent(3, "refresh"))
        clicks.produce(max(clicks.schemas.known), Sent(None, None, "end"))
        loader.load(clicks)
        check_snapshots(loader, clicks)
    check("snapshots", written(engine, board))
    columns = "id, title, amount, token, is_new, count, path, _partition, _offset"
    token, path = str(UUID(int=1)), "C:\\it's"
    assert loader.ask(f'SELECT {columns} FROM "shop.orders" ORDER BY id') == [
        (1, "é" * 200, Decimal("1.50"), token, "true", 1, path, 0, 3),
        (2, "a", Decimal("1.50"), token, "true", 2, path, 0, 1),
        (4, "a", Decimal("1.50"), token, "true", 4, path, 1, 0),
        (5, "b", Decimal("2.50"), "t", "?", 2**40, "/", 0, 4),
    ]


@each_case(
    "name", ["state", "create", "growth", "migrate", "refuse", "parquet", "ordered", "history", "union", "snapshots"]
)
def test_each_statement_is_one_of_redshift(name):
    texts = (FILES / f"{name}.sql").read_text().removesuffix(";\n").split(";\n")
    is_within = False
    for each in texts:
        found = parsed(each)
        is_within = each == "BEGIN" or (is_within and each != "COMMIT")
        assert refused(found, is_within) == "", each


@each_case(
    ("statement", "said"),
    [
        ("TRUNCATE TABLE t", "TRUNCATE would end"),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "ON CONFLICT"),
        ("SELECT DISTINCT ON (a) a FROM t", "DISTINCT ON"),
        ("DELETE FROM t x USING s WHERE x.a = s.a", "no alias"),
        ("ALTER TABLE t ALTER COLUMN a TYPE varchar(1024)", "cannot run inside a transaction block"),
        ("ALTER TABLE t ALTER COLUMN a TYPE bigint", "is not supported"),
        ("ALTER TABLE t ALTER COLUMN a DROP NOT NULL", "is not supported"),
        ("ALTER TABLE t ALTER COLUMN a SET DEFAULT 1", "is not supported"),
    ],
)
def test_the_stand_in_refuses_what_redshift_does(statement, said):
    assert said in refused(parsed(statement), is_within=True)


def test_an_invalid_statement_is_refused_by_the_parser():
    with pytest.raises((AssertionError, ParseError)):
        parsed("VACUUM FULL of what")
