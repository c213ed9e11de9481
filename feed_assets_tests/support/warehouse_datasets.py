"""A dataset on a blackboard and in a ledger, and the expected content of its table: the rows of the newest updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.sql_text import quoted
from feed_assets.core.warehouses import Warehouse
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import log, update_changes
from feed_assets.ledger.database import Ledger
from feed_assets.warehouse import dataset_state, loader
from feed_assets.warehouse.dataset import DatasetUpdates
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.target import Target
from feed_assets_tests.support.warehouse_connection import opened

Rows = Sequence[Mapping[str, Any]]


def parquet(rows: Rows, schema: pa.Schema | None = None) -> bytes:
    """Return the bytes of a Parquet file as Spark writes it."""
    buffer = BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema), buffer)
    return buffer.getvalue()


@dataclass
class Dataset:
    """A feed that a test publishes into; each update is a second later than the last."""

    board: Blackboard
    ledger: Ledger
    feed: Feed = field(default_factory=lambda: Feed.parse("ads/ctr/v1.0"))
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    rows: dict[str, dict[str, Rows]] = field(default_factory=dict[str, dict[str, Rows]])
    """Rows of valid updates, by partition and update id."""

    @property
    def name(self) -> str:
        return str(self.feed)

    @property
    def published(self) -> DatasetUpdates:
        return DatasetUpdates(self.feed, self.ledger, self.board)

    def publish(self, key: str, *rows: Mapping[str, Any], schema: pa.Schema | None = None, parts: int = 1) -> str:
        """Publish an update of a partition, and record it in the ledger. Return its id."""
        self.now += timedelta(seconds=1)
        files = {f"part-{number}.parquet": parquet(rows[number::parts], schema) for number in range(parts)}
        update = write.publish(self.board, Partition(self.feed, key), files, self.now)
        self.rows.setdefault(key, {})[update.id] = rows
        self.look(key)
        return update.id

    def invalidate(self, key: str, update_id: str) -> None:
        write.invalidate(self.board, Partition(self.feed, key), update_id)
        del self.rows[key][update_id]

    def look(self, key: str) -> Update | None:
        """Record the newest valid update in the ledger."""
        partition = Partition(self.feed, key)
        with self.ledger.read() as connection:
            as_of = log.last(connection)
        valid = read.latest(self.board, partition).update
        update_changes.sync(self.ledger, partition, valid, {}, self.now, as_of)
        return valid

    def newest(self) -> dict[str, str]:
        """Return the newest valid update of each partition that has one."""
        return {key: max(found) for key, found in self.rows.items() if found}

    def model(self) -> list[tuple[Any, ...]]:
        """Return the rows of the newest updates, each with its partition last."""
        return sorted(
            ((*row.values(), key) for key, newest in self.newest().items() for row in self.rows[key][newest]), key=repr
        )


def target_of(url: str) -> Target:
    return Target("main", Warehouse(url=url))  # type: ignore[arg-type]


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "text": f"text {number}", **more}


def load(target: Target, *datasets: Dataset) -> int:
    return loader.once(target, {each.name: each.published for each in datasets})


def table(engine: Engine, dataset: Dataset, columns: str = "*") -> list[tuple[Any, ...]]:
    """Return the sorted rows of the table."""
    with opened(engine) as connection:
        return sorted(connection.execute(f"SELECT {columns} FROM {quoted(dataset.name)}"), key=repr)


def state_rows(engine: Engine, dataset: Dataset) -> dict[str, dataset_state.LoadedUpdate]:
    """Return the loaded update of each partition in the state tables."""
    with opened(engine) as connection:
        found = dataset_state.loads(connection, engine)
    return {each.partition: each for each in found if each.dataset == dataset.name}


def check_table(engine: Engine, dataset: Dataset) -> None:
    """Assert that the table matches the state tables, and that these have the newest updates."""
    found = state_rows(engine, dataset)
    assert {key: each.update_id for key, each in found.items() if each.update_id} == dataset.newest()
    assert {key: each.records for key, each in found.items() if each.update_id} == {
        key: len(dataset.rows[key][newest]) for key, newest in dataset.newest().items()
    }
    assert table(engine, dataset) == dataset.model()
