"""Topics with masked columns: planted values are in the topic and nowhere else, and tables have the masks."""

import hmac
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from feed_assets.core.topics import signals_of
from feed_assets.kafka import avro
from feed_assets.warehouse import loader as loader_module
from feed_assets.warehouse import reset
from feed_assets.warehouse.engines import Engine
from feed_assets_tests.support.connector_command import connector_process
from feed_assets_tests.support.kafka_topics import World, header
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import loading_of, nexts
from feed_assets_tests.warehouse.loader_thread import loading_in_thread

KEY = "k3y-" * 10
MASK = {"id": "hash", "email": "hash", "iban": "last4", "card": "hash", "birth": "null", "home": "hash"}
EMAIL, IBAN, CITY, ID = "pl4nted@example.org", "DE89370400440532013000", "Pl4ntedville", "pl4nted-id"
CARD, BIRTH = 4929123456781234, "31 Pl4nted 1980"
PLANTED = (EMAIL, IBAN, CITY, ID, str(CARD), BIRTH)
FIELDS = [
    {"name": "email", "type": ["null", "string"]},
    {"name": "iban", "type": "string"},
    {"name": "card", "type": "long"},
    {"name": "birth", "type": "string"},
    {"name": "home", "type": {"type": "record", "name": "home", "fields": [{"name": "city", "type": "string"}]}},
]
PEOPLE = [*FIELDS, {"name": "n", "type": "int"}]
OTHERS = [*FIELDS, {"name": "n", "type": {"type": "array", "items": "int"}}]
"""A schema whose `n` the table cannot take, so it records the rows as refused."""
MAIL = [{"name": "mail", "type": "string"}]
DATUM = {"email": EMAIL, "iban": IBAN, "card": CARD, "birth": BIRTH, "home": {"city": CITY}}
ROW = ("****3000", None)


def keyed(text: str) -> str:
    return hmac.new(KEY.encode(), text.encode(), sha256).hexdigest()


def forms(text: str) -> Iterator[bytes]:
    """Yield what may stand for a text: its bytes, their hexadecimal digits, and base64 wherever it begins."""
    data = text.encode()
    yield from (data, data.hex().encode(), data.hex().upper().encode())
    for before in range(3):
        coded = b64encode(b"x" * before + data)
        yield coded[4 if before else 0 :].rstrip(b"=")[:-1]


def planted_in(content: bytes) -> list[str]:
    return [text for text in PLANTED if any(each in content for each in forms(text))]


@pytest.fixture
def world(broker, registry, tmp_path, monkeypatch) -> Iterator[World]:
    monkeypatch.setenv("FEED_ASSETS_MASK_KEY", KEY)
    monkeypatch.setattr(loader_module, "LEASE_SECONDS", 0.0)  # The tests before this one have a lease.
    (tmp_path / "board").mkdir()
    (tmp_path / "home").mkdir(mode=0o700)
    with World.of(broker, registry, f"file://{tmp_path / 'board'}") as made:
        made.change(messages=4, conflicts="refuse", keys="string", mask=MASK)
        made.create()
        yield made


def send(world: World, value: bytes | None, key: str = ID, op: str = "update") -> None:
    headers = [("op", op.encode()), ("from", EMAIL.encode())]
    world.producer.produce(world.name, value, key.encode(), 0, headers=headers)
    assert world.producer.flush(30) == 0


def person(world: World, n: Any, fields: Any = PEOPLE) -> bytes:
    schema_id = world.schema_id(fields, f"person{len(json.dumps(fields))}")
    return avro.encoded({**DATUM, "n": n}, world.schemas.get(schema_id), schema_id)


def produce(world: World) -> None:
    """Produce rows, a delete, rows that a table refuses, and poison of each kind."""
    for n in range(3):
        send(world, person(world, n))
    send(world, person(world, 3), "kept-1")
    send(world, None, "gone-1")
    send(world, person(world, [4], OTHERS))
    for value in (f"{EMAIL} {IBAN}".encode(), person(world, 5)[:-3], person(world, 6) + CITY.encode()):
        send(world, value)
    send(world, person(world, 7), op=EMAIL)
    schema_id = world.schema_id(MAIL, "mail")
    send(world, avro.encoded({"mail": EMAIL}, world.schemas.get(schema_id), schema_id))


def load(world: World, url: str, engine: Engine, end: int) -> None:
    loading = loading_of(world.place, url)
    with closing(loading.schemas), loading_in_thread(loading, world) as ended:
        wait_until(lambda: ended or nexts(engine, world.name) == {0: end}, "the rows")
        assert ended == []


def places(world: World, engine: Engine, folder: Path, said: str) -> dict[str, bytes]:
    """Return the content of each place that may have what a message says."""
    chunks = [repr(world.rows(each)) for each in world.signals() if each.path]
    letters = [(each.key(), each.value(), each.headers()) for each in world.dead_letters()]
    signals = [(each.key(), each.value(), each.headers()) for each in world.messages(signals_of(world.name))]
    files = [path.read_bytes() for path in (folder / "board").rglob("*") if path.is_file()]
    home = [path.read_bytes() for path in (folder / "home").rglob("*") if path.is_file()]
    content = {"chunks": chunks, "dead letters": letters, "signals": signals, "said": said, "tables": tables(engine)}
    texts = {name: repr(each).encode() for name, each in content.items()}
    return {**texts, "files": b"".join(files), "home": b"".join(home)}


def tables(engine: Engine) -> dict[str, Any]:
    """Return all rows of all tables, those of the loader too."""
    with opened(engine) as connection:
        names = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
        )
        return {name: connection.execute(f'SELECT * FROM "{schema}"."{name}"') for schema, name in names}


def made_and_loaded(world: World, url: str, engine: Engine, folder: Path, capsys: Any) -> dict[str, bytes]:
    produce(world)
    with connector_process(world, folder / "home", folder):
        wait_until(world.is_done, "the chunks", 120, 0.1)
    load(world, url, engine, 11)
    return places(world, engine, folder, (folder / "said").read_text() + "".join(capsys.readouterr()))


@pytest.mark.parametrize("chunk_format", ["csv", "parquet"])
def test_planted_values_are_in_the_topic_and_nowhere_else(world, url, engine, tmp_path, capsys, chunk_format):
    world.change(format=chunk_format)
    made = made_and_loaded(world, url, engine, tmp_path, capsys)
    assert {name: planted_in(content) for name, content in made.items() if planted_in(content)} == {}
    assert len(planted_in(repr([(each.key(), each.value()) for each in world.messages()]).encode())) > 3
    with opened(engine) as connection:
        columns = "email, iban, birth, card, home, n"
        rows = connection.execute(f'SELECT id, {columns} FROM "{world.name}" ORDER BY n')
        [(refused,)] = connection.execute("SELECT row_json FROM feed_assets.refused WHERE topic = '" + world.name + "'")
    hashes = keyed(str(CARD)), keyed(f'{{"city":"{CITY}"}}')
    assert rows == [(keyed(key), keyed(EMAIL), *ROW, *hashes, n) for key, n in ((ID, 2), ("kept-1", 3))]
    assert json.loads(refused)["email"] == keyed(EMAIL)
    assert [header(each, "reason")[:40] for each in world.dead_letters()] == [
        "the value does not begin with the magic ",
        f"the value is not Avro of schema {world.signals()[0].schema_id}"[:40],
        f"the value has 12 bytes after the Avro of schema {world.signals()[0].schema_id}"[:40],
        "the header op is another word: expected ",
        f"schema {world.schema_id(MAIL, 'mail')} has no field email, which is masked"[:40],
    ]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_without_masks_the_same_search_finds_what_was_planted(world, url, engine, tmp_path, capsys):
    world.change(mask={})
    made = made_and_loaded(world, url, engine, tmp_path, capsys)
    for place in ("chunks", "dead letters", "tables", "files"):
        assert {EMAIL, IBAN, CITY, ID} <= {*planted_in(made[place])}, place


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_a_topic_is_made_again_with_its_masks(world, url, engine, tmp_path):
    """Rows that were loaded stay as they are under new masks. After the steps of the documentation all are masked."""

    def rows() -> list[Any]:
        with opened(engine) as connection:
            return connection.execute(f'SELECT id, email, CAST(card AS text) FROM "{world.name}" ORDER BY n')

    def go_on(end: int, **mask: str) -> list[Any]:
        world.change(mask=mask)
        send(world, person(world, end), f"kept-{end}")
        world.run_until_done(mask_key=KEY.encode())
        load(world, url, engine, end)
        return rows()

    plain = [("kept-1", EMAIL, str(CARD))]
    assert go_on(1) == plain
    assert go_on(2, email="hash") == [*plain, ("kept-2", keyed(EMAIL), str(CARD))], "a text is a text"
    assert len(go_on(3, email="hash", card="hash")) == 2
    with opened(engine) as connection:
        [(reason,)] = connection.execute("SELECT reason FROM feed_assets.refused")
    assert reason == f"the schema {world.signals()[0].schema_id}: card is text, which bigint cannot store"
    world.delete(signals_of(world.name))
    for path in (tmp_path / "board").rglob("*.csv"):
        path.unlink()
    with opened(engine) as connection:
        reset.apply(connection, engine, "test", 30, reset.plan(connection, engine, world.name, None))
        connection.execute("DELETE FROM feed_assets.lease")
    masked = go_on(4, id="hash", email="hash", card="hash")
    assert masked == [(keyed(f"kept-{n}"), keyed(EMAIL), keyed(str(CARD))) for n in range(1, 5)]
    assert tables(engine)["refused"] == []
