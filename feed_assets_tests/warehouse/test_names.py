"""Names of topics, columns and keys are never interpreted, whatever they contain."""

from dataclasses import replace
from hashlib import sha256
from uuid import uuid4

import pytest

from feed_assets.core.errors import InvalidShape
from feed_assets.kafka import dialect
from feed_assets.kafka.chunk_files import signalled_key
from feed_assets.kafka.messages import OFFSET, OPERATION
from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse import load_state
from feed_assets.warehouse.conflicts import change
from feed_assets.warehouse.load import load
from feed_assets.warehouse.load_groups import LoadGroup, Signalled
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.shapes import TEXT, Column, Shape
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.warehouse_connection import opened

NAMES = [
    '"; drop table x; --', "'); drop table x; --", 'a""b', "select", "a b", "é", "e\u0301", "%s", "%(a)s", "{0}", "$1",
    ":a", "\\", "--", "*", "$$", "\u202ea", "\U0001f600" * 14, "x" * 57,
]  # fmt: skip
"""Names; the last has 63 bytes with its suffix in a column, the most that PostgreSQL accepts."""


@each_case("name", NAMES)
def test_any_name_is_the_name_of_a_table_and_of_its_columns(loader, name):
    topic = f"{name[:10]} {uuid4().hex[:8]}"
    id_, old, new, added = (f"{name} {what}" for what in ("id", "old", "new", "added"))
    loader.ask("DROP TABLE IF EXISTS x")
    loader.ask("CREATE TABLE x AS SELECT 1 AS n")
    key = Column(name=id_, kind=TEXT, is_nullable=False)
    first = Shape(columns=(key, Column(name=old, kind=TEXT, comment=name)), key=(id_,))
    more = Column(name=added, kind=TEXT, default=name, comment=name)
    second = Shape(columns=(key, Column(name=new, kind=TEXT, aliases=(old,)), more), key=(id_,))
    board = loader.place.board

    def signalled(schema_id: int, first_offset: int, columns: list[str], *rows: list[str]) -> Signalled:
        lines = [[operation, first_offset + at, *values] for at, (operation, *values) in enumerate(rows)]
        content = b"".join(dialect.line(each) for each in [[OPERATION, OFFSET, *columns], *lines])
        facts = (len(rows), 0, dialect.NAME, None, len(content), sha256(content).hexdigest())
        signal = Signal(topic, 0, first_offset, first_offset + len(rows) - 1, *facts, schema_id)
        board.put(key := signalled_key(signal.topic, signal.partition, signal.first_offset, str(signal.path)), content)
        return Signalled(replace(signal, path=f"{board.url}/{key}"), first_offset + 1)

    one = signalled(1, 0, [id_, old], ["update", name, name], ["update", "b", "c"])
    two = signalled(2, 2, [id_, new, added], ["update", "d", "e", name], ["delete", "b", "", ""])
    known = load(loader.place, topic, TopicState(), [LoadGroup(1, (one,))], lambda _: first)
    load(loader.place, topic, known, [LoadGroup(2, (two,))], lambda _: second)
    table = '"' + topic.replace('"', '""') + '"'
    assert sorted(loader.ask(f"SELECT * FROM {table}")) == sorted([(name, name, 0, 0, name), ("d", "e", 0, 2, name)])
    assert loader.ask("SELECT n FROM x") == [(1,)]


@each_case("name", ["a\0b", "\0", "\ud800"])
def test_a_name_that_no_warehouse_takes_is_refused_in_one_line(engine, name):
    key = Column(name="id", kind=TEXT, is_nullable=False)
    for table, column in (("t", name), (name, "a")):
        with pytest.raises(InvalidShape, match=r"^'.*' is not a name in a warehouse: expected .*$"):
            change(engine, table, TopicState(), 1, Shape(columns=(key, Column(name=column, kind=TEXT)), key=("id",)))


def test_a_table_is_not_called_as_postgresqls_own(postgresql):
    engine = engine_of(str(postgresql.database()))
    shape = Shape(columns=(Column(name="id", kind=TEXT, is_nullable=False),), key=("id",))
    with pytest.raises(InvalidShape, match="pg_class is a name that PostgreSQL reserves"):
        change(engine, "pg_class", TopicState(), 1, shape)


def test_moments_are_read_and_written_whatever_form_a_database_gives_dates(postgresql):
    engine = engine_of(str(postgresql.database()))
    with opened(engine) as connection:
        [[name]] = connection.execute("SELECT current_database()")
        connection.execute(f"ALTER DATABASE \"{name}\" SET datestyle = 'SQL, DMY'")
    with opened(engine) as connection:
        assert connection.execute("SELECT CAST(date '2026-01-31' AS text)") == [("2026-01-31",)]
        load_state.prepare(connection, engine)
        load_state.take(connection, engine, "the test", 30)
