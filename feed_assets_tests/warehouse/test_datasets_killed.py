"""A dataset loader killed at any statement, and a COMMIT without an answer: the table has old rows or new ones."""

from random import Random
from threading import Event
from uuid import uuid4

import psycopg
import pytest

from feed_assets.core.errors import WarehouseUnavailable
from feed_assets.core.feeds import Feed
from feed_assets.warehouse import load_state, loader
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.forked_processes import Forks
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import Dataset, check_table, load, state_rows, table, target_of
from feed_assets_tests.warehouse.lives import dataset_killed_at

KILLED = -9
STATEMENTS = 60
"""Number of statements, usually more than all loads of one process have."""


@pytest.fixture
def target(url, monkeypatch):
    monkeypatch.setattr(loader, "LEASE_SECONDS", 0.0)
    made = target_of(url)
    with opened(made.engine) as connection:
        load_state.prepare(connection, made.engine)
    yield made
    with opened(made.engine) as connection:
        connection.execute("DELETE FROM feed_assets.lease")


@pytest.fixture
def dataset(ledger, local_board) -> Dataset:
    return Dataset(local_board, ledger, Feed.parse(f"ads/ctr_{uuid4().hex[:12]}/v1.0"))


def life(
    dataset: Dataset, url: str, fork: Forks, at: int | str, *, is_after: bool = False, is_wrong: bool = False
) -> int:
    ledger = dataset.ledger.engine.url.render_as_string(hide_password=False)
    return fork.run(dataset_killed_at, url, dataset.board.url, ledger, dataset.name, at, is_after, is_wrong)


def is_what_its_state_says(target, dataset: Dataset) -> None:
    """Check that each partition has exactly the rows of the update named in the state tables."""
    found = {key: each.update_id for key, each in state_rows(target.engine, dataset).items() if each.update_id}
    expected = {(each["id"], key) for key, update_id in found.items() for each in dataset.rows[key][update_id]}
    there = {row[:2] for row in table(target.engine, dataset, "id, _partition")} if found else set()
    assert there == expected, "the table is not what its state tables say"


def publish(dataset: Dataset, chance: Random) -> None:
    """Publish some updates; now and then with a wider schema, or one that becomes invalid but stays in `rows`."""
    for _ in range(chance.randint(1, 3)):
        more = {f"x{number}": chance.random() for number in range(len(dataset.rows) // 3)}
        rows = [{"id": chance.randint(1, 1 << 40), **more} for _ in range(chance.randint(0, 4))] or [{"id": 0, **more}]
        dataset.publish(str(chance.randint(0, 5)), *rows)


@pytest.mark.parametrize("kills", seeds(12, 200))
def test_load_of_a_dataset_may_be_killed_at_any_statement(target, dataset, url, fork, kills):
    ends = set()
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        publish(dataset, chance)
        ends.add(life(dataset, url, fork, chance.randint(1, STATEMENTS), is_after=chance.random() < 0.5))
        is_what_its_state_says(target, dataset)
    assert KILLED in ends <= {KILLED, 0}
    load(target, dataset)
    check_ids(target, dataset)
    assert load(target, dataset) == 0


def check_ids(target, dataset: Dataset) -> None:
    found = {key: each.update_id for key, each in state_rows(target.engine, dataset).items()}
    assert found == dataset.newest()
    is_what_its_state_says(target, dataset)


STEPS = ["CREATE TABLE", "DELETE FROM", "CREATE TEMP", 'INSERT INTO "', "INSERT INTO feed_assets.updates", "COMMIT"]


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("is_after", [False, True])
def test_the_first_load_of_a_dataset_may_be_killed_at_each_step(target, dataset, url, fork, at, is_after):
    dataset.publish("1", {"id": 1})
    load(target, Dataset(dataset.board, dataset.ledger, Feed.parse("ads/none/v1.0")))  # The state tables are there.
    assert life(dataset, url, fork, at, is_after=is_after) == KILLED
    done = at == "COMMIT" and is_after
    assert (state_rows(target.engine, dataset) != {}) == done
    assert load(target, dataset) == (0 if done else 1)
    check_table(target.engine, dataset)


@pytest.mark.parametrize("at", [*STEPS[1:], "INSERT INTO feed_assets.tables", "INSERT INTO feed_assets.marks"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_reload_of_a_dataset_may_be_killed_at_each_step(target, dataset, url, fork, at, is_after):
    dataset.publish("1", {"id": 1})
    load(target, dataset)
    dataset.publish("1", {"id": 2})
    assert life(dataset, url, fork, at, is_after=is_after) == KILLED
    done = at == "INSERT INTO feed_assets.marks" or (at == "COMMIT" and is_after)
    assert table(target.engine, dataset, "id") == [(2 if done else 1,)]
    is_what_its_state_says(target, dataset)
    assert load(target, dataset) == (0 if done else 1)
    check_table(target.engine, dataset)


@pytest.mark.parametrize("at", ["CREATE TEMP", 'INSERT INTO "', "INSERT INTO feed_assets.updates"])
def test_rows_that_go_before_others_come_are_caught(target, dataset, url, fork, at):
    dataset.publish("1", {"id": 1})
    load(target, dataset)
    dataset.publish("1", {"id": 2})
    assert life(dataset, url, fork, at, is_wrong=True) == KILLED
    with pytest.raises(AssertionError, match="the table is not what its state tables say"):
        is_what_its_state_says(target, dataset)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_commit_without_an_answer_is_read_in_the_state_tables(target, dataset, url, is_done, monkeypatch):
    dataset.publish("1", {"id": 1})
    load(target, dataset)
    dataset.publish("1", {"id": 2})
    before = state_rows(target.engine, dataset)["1"].loaded_at
    with opened(target.engine) as connection:
        kind = type(connection)
    execute, cuts = kind.execute, ["once"]

    def cut(self, statement):
        if statement == "COMMIT" and cuts and held_is_written(self):
            cuts.pop()
            if is_done:
                execute(self, "COMMIT")
            self._opened.close()
            raise WarehouseUnavailable("the server closed the connection")
        return execute(self, statement)

    def held_is_written(self):
        moment = f"dataset = '{dataset.name}' AND loaded_at > '{before.isoformat()}'"
        return execute(self, f"SELECT 1 FROM feed_assets.updates WHERE {moment}")

    monkeypatch.setattr(kind, "execute", cut)
    with pytest.raises(WarehouseUnavailable, match="closed the connection"):
        load(target, dataset)
    assert cuts == []
    assert table(target.engine, dataset, "id") == [(2 if is_done else 1,)]
    assert load(target, dataset) == (0 if is_done else 1)
    check_table(target.engine, dataset)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_service_goes_on_after_connections_that_break(target, dataset, url, monkeypatch):
    """Break any statement: the session ends, and the next one starts from the state tables."""
    with opened(target.engine) as connection:
        kind = type(connection)
    execute, chance, breaks, stopping = kind.execute, Random(1), [], Event()  # noqa: S311

    def broken(self, statement):
        if len(breaks) < 8 and chance.random() < 0.05:
            breaks.append(statement)
            with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [self._opened.info.backend_pid])
        if len(held_now()) == 6 and len(breaks) == 8:
            stopping.set()
        return execute(self, statement)

    def held_now():
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as other:
            if not other.execute("SELECT to_regclass('feed_assets.updates')").fetchone()[0]:
                return []
            return other.execute("SELECT 1 FROM feed_assets.updates WHERE dataset = %s", [dataset.name]).fetchall()

    for number in range(6):
        dataset.publish(str(number), {"id": number})
    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(kind, "execute", broken)
    loader.run(target, {dataset.name: dataset.published}, stopping, (0.01, 0.02))
    monkeypatch.undo()
    assert len(breaks) == 8
    check_table(target.engine, dataset)
