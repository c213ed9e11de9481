"""Tables of datasets: the rows of each partition's newest valid update, completely, in both kinds of warehouse."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from threading import Event
from uuid import uuid4

import pyarrow as pa
import pytest
import sqlalchemy as sa

from feed_assets.core.errors import (
    DiskFull,
    InvalidSetting,
    InvalidShape,
    LoadFailed,
    NotMigratable,
    TableBusy,
    UnreadableUpdate,
    WarehouseTaken,
    WarehouseUnavailable,
)
from feed_assets.core.feeds import Feed
from feed_assets.core.sql_text import quoted
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.warehouse import dataset as datasets
from feed_assets.warehouse import dataset_state, lease, load_state, loader, postgresql
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import (
    Dataset,
    check_table,
    load,
    parquet,
    row,
    state_rows,
    table,
    target_of,
)


def test_a_table_has_the_rows_of_each_partitions_newest_update(target, dataset):
    assert load(target, dataset) == 0
    dataset.publish("2026-01-01/men", row(1), row(2), row(3), parts=2)
    dataset.publish("2026-01-01/women", row(4))
    dataset.publish("2026-01-02/men", row(5))
    dataset.publish("2026-01-02/men", row(6), row(7))
    assert load(target, dataset) == 3
    check_table(target.engine, dataset)
    assert load(target, dataset) == 0


def test_a_late_run_reloads_its_partition_and_no_other(target, dataset):
    for day in "123":
        dataset.publish(day, row(int(day)))
    load(target, dataset)
    before = state_rows(target.engine, dataset)
    dataset.publish("2", row(2), row(20))
    assert load(target, dataset) == 1
    check_table(target.engine, dataset)
    after = state_rows(target.engine, dataset)
    assert [key for key in after if after[key] != before[key]] == ["2"]
    assert after["2"].loaded_at > before["2"].loaded_at
    assert after["2"].version


def test_an_update_that_is_made_invalid_gives_way_to_the_one_before_and_comes_back(target, dataset):
    dataset.publish("1", row(1))
    second, rows = dataset.publish("1", row(2)), dataset.rows["1"].copy()
    load(target, dataset)
    dataset.invalidate("1", second)
    dataset.look("1")
    assert load(target, dataset) == 1
    check_table(target.engine, dataset)
    dataset.board.put(f"{dataset.feed}/1/{second}/_SUCCESS", b"1")
    dataset.rows["1"] = rows
    dataset.look("1")
    assert load(target, dataset) == 1
    check_table(target.engine, dataset)


def test_a_partition_without_a_valid_update_has_no_rows(target, dataset):
    only = dataset.publish("1", row(1))
    dataset.publish("2", row(2))
    load(target, dataset)
    dataset.invalidate("1", only)
    dataset.look("1")
    assert load(target, dataset) == 1
    check_table(target.engine, dataset)
    assert state_rows(target.engine, dataset)["1"].update_id is None
    dataset.publish("1", row(3))
    assert load(target, dataset) == 1
    check_table(target.engine, dataset)


def test_an_update_lost_on_the_blackboard_is_waited_for_alone(target, dataset, monkeypatch, capsys):
    dataset.publish("1", row(1))
    load(target, dataset)
    lost = dataset.publish("1", row(2))
    dataset.publish("2", row(3))
    dataset.board.delete([f"{dataset.feed}/1/{lost}/_SUCCESS"])
    assert load(target, dataset) == 1
    assert sorted(table(target.engine, dataset, "id")) == [(1,), (3,)]
    assert f"has no valid update {lost}" in capsys.readouterr().err
    dataset.board.put(f"{dataset.feed}/1/{lost}/_SUCCESS", b"1")
    assert load(target, dataset) == 1  # The log does not have this update.
    check_table(target.engine, dataset)


def test_a_lost_update_is_checked_again_after_a_while(target, dataset):
    lost = dataset.publish("1", row(1))
    dataset.board.delete([f"{dataset.feed}/1/{lost}/_SUCCESS"])
    session = loader.LoaderSession(target, {dataset.name: dataset.published}, "the test")
    with session._begun():
        (made,) = session._tables.values()
        made.look(0.0)
        dataset.board.put(f"{dataset.feed}/1/{lost}/_SUCCESS", b"1")
        made.look(datasets.AGAIN_SECONDS - 1)
        assert made.loads == 0
        made.look(datasets.AGAIN_SECONDS)
        assert made.loads == 1
    check_table(target.engine, dataset)


def test_the_cost_of_a_load_depends_only_on_changed_partitions(target, dataset, monkeypatch):
    """Change one of many partitions: one row is compared, and one update loaded."""
    for number in range(30):
        dataset.publish(f"{number:02}", row(number))
    load(target, dataset)
    asked = []
    compare = dataset_state.held
    monkeypatch.setattr(
        dataset_state, "held", lambda connection, name, keys: asked.append([*keys]) or compare(connection, name, keys)
    )
    monkeypatch.setattr(Blackboard, "children", lambda *_: pytest.fail("a listing of partitions"))
    assert load(target, dataset) == 0
    assert asked == []
    monkeypatch.undo()
    dataset.publish("07", row(70))
    monkeypatch.setattr(
        dataset_state, "held", lambda connection, name, keys: asked.append([*keys]) or compare(connection, name, keys)
    )
    assert load(target, dataset) == 1
    assert asked == [["07"], ["07"]]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_more_changes_than_one_page_are_all_loaded(target, dataset, monkeypatch):
    monkeypatch.setattr(datasets, "CHANGES", 3)
    for number in range(8):
        dataset.publish(str(number), row(number))
    assert load(target, dataset) == 8
    check_table(target.engine, dataset)


def test_a_new_ledger_is_compared_without_reloading_existing_updates(target, dataset, tmp_path, empty_ledger):
    for number in range(3):
        dataset.publish(str(number), row(number))
    load(target, dataset)
    other = tmp_path / "other.db"
    other.write_bytes(empty_ledger.read_bytes())
    dataset.ledger = open_ledger(f"sqlite:///{other}")
    dataset.now += timedelta(hours=1)
    dataset.publish("1", row(10))  # Its number is one that the mark has passed.
    for key in ("0", "2"):
        dataset.look(key)
    assert load(target, dataset) == 1
    check_table(target.engine, dataset)
    dataset.ledger.engine.dispose()


TYPES = pa.schema(
    [
        ("small", pa.int16()),
        ("number", pa.int64()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("sure", pa.bool_()),
        ("money", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("list", pa.list_(pa.float64())),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("record", pa.struct([("a", pa.list_(pa.struct([("b", pa.decimal128(10, 2))]))), ("c", pa.binary())])),
    ]
)
FULL = {
    "small": -3,
    "number": 1 << 62,
    "real": 0.5,
    "double": 1e300,
    "sure": True,
    "money": Decimal("1234567890123456789012345678.0123456789"),
    "text": 'a "quoted", text\r\nof lines \\N',
    "bytes": b"\0\xff",
    "day": date(1969, 12, 31),
    "at": datetime(2026, 1, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "local": datetime(2026, 1, 31, 23, 59, 59, 5, UTC).replace(tzinfo=None),
    "list": [1.5, float("inf"), None],
    "map": {"k\n": 1, "": None},
    "record": {"a": [{"b": Decimal("1.10")}, None], "c": b"\xff"},
}


def test_every_type_of_a_dataset_survives_a_load(target, dataset):
    others = {"double": float("-inf"), "text": "\\N", "list": [], "map": {}, "record": {"a": None, "c": None}}
    texts = [{"text": each} for each in ("", ",", "é\U0001f600", "null", "'; DROP TABLE x; --")]
    dataset.publish("1", FULL, others, *texts, dict.fromkeys(TYPES.names), schema=TYPES)
    assert load(target, dataset) == 1
    columns = ", ".join(map(quoted, TYPES.names[:11]))
    found = table(target.engine, dataset, columns)
    rows = [FULL, others, *texts, {}]
    assert found == sorted((tuple(each.get(name) for name in TYPES.names[:11]) for each in rows), key=repr)
    nested = 'CAST("list" AS text), CAST("map" AS text), CAST("record" AS text)'
    said = {tuple("".join((each or "-").split(" ")) for each in row) for row in table(target.engine, dataset, nested)}
    assert said == {
        ('[1.5,"inf",null]', '{"k\\n":1,"":null}', '{"a":[{"b":"1.10"},null],"c":"ff"}'),
        ("[]", "{}", '{"a":null,"c":null}'),
        ("-", "-", "-"),
    } or said == {
        ('[1.5,"inf",null]', '{"":null,"k\\n":1}', '{"a":[{"b":"1.10"},null],"c":"ff"}'),
        ("[]", "{}", '{"a":null,"c":null}'),
        ("-", "-", "-"),
    }


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"n": 1}, {"n": 2.5}, [1.0, 2.5]),
        ({"n": Decimal("1.5")}, {"n": Decimal("1.2567")}, [Decimal("1.5000"), Decimal("1.2567")]),
        ({"n": 1}, {"n": None, "m": 2}, [1, None]),
    ],
)
def test_files_whose_types_differ_lose_nothing(target, dataset, one, other, expected):
    dataset.publish("2026-01-01", one, other, parts=2)
    load(target, dataset)
    with opened(target.engine) as connection:
        found = connection.execute(f'SELECT n FROM "{dataset.name}"')
        columns = connection.execute(f'SELECT * FROM "{dataset.name}" LIMIT 1')
    assert sorted([each for (each,) in found], key=str) == sorted(expected, key=str)
    assert len(columns[0]) == len({*one, *other}) + 1


def test_an_update_without_rows_and_one_without_files(target, dataset):
    dataset.publish("1", schema=TYPES)
    dataset.publish("2", parts=0)
    assert load(target, dataset) == 2
    assert table(target.engine, dataset) == []
    dataset.publish("1", FULL, schema=TYPES)
    dataset.publish("2", FULL, schema=TYPES)
    assert load(target, dataset) == 2
    assert len(table(target.engine, dataset)) == 2
    dataset.publish("1", schema=TYPES)
    dataset.publish("2", parts=0)
    assert load(target, dataset) == 2
    assert table(target.engine, dataset) == []


def test_a_schema_gets_wider_and_an_older_one_still_loads(target, dataset):
    narrow = pa.schema([("id", pa.int32()), ("text", pa.string())])
    wide = pa.schema([("id", pa.int64()), ("text", pa.string()), ("more", pa.float64())])
    first = dataset.publish("1", row(1), schema=narrow)
    dataset.publish("2", row(2), schema=narrow)
    load(target, dataset)
    last = dataset.publish("1", row(1 << 40, more=0.5), schema=wide)
    assert load(target, dataset) == 1
    assert table(target.engine, dataset, "id, text, more, _partition") == [
        (1 << 40, f"text {1 << 40}", 0.5, "1"),
        (2, "text 2", None, "2"),
    ]
    dataset.invalidate("1", last)
    assert dataset.look("1").id == first
    assert load(target, dataset) == 1
    assert table(target.engine, dataset, "id, more, _partition") == [(1, None, "1"), (2, None, "2")]


def test_a_column_stays_while_any_partition_has_it(target, dataset):
    first = dataset.publish("1", {"id": 1, "old": "a"})
    dataset.publish("2", {"id": 2, "old": "b"})
    load(target, dataset)
    last = dataset.publish("1", {"id": 1, "new": 0.5})
    load(target, dataset)
    assert table(target.engine, dataset, "id, old, new, _partition") == [(1, None, 0.5, "1"), (2, "b", None, "2")]
    dataset.invalidate("1", last)
    assert dataset.look("1").id == first
    load(target, dataset)
    assert table(target.engine, dataset, "id, old, new, _partition") == [(1, "a", None, "1"), (2, "b", None, "2")]


def test_two_partitions_of_one_second_keep_all_their_columns(target, dataset):
    dataset.publish("2", {"id": 2, "late": "b"})
    dataset.now -= timedelta(seconds=1)
    dataset.publish("1", {"id": 1, "more": 1})
    assert load(target, dataset) == 2
    assert table(target.engine, dataset, "id, late, more") == [(1, None, 1), (2, "b", None)]


def test_a_schema_that_would_lose_data_stops_only_its_table(target, dataset, ledger):
    other = Dataset(dataset.board, ledger, Feed.parse(f"ads/other_{uuid4().hex[:12]}/v1.0"), dataset.now)
    dataset.publish("1", row(1))
    load(target, dataset)
    dataset.publish("1", {"id": 0.5})
    other.publish("1", row(1))
    with pytest.raises(
        NotMigratable,
        match=r"id was bigint and is double, which would lose data\. The table is \(id bigint, text text\), the",
    ):
        load(target, dataset, other)
    check_table(target.engine, other)
    assert table(target.engine, dataset) == [(1, "text 1", "1")]
    with opened(target.engine) as connection:
        (problem,) = [each.problem for each in load_state.tables(connection) if each.topic == dataset.name]
    assert "anew by `feed-assets warehouse reset`" in problem
    dataset.publish("1", row(2))
    assert load(target, dataset) == 1
    check_table(target.engine, dataset)


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"no parquet", UnreadableUpdate, "cannot be read as Parquet"),
        (parquet([{"_partition": 1}]), InvalidShape, "there is a column _partition: that is a column of every table"),
    ],
)
@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_files_that_are_no_table_are_refused(target, dataset, content, error, said, monkeypatch):
    monkeypatch.setattr("feed_assets_tests.support.warehouse_datasets.parquet", lambda *_: content)
    dataset.publish("1", row(1))
    with pytest.raises(error, match=said):
        load(target, dataset)


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_a_warehouse_that_reads_only_chunks_refuses_datasets(target, dataset, monkeypatch):
    monkeypatch.setattr(target.engine, "reads_chunks", True)
    with pytest.raises(InvalidSetting, match=f"{dataset.name} is a dataset, but the warehouse main reads only chunks"):
        load(target, dataset)


def test_a_table_that_cannot_begin_stops_alone(target, dataset, ledger, monkeypatch):
    other = Dataset(dataset.board, ledger, Feed.parse(f"ads/other_{uuid4().hex[:12]}/v1.0"))
    for each in (other, dataset):
        each.publish("1", row(1))
    follower = loader.follower

    def begun(*arguments):
        if other.name in arguments:
            raise InvalidSetting("it cannot begin")
        return follower(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loader, "follower", begun)
        with pytest.raises(InvalidSetting, match="it cannot begin"):
            load(target, other, dataset)
    check_table(target.engine, dataset)
    with opened(target.engine) as connection:
        problems = {each.topic: each.problem for each in load_state.tables(connection)}
    assert problems[other.name] == "it cannot begin"


def test_a_reason_that_cannot_be_kept_stops_no_other_table(target, dataset, ledger, monkeypatch, capsys):
    other = Dataset(dataset.board, ledger, Feed.parse(f"ads/other_{uuid4().hex[:12]}/v1.0"))
    other.publish("1", {"_partition": 1})
    dataset.publish("1", row(1))

    def refused(*_):
        raise LoadFailed("it is too long")

    monkeypatch.setattr(load_state, "note", refused)
    with pytest.raises(InvalidShape):
        load(target, other, dataset)
    check_table(target.engine, dataset)
    assert f"could not record why {other.name} has stopped: it is too long" in capsys.readouterr().err


@pytest.mark.parametrize("at", ["follower", "look"])
def test_the_lease_is_free_after_any_end_of_a_loader(target, dataset, monkeypatch, at):
    def fails(*_):
        raise WarehouseUnavailable("the first error")

    dataset.publish("1", row(1))
    with monkeypatch.context() as patch:
        patch.setattr(*((loader, "follower") if at == "follower" else (datasets.DatasetTable, "load_all")), fails)
        with pytest.raises(WarehouseUnavailable, match="the first error"):
            load(target, dataset)
    load(target, dataset)
    check_table(target.engine, dataset)


def test_a_lease_that_cannot_be_given_back_hides_no_error(target, dataset, monkeypatch, capsys):
    def fails(_, said="the first error"):
        raise WarehouseUnavailable(said)

    monkeypatch.setattr(datasets.DatasetTable, "load_all", fails)
    monkeypatch.setattr(load_state, "release", lambda connection, _: fails(connection, "the second"))
    with pytest.raises(WarehouseUnavailable, match="the first error"):
        load(target, dataset)
    assert "must wait 30 s, because the lease could not be released: the second" in capsys.readouterr().err


def test_a_lease_is_renewed_while_an_update_is_copied(target, dataset, monkeypatch):
    def seen():
        with opened(target.engine) as connection:
            return connection.execute("SELECT seen_at FROM feed_assets.lease")

    def slow(*arguments):
        before = seen()
        wait_until(lambda: seen() > before, "a sign of life", 30)
        download(*arguments)

    download = read.download
    dataset.publish("1", row(1))
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(read, "download", slow)
    load(target, dataset)
    check_table(target.engine, dataset)


def test_load_of_a_dataset_waits_for_a_full_disk(target, dataset, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    dataset.publish("1", row(1))
    with monkeypatch.context() as patch:
        patch.setattr(read, "download", full)
        with pytest.raises(DiskFull, match=r"cannot keep the copies of a load .*: No space left on device"):
            load(target, dataset)
    load(target, dataset)
    check_table(target.engine, dataset)


def test_a_second_dataset_loader_is_refused(target, dataset):
    dataset.publish("1", row(1))
    with opened(target.engine) as connection:
        load_state.take(connection, target.engine, "another", 30)
    with pytest.raises(WarehouseTaken, match="another loads this warehouse"):
        load(target, dataset)
    with opened(target.engine) as connection:
        load_state.release(connection, "another")


class Turns(Event):
    """Stop event whose waits execute a function each, instead of waiting. The last one sets it."""

    def __init__(self, *turns) -> None:
        super().__init__()
        self._turns = iter(turns)

    def wait(self, timeout=None) -> bool:
        next(self._turns, self.set)()
        return self.is_set()


def test_a_loader_started_again_waits_for_the_lease_of_the_killed_one(target, dataset, monkeypatch, capsys):
    """A supervisor starts it at once. It ended with an error, so that a few restarts within 30 s were a failure."""
    dataset.publish("1", row(1))
    with opened(target.engine) as connection:
        load_state.take(connection, target.engine, "the killed one", 30)
    waits = []
    over = partial(monkeypatch.setattr, loader, "LEASE_SECONDS", 0)
    loader.run(
        target, {dataset.name: dataset.published}, Turns(partial(waits.append, 1), partial(waits.append, 2), over)
    )
    check_table(target.engine, dataset)
    assert waits == [1, 2]
    assert capsys.readouterr().err.count("waits for the lease of a loader that may be gone: the killed one") == 1


def test_a_loader_does_not_wait_for_the_lease_of_one_that_lives(target, dataset):
    dataset.publish("1", row(1))

    def renew() -> None:
        with opened(target.engine) as connection:
            load_state.renew(connection, target.engine, "another")

    with opened(target.engine) as connection:
        load_state.take(connection, target.engine, "another", 30)
    with pytest.raises(WarehouseTaken, match="another loads this warehouse"):
        loader.run(target, {dataset.name: dataset.published}, Turns(renew))
    assert state_rows(target.engine, dataset) == {}


def test_a_loader_that_slept_through_its_lease_changes_nothing(target, dataset, monkeypatch):
    dataset.publish("1", row(1))
    renew = load_state.renew

    def taken(connection, engine, holder):
        connection.execute("UPDATE feed_assets.lease SET holder = 'another'")
        renew(connection, engine, holder)

    monkeypatch.setattr(load_state, "renew", taken)
    with pytest.raises(WarehouseTaken, match="another loader has taken over this warehouse"):
        load(target, dataset)
    assert state_rows(target.engine, dataset) == {}


def test_a_table_that_a_reader_holds_waits_alone(local_board, ledger, postgresql_url, monkeypatch):
    monkeypatch.setattr(postgresql, "WAIT_SECONDS", 0.2)
    held, free = (Dataset(local_board, ledger, Feed.parse(f"ads/{name}/v1.0")) for name in ("a", "b"))
    target = target_of(postgresql_url)
    for each in (held, free):
        each.publish("1", row(1))
    load(target, held, free)
    held.publish("1", row(1, more="x"))
    free.publish("1", row(2))
    with sa.create_engine(postgresql_url, poolclass=sa.NullPool).connect() as reader:
        reader.execute(sa.text(f"SELECT * FROM {quoted(held.name)}"))
        with pytest.raises(TableBusy, match=r"the lock was not free within 0\.2 s: .* in a transaction: end it"):
            load(target, held, free)
        check_table(target.engine, free)
        assert len(state_rows(target.engine, held)) == 1
    assert load(target, held, free) == 1
    assert table(target.engine, held, "id, text, more") == [(1, "text 1", "x")]


def test_a_service_tries_a_table_again_that_was_held(local_board, ledger, postgresql_url, monkeypatch):
    monkeypatch.setattr(postgresql, "WAIT_SECONDS", 0.2)
    held, free = (Dataset(local_board, ledger, Feed.parse(f"ads/{name}/v1.0")) for name in ("c", "d"))
    target, now = target_of(postgresql_url), [0.0]
    for each in (held, free):
        each.publish("1", row(1))
    session = loader.LoaderSession(target, {each.name: each.published for each in (held, free)}, "me", lambda: now[0])
    with session._begun():
        session._look()
        held.publish("1", row(1, more="x"))
        with sa.create_engine(postgresql_url, poolclass=sa.NullPool).connect() as reader:
            reader.execute(sa.text(f"SELECT * FROM {quoted(held.name)}"))
            now[0] += 60
            session._look()
            assert list(session._busy) == [held.name]
            free.publish("1", row(2))
            now[0] += loader.AGAIN_SECONDS - 1
            session._look()
            check_table(target.engine, free)
        now[0] += 1
        session._look()
    assert session._busy == {}
    assert table(target.engine, held, "id, text, more") == [(1, "text 1", "x")]
