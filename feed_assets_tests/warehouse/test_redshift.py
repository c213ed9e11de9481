"""Loads into Redshift: executed by the stand-in, with chunks on the S3 server."""

import re
from contextlib import suppress

import pytest

from feed_assets.core.errors import ChunkBroken, InvalidSetting, InvalidShape, LoadFailed
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load as loads
from feed_assets.warehouse import load_files
from feed_assets.warehouse.load import LoadContext
from feed_assets.warehouse.redshift import LENGTHS, Redshift
from feed_assets.warehouse.shapes import Column, Kind, Shape
from feed_assets_tests.warehouse import standin
from feed_assets_tests.warehouse.standin import ROLE
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream

pytestmark = pytest.mark.parametrize("url", ["redshift"], indirect=True)


@pytest.mark.parametrize(
    ("ending", "how"), [(".csv", {}), (".csv.gz", {"gzip": True}), (".parquet", {"format": "parquet"})]
)
def test_a_row_that_redshift_cannot_hold_is_left_out_with_its_reason(loader, ending, how):
    stream = Stream(loader.place.board, f"long{ending}", **how)
    schema = stream.schemas.add(ID, TEXT, {"name": "tags", "type": {"type": "array", "items": "string"}})
    stream.send(schema, *({"id": number, "text": 'a",\n"', "tags": []} for number in range(3)))
    stream.send(
        schema,
        {"id": 1, "text": "é" * 40_000, "tags": []},
        {"id": 2, "text": 'b\n"', "tags": ["c"]},
        {"id": 3, "text": None, "tags": ["x" * 65_535]},
        {"id": 4, "text": "x" * 65_535, "tags": []},
    )
    known = loader.load(stream)
    assert known.positions[0].next_offset == 7
    for key in ((3,), (1,)):
        stream.rows.pop(key)
    stream.rows[(1,)] = (1, 'a",\n"', [], 0, 1)
    assert loader.ask(f'SELECT * FROM "{stream.name}" ORDER BY id') == [stream.rows[(key,)] for key in (0, 1, 2, 4)]
    refused = f"SELECT topic_partition, topic_offset, reason FROM feed_assets.refused WHERE topic = '{stream.name}'"
    assert loader.ask(f"{refused} ORDER BY topic_offset") == [
        (0, 3, "text has 80000 bytes: expected at most 65535"),
        (0, 5, "tags has 65539 bytes: expected at most 65535"),
    ]
    beside = [each.key for each in loader.place.board.files(f"manifests/{stream.name}")]
    assert len(beside) == 2
    assert len([each for each in beside if each.endswith(ending)]) == 1


def test_bytes_are_counted_as_bytes(loader, stream):
    """A chunk has two digits for each."""
    schema = stream.schemas.add(ID, {"name": "b", "type": "bytes"})
    stream.send(schema, {"id": 1, "b": b"x" * 32_767}, {"id": 2, "b": b"x" * 32_768})
    loader.load(stream)
    assert loader.ask(f'SELECT id, octet_length(b) FROM "{stream.name}"') == [(1, 32_767)]
    reasons = loader.ask(f"SELECT topic_offset, reason FROM feed_assets.refused WHERE topic = '{stream.name}'")
    assert reasons == [(1, "b has 32768 bytes: expected at most 32767")]


def test_a_key_of_bytes_is_counted_so_too_in_tombstones_alone(loader):
    stream = Stream(loader.place.board, f"bytes.{id(loader)}", "b")
    stream.key_id = stream.schemas.add({"name": "b", "type": "bytes"})
    stream.send(stream.schemas.add({"name": "b", "type": "bytes"}), {"b": b"a"})
    loader.load(stream)
    stream.send(stream.key_id, (None, {"b": b"x" * 32_768}), (None, {"b": b"a"}))
    loader.load(stream)
    reasons = loader.ask(f"SELECT topic_offset, reason FROM feed_assets.refused WHERE topic = '{stream.name}'")
    assert reasons == [(1, "b has 32768 bytes: expected at most 32767")]
    assert stream.table(loader.engine) == []


def test_a_row_that_is_left_out_twice_is_refused_once(loader, stream):
    schema = stream.schemas.add(ID, TEXT)
    stream.send(schema, {"id": 1, "text": "x" * 65_536}, {"id": 2, "text": "b"})
    loader.load(stream)
    loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
    loader.load(stream, *stream.signals)
    stream.send(schema, {"id": 3, "text": "c"})
    loader.load(stream)
    assert loader.ask(f"SELECT topic_offset FROM feed_assets.refused WHERE topic = '{stream.name}'") == [(0,)]
    assert stream.table(loader.engine) == [(2, "b", 0, 1), (3, "c", 0, 2)]


def test_a_line_that_is_too_long_for_copy_is_left_out(loader, stream):
    names = [f"c{number}" for number in range(40)]
    schema = stream.schemas.add(ID, *({"name": name, "type": "string"} for name in names))
    stream.send(schema, {"id": 1, **dict.fromkeys(names, '"' * 60_000)}, {"id": 2, **dict.fromkeys(names, "x")})
    loader.load(stream)
    assert loader.ask(f'SELECT id FROM "{stream.name}"') == [(2,)]
    [[reason]] = loader.ask(f"SELECT reason FROM feed_assets.refused WHERE topic = '{stream.name}'")
    assert re.fullmatch(r"its line has 48\d{5} bytes: expected at most 4194304", reason)


def growths(engine) -> list[str]:
    found = [each for each in engine.statements if " ALTER COLUMN " in each]
    engine.statements.clear()
    return found


@pytest.mark.parametrize("length", [257, 1024, 1025, 5000, 16_385, 65_535])
def test_text_columns_have_the_needed_width(loader, stream, length):
    schema = stream.schemas.add(ID, TEXT)
    stream.send(schema, {"id": 1, "text": "a"})
    loader.load(stream)
    growths(loader.engine)
    stream.send(schema, {"id": 2, "text": "x" * length})
    known = loader.load(stream)
    room = min(each for each in LENGTHS if each >= length)
    assert growths(loader.engine) == [f'ALTER TABLE "{stream.name}" ALTER COLUMN "text" TYPE varchar({room})']
    assert known.shape.columns[1].kind.length == room == loader.known(stream).shape.columns[1].kind.length
    stream.send(schema, {"id": 3, "text": "x" * length})
    loader.load(stream)
    assert (growths(loader.engine), stream.table(loader.engine)) == ([], stream.model())


def encode(loader, stream, encoding: str) -> None:
    """Give the column `text` an encoding, as Redshift chose it for tables that were made without one."""
    where = f"place = '.{stream.name.lower()}' AND name = 'text'"
    loader.ask(f"UPDATE encodings SET encoding = '{encoding}' WHERE {where}")
    assert loader.ask(f"SELECT encoding FROM encodings WHERE {where}") == [(encoding,)]
    loader.engine.statements.clear()


@pytest.mark.parametrize("encoding", ["bytedict", "text255"])
def test_a_text_whose_encoding_redshift_cannot_alter_is_replaced_by_a_longer_column(loader, stream, encoding):
    """Copy what the column has, and its comment, in one transaction. Later growths need no copy."""
    schema = stream.schemas.add(ID, {**TEXT, "doc": "what it is about"})
    stream.send(schema, {"id": 1, "text": "a"}, {"id": 2, "text": None})
    loader.load(stream)
    encode(loader, stream, encoding)
    stream.send(schema, {"id": 3, "text": "x" * 999})
    loader.load(stream)
    table = f'"{stream.name}"'
    at = loader.engine.statements.index(f'ALTER TABLE {table} ALTER COLUMN "text" TYPE varchar(1024)')
    assert loader.engine.statements[at + 1 : at + 8] == [
        "BEGIN",
        f'ALTER TABLE {table} ADD COLUMN "feed_assets widened" varchar(1024) ENCODE zstd',
        f'UPDATE {table} SET "feed_assets widened" = "text"',
        f'ALTER TABLE {table} DROP COLUMN "text"',
        f'ALTER TABLE {table} RENAME COLUMN "feed_assets widened" TO "text"',
        f"COMMENT ON COLUMN {table}.\"text\" IS 'what it is about'",
        "COMMIT",
    ]
    rows = f"SELECT id, text FROM {table} ORDER BY id"
    assert loader.ask(rows) == [(1, "a"), (2, None), (3, "x" * 999)]
    growths(loader.engine)
    stream.send(schema, {"id": 4, "text": "x" * 4000})
    loader.load(stream)
    assert growths(loader.engine) == [f'ALTER TABLE {table} ALTER COLUMN "text" TYPE varchar(4096)']
    assert len(loader.ask(rows)) == 4


def test_a_text_that_is_renamed_grows_under_the_name_that_it_has(loader, stream):
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"})
    loader.load(stream)
    stream.send(stream.schemas.add(ID, {**TEXT, "name": "title", "aliases": ["text"]}), {"id": 2, "title": "x" * 999})
    loader.load(stream)
    assert growths(loader.engine) == [f'ALTER TABLE "{stream.name}" ALTER COLUMN "text" TYPE varchar(1024)']
    assert stream.table(loader.engine) == stream.model()


def test_names_are_folded_to_lower_case(loader, stream):
    stream = Stream(loader.place.board, f"Clicks.{stream.name}")
    schema = stream.schemas.add(ID, {**TEXT, "name": "pageTitle"})
    stream.send(schema, {"id": 1, "pageTitle": "a"})
    loader.load(stream)
    stream.send(schema, {"id": 2, "pageTitle": "x" * 300})
    loader.load(stream)
    assert loader.ask(f'SELECT id, pagetitle FROM "{stream.name.lower()}" ORDER BY id') == [(1, "a"), (2, "x" * 300)]


def test_a_key_grows_in_table_and_state(loader):
    stream = Stream(loader.place.board, f"keys.{id(loader)}", "k")
    stream.key_id = stream.schemas.add({"name": "k", "type": "string"})
    schema = stream.schemas.add({"name": "k", "type": "string"})
    stream.send(schema, {"k": "a"})
    loader.load(stream)
    stream.send(schema, (None, {"k": "x" * 300}))
    loader.load(stream)
    assert loader.ask(f'SELECT k FROM feed_assets_deleted."{stream.name}"') == [("x" * 300,)]


def test_a_growth_after_which_the_loader_is_killed_is_done_once(loader, stream, monkeypatch):
    schema = stream.schemas.add(ID, TEXT)
    stream.send(schema, {"id": 1, "text": "a"})
    held = loader.load(stream)
    stream.send(schema, {"id": 2, "text": "x" * 300})

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loads.load_state, "renew", killed)
        with pytest.raises(KeyboardInterrupt):
            loader.load(stream)
    assert (len(growths(loader.engine)), loader.known(stream)) == (1, held)
    loader.load(stream)
    assert (growths(loader.engine), stream.table(loader.engine)) == ([], stream.model())


class Killed(BaseException):
    """Stands for SIGKILL: no code after it runs."""


@pytest.mark.parametrize("first", range(3))
def test_a_load_that_breaks_off_at_any_statement_is_whole_or_nothing(loader, monkeypatch, first):
    """Combine a growing text, a migration and a too long row in one load."""
    stream = Stream(loader.place.board, f"breaks.{id(loader)}", "id")
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"})
    held = loader.load(stream)
    later = stream.schemas.add(
        ID, {"name": "n", "type": "int", "default": 5}, {**TEXT, "name": "t", "aliases": ["text"]}
    )
    stream.send(later, {"id": 2, "n": 6, "t": "x" * 999}, {"id": 3, "n": 7, "t": "x" * 70_000}, (None, {"id": 4}))
    if first == 1:  # The text cannot be altered, so a longer column replaces it, in a transaction before the load's.
        encode(loader, stream, "text255")
    at, question = first, f'SELECT id, t FROM "{stream.name}" ORDER BY id'
    while loader.known(stream) == held:
        assert len(loader.ask(f'SELECT * FROM "{stream.name}"')) == 1
        count, execute = iter(range(at)), standin._Driver.execute

        def dies(self, statement, count=count, execute=execute):
            if next(count, None) is None:
                raise Killed
            return execute(self, statement)

        with monkeypatch.context() as patch:
            patch.setattr(standin._Driver, "execute", dies)
            with suppress(Killed):
                loader.load(stream)
        at += 3
    assert at > 36
    assert loader.ask(question) == [(1, "a"), (2, "x" * 999)]
    assert loader.ask(f"SELECT topic_offset FROM feed_assets.refused WHERE topic = '{stream.name}'") == [(2,)]


def test_a_chunk_that_was_changed_while_redshift_read_it_is_not_committed(loader, stream, monkeypatch):
    schema = stream.schemas.add(ID, TEXT)
    signal = stream.send(schema, {"id": 1, "text": "a"}).signal
    key, write = signal.path.removeprefix(f"{stream.board.url}/"), load_files.batches

    def changes(board, *arguments):
        board.put(key, board.get(key).replace(b'"a"', b'"b"'))
        return write(board, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(load_files, "batches", changes)
        with pytest.raises(
            ChunkBroken, match=rf"{key} has {signal.size} bytes and the ETag .*: expected {signal.size}"
        ):
            loader.load(stream)
    assert loader.known(stream).positions == {}


def test_a_chunk_that_is_gone_when_redshift_reads_it_fails_the_load(loader, stream, monkeypatch):
    schema = stream.schemas.add(ID, TEXT)
    stream.send(schema, {"id": 1, "text": "a"})
    signal, write = stream.send(schema, {"id": 2, "text": "a"}).signal, load_files.batches

    def removes(board, *arguments):
        board.delete([signal.path.removeprefix(f"{board.url}/")])
        return write(board, *arguments)

    monkeypatch.setattr(load_files, "batches", removes)
    with pytest.raises(LoadFailed, match=f"Redshift refuses: Problem reading manifest file - {signal.path}"):
        loader.load(stream)
    assert loader.known(stream).positions == {}


def test_chunks_that_are_not_on_s3_are_refused(loader, url):
    with pytest.raises(InvalidSetting, match="expected a blackboard on S3"):
        LoadContext(loader.engine, Blackboard.open("memory://"), "me", 7)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([Column(name="x" * 128, kind=Kind(name="text"))], "is not a name in Redshift: expected at most 127 bytes"),
        (
            [Column(name="A", kind=Kind(name="text")), Column(name="a", kind=Kind(name="text"))],
            "A and a are the same name",
        ),
        ([Column(name="a", kind=Kind(name="decimal", precision=39))], "expected at most 38 digits"),
        ([Column(name="a", kind=Kind(name="text"), comment="x" * 65_535)], "expected at most 65535 in Redshift"),
    ],
)
def test_a_table_that_redshift_cannot_hold_is_refused(url, columns, said):
    with pytest.raises(InvalidShape, match=said):
        Redshift("redshift://h/d", ROLE).check("t", Shape(columns=tuple(columns), key=()))


def test_a_default_that_no_text_holds_is_refused(url):
    column = Column(name="a", kind=Kind(name="text"), default="x" * 65_536)
    with pytest.raises(InvalidShape, match="the default of a has 65536 bytes"):
        Redshift("redshift://h/d", ROLE).fitted(Shape(columns=(column,), key=()), {})
