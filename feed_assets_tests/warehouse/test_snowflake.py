"""Loads into Snowflake, executed by fakesnow: kills between statements that commit, and what it cannot take."""

import os
import subprocess
import sys
from contextlib import suppress
from decimal import Decimal

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pydantic import SecretStr

from feed_assets.core.errors import InvalidSetting, InvalidShape, LoadFailed, WarehouseUnavailable
from feed_assets.warehouse import reset, snowflake_connection, table_changes
from feed_assets.warehouse.shapes import Column, Kind, Shape
from feed_assets.warehouse.snowflake import Snowflake
from feed_assets.warehouse.snowflake_connection import options_of
from feed_assets_tests.warehouse import snowflake_standin
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.topic_loader import HOLDER

pytestmark = pytest.mark.parametrize("url", ["snowflake"], indirect=True)

URL = "snowflake://loader:p%2Fw@org-account/ANALYTICS/PUBLIC?warehouse=LOADS&role=LOADER"


class Killed(BaseException):
    """Stands for SIGKILL: no code after it runs."""


def killed_load(loader, stream, monkeypatch, at: int, *, is_after: bool) -> None:
    """Load until a statement, and stop before it or after it."""
    left, execute = [at], snowflake_standin._Driver.execute

    def dies(self, *arguments):
        left[0] -= 1
        if left[0] < 0 and not is_after:
            raise Killed
        execute(self, *arguments)
        if left[0] < 0:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(snowflake_standin._Driver, "execute", dies)
        with suppress(Killed, WarehouseUnavailable):
            loader.load(stream)


def load(loader, stream) -> None:
    """Load as the loader does, which tries again after an interrupted change was completed."""
    with suppress(WarehouseUnavailable):
        loader.load(stream)
        return
    loader.load(stream)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("first", range(3))
def test_a_snowflake_load_that_is_killed_at_any_statement_is_whole_or_nothing(loader, monkeypatch, first, is_after):
    """Kill the first load of a table, and then one that drops, renames, adds and replaces columns."""
    stream = Stream(loader.place.board, f"breaks.{first}{is_after}", "id")
    stream.send(stream.schemas.add(ID, TEXT, {"name": "n", "type": "int"}), {"id": 1, "text": "a", "n": 1})
    lives = 0
    for rows in ([(1, "a")], [(1, "a"), (2, "b")]):
        held, at = loader.known(stream).positions, first
        while loader.known(stream).positions == held:
            killed_load(loader, stream, monkeypatch, at, is_after=is_after)
            at, lives = at + 11, lives + 1
        if len(rows) == 1:
            assert stream.table(loader.engine) == stream.model()
            aliased = {**TEXT, "name": "m", "aliases": ["text"]}
            later = stream.schemas.add(ID, aliased, {"name": "k", "type": "int", "default": 5})
            stream.send(later, {"id": 2, "m": "b", "k": 6}, (None, {"id": 4}))
        else:
            assert loader.ask(f'SELECT "id", "m", "k" FROM "{stream.name}" ORDER BY 1') == [(1, "a", 5), (2, "b", 6)]
    assert lives > 8
    assert loader.ask(f"SELECT * FROM feed_assets.changes WHERE topic = '{stream.name}'") == []


WIDER = [
    ID,
    {"name": "a", "type": "long"},
    {"name": "b", "type": "double"},
    {"name": "c", "type": "string", "doc": "what it is"},
    {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
]


def test_an_interrupted_change_is_completed_at_each_of_its_statements(loader, stream, monkeypatch):
    """Each statement of a change may have run without being counted: it is repeated in another form, or not at all."""
    narrow = [ID, *({"name": each, "type": "int"} for each in "abcd")]
    stream.send(stream.schemas.add(*narrow), {"id": 1, **dict.fromkeys("abcd", 7)})
    loader.load(stream)
    stream.send(stream.schemas.add(*WIDER), {"id": 2, "a": 2**40, "b": 0.5, "c": "x", "d": Decimal(1)})
    count, counted = table_changes._count, []

    def dies(connection, table, done):
        counted.append(done)
        raise Killed

    while True:
        with monkeypatch.context() as patch:
            patch.setattr(table_changes, "_count", dies)
            for _ in range(2):  # The second one repeats the statement that was not counted.
                with suppress(Killed, WarehouseUnavailable):
                    loader.load(stream)
        with loader.engine.open() as connection:
            if not table_changes._stored(connection, stream.name):
                break
            count(connection, stream.name, counted[-1])
    load(loader, stream)
    rows = loader.ask(f'SELECT "id", "a", "b", "c", "d" FROM "{stream.name}" ORDER BY 1')
    assert rows == [(1, 7, 7.0, "7", 7), (2, 2**40, 0.5, "x", 1)]


def test_a_table_of_somebody_else_is_not_taken(loader, stream):
    loader.ask(f'CREATE TABLE "{stream.name}" ("id" integer)')
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"})
    for _ in range(2):
        with pytest.raises(LoadFailed, match="No load has created this table: rename it, or drop it"):
            loader.load(stream)
    loader.ask(f'DROP TABLE "{stream.name}"')
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()


def test_a_reset_that_is_killed_can_be_repeated(loader, stream, monkeypatch):
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"})
    loader.load(stream)
    for at in (3, 99):
        with loader.engine.open() as connection:
            texts = reset.plan(connection, loader.engine, stream.name, None)
            assert f"DELETE FROM feed_assets.changes WHERE topic = '{stream.name}'" in texts
            execute, left = connection.execute, iter(range(at))

            def dies(*arguments, execute=execute, left=left):
                if next(left, None) is None:
                    raise Killed
                return execute(*arguments)

            monkeypatch.setattr(connection, "execute", dies)
            with suppress(Killed):
                reset.apply(connection, loader.engine, HOLDER, 30, texts)
    with loader.engine.open() as connection:
        table = "information_schema.tables WHERE table_name = '" + stream.name.upper() + "'"
        assert connection.execute(f"SELECT 1 FROM {table}") == []
        connection.execute(f"UPDATE feed_assets.lease SET holder = '{HOLDER}'")
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()


def test_rows_that_do_not_arrive_fail_the_load(loader, stream, monkeypatch):
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"})
    write = snowflake_connection._write_parquet
    monkeypatch.setattr(snowflake_connection, "_write_parquet", lambda *arguments: write(*arguments) + 1)
    with pytest.raises(LoadFailed, match="Snowflake has copied 1 rows: expected the 2 that were sent"):
        loader.load(stream)
    assert loader.known(stream).positions == {}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([Column(name="x" * 256, kind=Kind(name="text"))], "is not a name in Snowflake: expected at most 255"),
        ([Column(name=each, kind=Kind(name="text")) for each in "Aa"], "A and a are the same name in Snowflake"),
        ([Column(name="a", kind=Kind(name="decimal", precision=39))], "expected at most 38 digits"),
    ],
)
def test_a_table_that_snowflake_cannot_hold_is_refused(url, columns, said):
    with pytest.raises(InvalidShape, match=said):
        Snowflake(URL).check("t", Shape(columns=tuple(columns), key=()))


def test_a_key_is_read_from_a_file_or_from_the_setting(url, tmp_path):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, pkcs8, plain).decode()
    (tmp_path / "key.p8").write_text(pem)
    der = key.private_bytes(serialization.Encoding.DER, pkcs8, plain)
    for each in (pem, str(tmp_path / "key.p8")):
        options = options_of(URL.replace(":p%2Fw", ""), SecretStr(each))
        assert (options["private_key"], options["authenticator"]) == (der, "SNOWFLAKE_JWT")
        assert "password" not in options
    options = options_of(URL, None)
    names = ("account", "user", "password", "database", "schema", "warehouse", "role", "autocommit")
    assert [options[each] for each in names] == [
        *("org-account", "loader", "p/w", "ANALYTICS", "PUBLIC", "LOADS", "LOADER", True),
    ]
    for wrong in ("/no/such/key", "-----BEGIN PRIVATE KEY-----\nsecret"):
        with pytest.raises(InvalidSetting, match=r"private_key of the warehouse cannot be read \(\w+\)") as error:
            options_of(URL, SecretStr(wrong))
        assert "secret" not in str(error.value)


def test_the_driver_leaves_the_environment_of_child_processes_as_it_was(url):
    program = (
        "import os, sys; before = {**os.environ}; from feed_assets.warehouse.target import engine_of; "
        "engine_of(sys.argv[1]); assert before == os.environ"
    )
    environment = {name: each for name, each in os.environ.items() if not name.startswith("ARROW_")}
    subprocess.run([sys.executable, "-c", program, url], env=environment, check=True)
