"""One load of a dataset's table: differences from its known state, and the time of the load."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from feed_assets.core.errors import WarehouseUnavailable
from feed_assets.core.feeds import Partition
from feed_assets.feeds import read
from feed_assets.warehouse import dataset_state, load_state
from feed_assets.warehouse.load import LoadContext
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.replace import Exchange, replace
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import Dataset, check_table, state_rows
from feed_assets_tests.warehouse.topic_loader import HOLDER


@pytest.fixture
def place(target, dataset) -> LoadContext:
    with opened(target.engine) as connection:
        dataset_state.prepare(connection, target.engine)
        load_state.take(connection, target.engine, HOLDER, 30)
    return LoadContext(target.engine, dataset.board, HOLDER, 7)


def exchange(dataset: Dataset, number: int, instead_of: str | None = None) -> Exchange:
    """Publish an update of a partition; return its exchange with the current one."""
    dataset.publish("1", {"id": number})
    return Exchange("1", instead_of, read.latest(dataset.board, Partition(dataset.feed, "1")).update, None)


def test_replacement_leaves_a_table_that_another_load_changed(place, dataset):
    first = replace(place, dataset.name, TopicState(), exchange(dataset, 1))
    before = state_rows(place.engine, dataset)["1"].update_id
    known = replace(place, dataset.name, first, exchange(dataset, 2, before))
    there = state_rows(place.engine, dataset)
    rows, dataset.rows = dataset.rows, {}
    stale = exchange(dataset, 3, before)
    dataset.rows = rows
    unknown = stale._replace(held=there["1"].update_id)
    for wanted, what in ((stale, known), (unknown, TopicState(schema_id=1, shape=known.shape))):
        with pytest.raises(WarehouseUnavailable, match="was loaded by another process meanwhile"):
            replace(place, dataset.name, what, wanted)
        assert state_rows(place.engine, dataset) == there
        check_table(place.engine, dataset)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_replacement_waits_for_a_commit_under_way(place, dataset):
    """Imitate a connection that broke at the COMMIT: the server may still commit while the next session begins."""
    wanted, engine = exchange(dataset, 1), place.engine
    with ThreadPoolExecutor() as pool, opened(engine) as other, opened(engine) as third:
        other.execute("BEGIN")
        load_state.renew(other, engine, HOLDER)
        waits = pool.submit(replace, place, dataset.name, TopicState(), wanted)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        wait_until(lambda: bool(third.execute(waiting)), "the next session to wait")
        dataset_state.keep(other, engine, dataset.name, "1", "20260101.000001", None, 0)
        other.execute("COMMIT")
        with pytest.raises(WarehouseUnavailable, match="was loaded by another process meanwhile"):
            waits.result(60)


def test_the_lease_is_as_young_as_the_end_of_a_load(place, dataset, monkeypatch):
    """Renew the lease at the end, or the next loader could take over right after a long load."""
    keep = dataset_state.keep

    def long(connection, *given, **named):
        connection.execute("UPDATE feed_assets.lease SET seen_at = seen_at - INTERVAL '1 hour'")
        keep(connection, *given, **named)

    monkeypatch.setattr(dataset_state, "keep", long)
    replace(place, dataset.name, TopicState(), exchange(dataset, 1))
    with opened(place.engine) as connection:
        young = f"SELECT 1 FROM feed_assets.lease WHERE seen_at > {place.engine.now} - INTERVAL '30 minutes'"
        assert connection.execute(young)


def test_later_loads_are_dated_after_earlier_ones_despite_clocks(place, dataset):
    engine, name = place.engine, dataset.name
    with opened(engine) as connection:
        connection.execute("BEGIN")
        dataset_state.keep(connection, engine, name, "1", None, None, 0)
        connection.execute("UPDATE feed_assets.updates SET loaded_at = loaded_at + INTERVAL '1 day'")
        dataset_state.keep(connection, engine, name, "2", None, None, 0)
        dataset_state.keep(connection, engine, name, "1", None, None, 0)
        found = [each for each in dataset_state.loads(connection, engine) if each.dataset == name]
        connection.execute("ROLLBACK")
    assert [each.partition for each in found] == ["2", "1"]
    assert found[0].loaded_at < found[1].loaded_at
