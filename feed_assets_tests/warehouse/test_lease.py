"""The lease on a warehouse while a load copies, and state tables that two processes create at once."""

from threading import Event, Semaphore

import pytest

from feed_assets.core.errors import WarehouseTaken, WarehouseUnavailable
from feed_assets.warehouse import lease, load_files, load_state
from feed_assets.warehouse import load as loads
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.warehouse.stream import ID, TEXT


def test_a_lease_is_renewed_while_chunks_are_copied(loader, stream, monkeypatch):
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"})
    seen, fetch = "SELECT seen_at FROM feed_assets.lease", load_files.fetch

    def slow(*arguments):
        before = loader.ask(seen)
        wait_until(lambda: loader.ask(seen) > before, "a sign of life", 30)
        return fetch(*arguments)

    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(load_files, "fetch", slow)
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()


def test_the_last_sign_of_life_of_a_load_is_of_the_moment_before_its_commit(loader, stream, monkeypatch):
    """Date the lease at its renewal, not at the start of the transaction: a long load still has a lease at its end."""
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"})
    merge, merged = loads._Rows.merge, []

    def slow(*arguments):
        merge(*arguments)
        merged.append(loader.ask(f"SELECT {loader.engine.now}"))

    monkeypatch.setattr(loads._Rows, "merge", slow)
    loader.load(stream)
    assert loader.ask("SELECT seen_at FROM feed_assets.lease") >= merged[-1]


def test_a_lease_that_is_lost_while_chunks_are_copied_is_noticed(loader, monkeypatch):
    def refused():
        monkeypatch.setattr(load_state, "renew", refuse)
        assert noticed.wait(30)

    def refuse(*_):
        noticed.set()
        raise WarehouseTaken("another loader has it")

    noticed = Event()
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    with pytest.raises(WarehouseTaken), lease.kept(loader.engine, loader.place.holder):
        refused()


def test_a_briefly_unavailable_warehouse_is_retried(loader, monkeypatch):
    asked = Semaphore(0)

    def away(*_):
        asked.release()
        raise WarehouseUnavailable("it is away")

    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(load_state, "renew", away)
    with lease.kept(loader.engine, loader.place.holder):
        assert all(asked.acquire(timeout=30) for _ in range(3))


def test_state_tables_that_somebody_else_makes_meanwhile_are_taken(loader, monkeypatch):
    exists, looks = load_state.exists, iter([False])
    monkeypatch.setattr(load_state, "exists", lambda *args: next(looks, None) is None and exists(*args))
    with opened(loader.engine) as connection:
        load_state.prepare(connection, loader.engine)
        assert connection.execute("SELECT holder FROM feed_assets.lease") == [(loader.place.holder,)]


def test_two_simultaneous_first_loaders_share_one_lease_row(postgresql):
    engine = engine_of(postgresql.database())
    with opened(engine) as connection:
        load_state.prepare(connection, engine)
        assert connection.execute("SELECT id, holder FROM feed_assets.lease") == [(1, "")]


def test_a_long_problem_is_stored_shortened(loader, stream):
    with opened(loader.engine) as connection:
        load_state.note(connection, stream.name, "the table is " + "é" * 70_000)
        [problem] = [each.problem for each in load_state.tables(connection) if each.topic == stream.name]
    assert problem.startswith("the table is éé")
