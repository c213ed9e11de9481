"""Position in the ledger's log where a session begins, and updates that it takes as loaded: exactly the loaded ones."""

from datetime import timedelta

import pytest

from feed_assets.core.errors import LoadFailed, WarehouseTaken, WarehouseUnavailable
from feed_assets.core.feeds import Feed
from feed_assets.core.sql_text import literal, quoted
from feed_assets.ledger import log, subscriptions
from feed_assets.ledger.old_rows import prune_log
from feed_assets.warehouse import dataset as datasets
from feed_assets.warehouse import dataset_state, load_state, loader
from feed_assets.warehouse.dataset import DatasetTable
from feed_assets.warehouse.dataset_state import Mark
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import Dataset, check_table, load


def mark(target, dataset: Dataset) -> Mark:
    with opened(target.engine) as connection:
        return dataset_state.mark(connection, target.engine, dataset.name)


def ask(target, *statements: str) -> None:
    with opened(target.engine) as connection:
        for each in statements:
            connection.execute(each)


def three_loaded(target, dataset: Dataset) -> None:
    for key in "123":
        dataset.publish(key, {"id": int(key)})
    assert load(target, dataset) == 3


def test_the_mark_goes_on_while_others_change_so_that_a_prune_costs_nothing(target, dataset, monkeypatch):
    other = Dataset(dataset.board, dataset.ledger, Feed.parse("ads/other/v1.0"), dataset.now)
    other.publish("1", {"id": 1})
    three_loaded(target, dataset)
    first = mark(target, dataset)
    other.now = dataset.now + datasets.MARK_AGE - timedelta(seconds=2)
    other.publish("1", {"id": 2})
    assert load(target, dataset) == 0
    assert mark(target, dataset) == first
    other.publish("1", {"id": 3})
    assert load(target, dataset) == 0
    assert mark(target, dataset).sequence > first.sequence
    monkeypatch.setattr(dataset_state, "held", lambda *_: pytest.fail("the history is compared"))
    assert load(target, dataset) == 0


def test_a_mark_that_is_another_datasets_change_may_be_pruned(target, dataset, monkeypatch):
    other = Dataset(dataset.board, dataset.ledger, Feed.parse("ads/other/v1.0"), dataset.now)
    for key in "123":
        dataset.publish(key, {"id": int(key)})
    other.now = dataset.now
    other.publish("1", {"id": 1})
    assert load(target, dataset) == 3
    at = mark(target, dataset).sequence
    other.now += datasets.MARK_AGE
    other.publish("1", {"id": 2})
    assert load(target, dataset) == 0
    with dataset.ledger.write() as connection:
        subscriptions.advance(connection, "consumer", 1000)
    prune_log(dataset.ledger, other.now, 0, None, apply=True)
    with dataset.ledger.read() as connection:
        assert log.moment(connection, at) is None
    monkeypatch.setattr(dataset_state, "held", lambda *_: pytest.fail("the history is compared"))
    assert load(target, dataset) == 0


def test_a_loader_that_lost_its_lease_does_not_say_that_a_table_has_stopped(target, dataset, monkeypatch):
    """Write nothing, or a table that the next loader continues would have a problem."""
    three_loaded(target, dataset)

    def taken(*_):
        ask(target, "UPDATE feed_assets.lease SET holder = 'another'")
        raise LoadFailed("its rows are refused")

    monkeypatch.setattr(DatasetTable, "load_all", taken)
    with pytest.raises(WarehouseTaken):
        load(target, dataset)
    with opened(target.engine) as connection:
        assert [each.problem for each in load_state.tables(connection) if each.topic == dataset.name] == [None]
        assert connection.execute("SELECT holder FROM feed_assets.lease") == [("another",)]


def test_a_loader_that_lost_its_lease_moves_no_mark(target, dataset, monkeypatch):
    three_loaded(target, dataset)
    ask(target, f"DELETE FROM feed_assets.marks WHERE dataset = {literal(dataset.name)}")
    page = DatasetTable._page

    def taken(self, now):
        found = page(self, now)
        ask(target, "UPDATE feed_assets.lease SET holder = 'another'")
        return found

    monkeypatch.setattr(DatasetTable, "_page", taken)
    with pytest.raises(WarehouseTaken, match="another loader has taken over this warehouse"):
        load(target, dataset)
    assert mark(target, dataset) == Mark()


def forgotten(target, dataset: Dataset) -> None:
    """Imitate an interrupted reload: the table and its row in `tables` are gone, its other state rows remain."""
    three_loaded(target, dataset)
    where = f"WHERE topic = {literal(dataset.name)}"
    ask(target, f"DROP TABLE {quoted(dataset.name)}", f"DELETE FROM feed_assets.tables {where}")


def test_a_dropped_table_with_old_state_is_loaded_completely(target, dataset, monkeypatch):
    forgotten(target, dataset)
    session = loader.LoaderSession(target, {dataset.name: dataset.published}, "the test")
    with session._begun():
        (table,) = session._tables.values()
        assert [each.statements[0][:12] for each in table.plan()] == ["CREATE TABLE"]
    monkeypatch.setattr(datasets, "CHANGES", 1)
    assert load(target, dataset) == 3
    check_table(target.engine, dataset)


def test_a_table_that_is_made_anew_has_the_others_after_a_kill(target, dataset, monkeypatch):
    forgotten(target, dataset)
    dataset.publish("2", {"id": 20})
    monkeypatch.setattr(datasets, "CHANGES", 1)
    move = dataset_state.move
    monkeypatch.setattr(dataset_state, "move", _broken)
    with pytest.raises(WarehouseUnavailable):
        load(target, dataset)  # The table is there again, with a partition.
    ask(target, "DELETE FROM feed_assets.lease")
    monkeypatch.setattr(dataset_state, "move", move)
    assert load(target, dataset) == 2
    check_table(target.engine, dataset)
    assert load(target, dataset) == 0


def _broken(*_):
    raise WarehouseUnavailable("the connection broke")


def test_an_update_without_files_is_loaded_once_where_there_is_no_table(target, dataset):
    dataset.publish("1", parts=0)
    assert load(target, dataset) == 1
    assert load(target, dataset) == 0
