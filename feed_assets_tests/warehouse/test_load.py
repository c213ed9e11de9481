"""Chunks become rows of a table, alike in each warehouse."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from feed_assets.core.chunks import ending_of
from feed_assets.core.errors import (
    ChunkBroken,
    DiskFull,
    KeyStrayed,
    LoadFailed,
    OffsetsMissing,
    WarehouseTaken,
    WarehouseUnavailable,
)
from feed_assets.warehouse import load_state
from feed_assets.warehouse.duck import opened_at
from feed_assets.warehouse.load import load
from feed_assets.warehouse.load_groups import runs
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream

FORMATS = ("csv", "parquet")


def row(number, text=None):
    return {"id": number, "text": text}


@pytest.fixture
def schema(stream):
    return stream.schemas.add(ID, TEXT)


def test_a_table_has_the_newest_row_of_each_key(loader, stream, schema):
    stream.send(schema, row(1, "a"), row(2, 'é, \n"b"'), row(1, "c"))
    stream.send(schema, ("create", row(3)), ("refresh", row(2, "\\N")), ("update", row(1, "")))
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model() == [(1, "", 0, 5), (2, "\\N", 0, 4), (3, None, 0, 3)]


@pytest.mark.parametrize("name", ["rowid", "RowId"])
def test_a_column_that_hides_duckdbs_own_leaves_no_older_row_in_a_table(loader, stream, name):
    schema = stream.schemas.add(ID, TEXT, {"name": name, "type": ["null", "long"], "default": None})
    for number in (7, None):
        stream.send(schema, *({"id": 1, "text": text, name: number} for text in "ab"))
        loader.load(stream)
        assert stream.table(loader.engine) == stream.model()
    stream.send(schema, {"id": 1, "text": "c", name: 7}, ("delete", {"id": 1, "text": "c", name: 8}))
    loader.load(stream)
    assert stream.table(loader.engine) == []


def test_a_delete_removes_and_a_later_row_brings_back(loader, stream, schema):
    stream.send(schema, row(1), row(2), row(3), ("delete", row(1)))
    stream.send(schema, (None, row(2)), row(3, "again"), row(4), (None, row(4)))
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()
    stream.send(schema, row(2, "back"), (None, row(9)))
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()
    assert loader.ask(f'SELECT id, _offset FROM feed_assets_deleted."{stream.name}" ORDER BY id') == [
        (1, 3), (4, 7), (9, 9),
    ]  # fmt: skip


def test_chunks_of_tombstones_alone_have_no_schema(loader, stream, schema):
    assert stream.send(schema, (None, row(7))).signal.schema_id is None
    loader.load(stream)
    assert loader.known(stream).shape is None
    stream.send(schema, row(1), row(2))
    stream.send(schema, (None, row(1)))
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model() == [(2, None, 0, 2)]
    assert loader.known(stream).positions[0].next_offset == 4


def test_packed_chunks_quiet_ranges_and_partitions(loader, schema, stream):
    packed = Stream(stream.board, f"{stream.name}.gz", gzip=True)
    schema = packed.schemas.add(ID, TEXT)
    packed.send(schema, row(1), row(2), partition=0)
    packed.send(schema, row(11), row(12, "x"), partition=1, skips=5)
    packed.quiet(10, partition=1)
    packed.send(schema, row(11, "y"), partition=1)
    known = loader.load(packed)
    assert packed.table(loader.engine) == packed.model()
    assert {number: each.next_offset for number, each in known.positions.items()} == {0: 2, 1: 18}
    assert loader.known(packed) == known


def test_a_repeated_signal_changes_nothing(loader, stream, schema):
    first = stream.send(schema, row(1, "a"), row(2))
    stream.send(schema, row(1, "b"), (None, row(2)))
    known = loader.load(stream)
    assert loader.load(stream, first) == loader.known(stream) == known
    assert stream.table(loader.engine) == stream.model()


def test_an_older_offset_never_replaces_a_newer_one_without_positions(loader, stream, schema):
    old = stream.send(schema, row(1, "a"), row(2, "a"), row(3, "a"))
    stream.send(schema, row(1, "b"), (None, row(2)))
    loader.load(stream)
    loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
    loader.load(stream, old)
    assert stream.table(loader.engine) == stream.model()


def test_deleted_keys_are_forgotten_after_their_time(loader, stream, schema):
    stream.send(schema, row(1), (None, row(1)))
    loader.load(stream)
    deleted = f'feed_assets_deleted."{stream.name}"'
    loader.ask(f"UPDATE {deleted} SET _deleted_at = _deleted_at - INTERVAL '6 days'")
    stream.send(schema, row(2))
    loader.load(stream)
    assert loader.ask(f"SELECT count(*) FROM {deleted}") == [(1,)]
    loader.ask(f"UPDATE {deleted} SET _deleted_at = _deleted_at - INTERVAL '2 days'")
    stream.send(schema, row(3))
    loader.load(stream)
    assert loader.ask(f"SELECT count(*) FROM {deleted}") == [(0,)]


@pytest.mark.parametrize("before", [[], [row(1)], [row(1), (None, row(1))]])
def test_a_key_from_another_partition_is_an_error_and_nothing_is_loaded(loader, stream, schema, before):
    if before:
        stream.send(schema, *before)
        loader.load(stream)
    held = loader.known(stream)
    stream.send(schema, row(1), row(2), partition=1)
    if not before:
        stream.send(schema, row(1), partition=0)
    with pytest.raises(KeyStrayed, match="the key id 1 comes from partitions 0 and 1"):
        loader.load(stream)
    known = loader.known(stream)
    assert known.positions == held.positions
    assert known == held or loader.engine.ddl_commits  # In Snowflake the table is made before the transaction.


def test_a_long_key_from_another_partition_is_named_in_short(loader, stream):
    """The loader repeats the error each minute. A producer chooses the key."""
    stream.topic = stream.topic.model_copy(update={"key": ("text",)})
    stream.key_id = schema = stream.schemas.add({"name": "text", "type": "string"})
    for partition in (0, 1):
        stream.send(schema, {"text": "x" * 2_500}, partition=partition)
    with pytest.raises(KeyStrayed, match=r"the key text 'xx.+ comes from partitions 0 and 1") as error:
        loader.load(stream)
    assert len(str(error.value)) < 2_000


@pytest.mark.parametrize("replayed", [1, 2])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_key_from_another_partition_is_an_error_beside_a_row_that_is_older(
    loader, stream, schema, replayed, is_first
):
    """Report the stray row, though one search finds both."""
    old, stray = stream.send(schema, row(replayed)), 3 - replayed
    stream.send(schema, row(replayed, "newer"), row(stray))
    loader.load(stream)
    loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
    before, other = stream.table(loader.engine), stream.send(schema, row(stray), partition=1)
    with pytest.raises(KeyStrayed, match=f"the key id {stray} comes from partitions 0 and 1"):
        loader.load(stream, *((old, other) if is_first else (other, old)))
    assert stream.table(loader.engine) == before


def test_a_hole_between_signals_is_an_error(loader, stream, schema):
    stream.send(schema, row(1))
    loader.load(stream)
    stream.send(schema, row(2))
    with pytest.raises(OffsetsMissing, match=r"/0 continues at offset 2: expected 1"):
        loader.load(stream, stream.send(schema, row(3)))


def test_a_first_signal_may_begin_anywhere(loader, stream, schema):
    stream.quiet(100)
    loader.load(stream, stream.send(schema, row(1)))
    assert stream.table(loader.engine) == stream.model()


def test_a_chunk_that_overlaps_what_was_loaded_adds_what_is_new(loader, stream, schema):
    stream.send(schema, row(1, "a"), (None, row(2)))
    loader.load(stream)
    again = Stream(stream.board, stream.name)
    again.schemas.known.update(stream.schemas.known)
    again.send(schema, row(2, "old"), (None, row(2)), row(3, "new"))
    again.rows[(1,)] = (1, "a", 0, 0)
    loader.load(again)
    assert again.table(loader.engine) == again.model()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda board, key: board.delete([key]), "is missing: expected"),
        (lambda board, key: board.put(key, b"x" + (board.get(key) or b"")[1:]), "the digest"),
        (lambda board, key: board.put(key, b""), "has 0 bytes"),
    ],
)
def test_a_chunk_that_is_not_as_signalled_fails_the_load(loader, stream, schema, harm, said):
    stream.send(schema, row(1))
    signal = stream.send(schema, row(2)).signal
    harm(stream.board, signal.path.removeprefix(f"{stream.board.url}/"))
    with pytest.raises(ChunkBroken, match=said):
        loader.load(stream)
    assert loader.known(stream).positions == {}


def test_a_chunk_elsewhere_on_the_blackboard_is_not_read(loader, stream, schema):
    sent = stream.send(schema, row(1))
    url, key = stream.board.url, sent.signal.path.removeprefix(f"{stream.board.url}/")
    ending = ending_of(key)
    stream.board.put(f"secret{ending}", stream.board.get(key) or b"")
    for path in (
        f"{url}/secret{ending}",
        f"{url}/chunks/../secret{ending}",
        f"{url}/x/../{key}",
        f"/etc/passwd{ending}",
    ):
        with pytest.raises(ChunkBroken, match=f"expected .* at {url}/{key}"):
            loader.load(stream, sent._replace(signal=replace(sent.signal, path=path)))


@pytest.mark.parametrize("at", ["pathlib.Path.open", "feed_assets.warehouse.load_files.TemporaryDirectory"])
def test_load_of_a_topic_waits_for_a_full_disk(loader, stream, schema, monkeypatch, at):
    stream.send(schema, row(1))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(at, full)
        with pytest.raises(DiskFull, match=r"cannot keep the copies of a load .*: No space left on device"):
            loader.load(stream)
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_loader_needs_only_the_documented_rights(loader, stream, schema, url):
    """Keep existing state tables, since creating them needs `CREATE` on the database."""
    role = f"loader_{uuid4().hex[:8]}"
    for each in (
        f"CREATE ROLE {role}",
        f"GRANT CREATE ON SCHEMA public, feed_assets_deleted TO {role}",
        f"GRANT USAGE ON SCHEMA feed_assets, feed_assets_deleted TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA feed_assets TO {role}",
    ):
        loader.ask(each)
    loader.place = replace(loader.place, engine=engine_of(f"{url}{'&' if '?' in url else '?'}options=-crole%3D{role}"))
    stream.send(schema, row(1), (None, row(2)))
    with opened(loader.place.engine) as connection:
        load_state.prepare(connection, loader.place.engine)
        assert connection.execute("SELECT current_user") == [(role,)]
    known = load_state.TopicState()
    load(loader.place, stream.name, known, [*runs(stream.signals)], stream.shape)
    with opened(loader.engine) as connection:
        assert connection.execute(f'SELECT count(*) FROM "{stream.name}"') == [(1,)]


def test_an_unavailable_server_is_reported_without_the_password():
    with pytest.raises(WarehouseUnavailable) as said, opened(engine_of("postgresql://me:planted@127.0.0.1:1/d")):
        pass
    assert "planted" not in str(said.value)


def test_a_file_that_somebody_has_open_is_waited_for(tmp_path):
    url = f"duckdb://{tmp_path}/held.db"
    program = f"import duckdb; held = duckdb.connect('{tmp_path}/held.db'); print(1, flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as holder:
        assert holder.stdout.readline()
        with (
            pytest.raises(WarehouseUnavailable, match="the other process that has the file open"),
            opened(engine_of(url)),
        ):
            pass
        holder.communicate(b"\n")
    with opened(engine_of(url)) as connection:
        assert connection.execute("SELECT 1") == [(1,)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_duckdb_downloads_no_extension(loader):
    setting = "SELECT current_setting('autoinstall_known_extensions')"
    assert loader.ask(setting) == [(False,)]
    with opened_at(":memory:") as opened:
        assert opened.execute(setting).fetchall() == [(False,)]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_postgresql_undoes_a_transaction_that_nobody_goes_on_with(loader):
    assert loader.ask("SHOW idle_in_transaction_session_timeout") == [("30s",)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_threads_of_a_process_take_turns_with_a_file(loader):
    inside, most = list[None](), list[int]()

    def ask(_: int) -> None:
        with opened(loader.engine) as connection:
            inside.append(None)
            most.append(len(inside))
            connection.execute("SELECT 1")
            inside.pop()

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(ask, range(40))] == [None] * 40
    assert max(most) == 1


def test_a_table_made_by_others_is_left_alone(loader, stream, schema):
    loader.ask(f'CREATE TABLE "{stream.name}" (mine integer)')
    stream.send(schema, row(1))
    with pytest.raises(LoadFailed, match="already exists"):
        loader.load(stream)


@pytest.mark.parametrize("url", ["duckdb", "postgresql", "redshift"], indirect=True)  # fakesnow: "already exists"
def test_names_are_nothing_but_names(loader):
    name = f"\"; drop table x{uuid4().hex[:8]}; --'"
    stream = Stream(loader.place.board, name, "id")
    schema = stream.schemas.add(ID, {**TEXT, "name": "select", "doc": 'it\'s "so"; drop'})
    stream.send(schema, {"id": 1, "select": "'); drop table y; --"}, (None, {"id": 2}))
    stream.send(schema, {"id": 1, "select": "x"})
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()


_COMMENT = (
    "SELECT col_description(c.oid, a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
    "WHERE c.relname = '{}' AND a.attname = '{}'"
)


def comment_of(loader, stream, column):
    question = {
        "DuckDB": "SELECT comment FROM duckdb_columns() WHERE table_name = '{}' AND column_name = '{}'",
    }.get(type(loader.engine).__name__, _COMMENT)
    [[found]] = loader.ask(question.format(stream.name, column))
    return found


@pytest.mark.parametrize("url", ["duckdb", "postgresql", "redshift"], indirect=True)  # fakesnow has no comments.
def test_comments_come_from_docs(loader, stream):
    schema = stream.schemas.add(ID, {**TEXT, "doc": "what it's about"})
    stream.send(schema, row(1))
    loader.load(stream)
    assert comment_of(loader, stream, "text") == "what it's about"


@pytest.mark.parametrize("url", ["duckdb", "postgresql", "redshift"], indirect=True)  # fakesnow has no comments.
def test_a_column_that_is_added_has_its_comment(loader, stream):
    stream.send(stream.schemas.add(ID), {"id": 1})
    loader.load(stream)
    stream.send(stream.schemas.add(ID, {**TEXT, "doc": "what it's about"}), row(2))
    loader.load(stream)
    assert comment_of(loader, stream, "text") == "what it's about"


def test_each_load_has_a_manifest_of_its_own(loader, stream, schema):
    signal = stream.send(schema, row(1)).signal
    stream.quiet(1)
    loader.load(stream)
    (file,) = stream.board.files(f"manifests/{stream.name}")
    expected = f'"url": "{signal.path}",\n   "mandatory": true,\n   "meta": {{\n    "content_length": {signal.size}\n'
    assert expected in (stream.board.get(file.key) or b"").decode()


def test_a_repeated_load_has_another_manifest(loader, stream, schema):
    """Use a new key for each manifest: a COPY under way could read that of the next load."""

    def manifests():
        return {each.key: stream.board.get(each.key) for each in stream.board.files(f"manifests/{stream.name}")}

    stream.send(schema, row(1))
    loader.load(stream)
    first = manifests()
    loader.load(stream, *stream.signals)
    found = manifests()
    assert (len(first), len(found)) == (1, 2)
    assert first.items() <= found.items()


def test_load_leaves_a_table_that_another_load_changed(loader, stream, schema):
    stream.send(schema, row(1, "a"))
    stale = loader.known(stream)
    (first,) = runs(stream.signals)
    stream.send(schema, row(1, "b"))
    known = loader.load(stream)
    with pytest.raises(WarehouseUnavailable, match="was loaded by another process meanwhile"):
        load(loader.place, stream.name, stale, [first], stream.shape)
    assert loader.known(stream) == known


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_load_waits_for_a_commit_under_way(loader, stream, schema):
    """Imitate a connection that broke at the COMMIT: the server may still commit while the next session begins."""
    stream.send(schema, row(1))
    known, (run,) = loader.known(stream), runs(stream.signals)
    with ThreadPoolExecutor() as pool, opened(loader.engine) as other:
        other.execute("BEGIN")
        load_state.renew(other, loader.engine, loader.place.holder)
        waits = pool.submit(load, loader.place, stream.name, known, [run], stream.shape)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_until(lambda: bool(loader.ask(waiting)), "the next session to wait")
        load_state.write(
            other, loader.engine, stream.name, known, load_state.TopicState(positions={0: load_state.Position(1, 1)})
        )
        other.execute("COMMIT")
        with pytest.raises(WarehouseUnavailable, match="was loaded by another process meanwhile"):
            waits.result(60)


def test_a_position_says_when_its_own_partition_was_loaded(loader, stream, schema):
    stream.send(schema, row(1))
    loader.load(stream)
    moments = f"SELECT topic_partition, loaded_at FROM feed_assets.positions WHERE topic = '{stream.name}'"
    first = dict(loader.ask(moments))
    stream.send(schema, row(2), partition=1)
    loader.load(stream)
    found = dict(loader.ask(moments))
    assert found[0] == first[0] < found[1]


def test_a_loader_without_its_lease_loads_nothing(loader, stream, schema):
    stream.send(schema, row(1))
    with opened(loader.engine) as connection:
        with pytest.raises(WarehouseTaken, match="the test loads this warehouse"):
            load_state.take(connection, loader.engine, "another", 30)
        connection.execute("UPDATE feed_assets.lease SET seen_at = seen_at - INTERVAL '31 seconds'")
        load_state.take(connection, loader.engine, "another", 30)
    with pytest.raises(WarehouseTaken, match="has taken over this warehouse"):
        loader.load(stream)
    assert loader.known(stream).positions == {}
    with opened(loader.engine) as connection:
        load_state.release(connection, "the test")
        load_state.release(connection, "another")
        load_state.take(connection, loader.engine, "the third", 30)
