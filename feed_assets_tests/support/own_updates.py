"""Our own updates as a run leaves them, on the blackboard and in the ledger, without Spark."""

import json
from datetime import datetime

import pyarrow as pa

from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds.write import publish
from feed_assets.ledger import update_changes, updates
from feed_assets.reading.row_digest import RowDigest
from feed_assets.runs.services import Services
from feed_assets_tests.support import damaged_parquet as damaged

COLUMNS = (("id", "bigint"),)


def publish_own(
    services: Services,
    partition: Partition,
    now: datetime,
    data: bytes | None = None,
    columns: tuple[tuple[str, str], ...] = COLUMNS,
    version: str | None = None,
) -> Update:
    """Publish numbers, or other data, as a run does."""
    table = damaged.numbers()
    digest = RowDigest(COLUMNS)
    for batch in table.to_batches():
        digest.add(batch)
    update = publish(services.board, partition, {"part-0.parquet": data or damaged.parquet(table)}, now)
    values = {"version": version or digest.version, "columns": json.dumps(columns), "records": table.num_rows}
    with services.ledger.change() as connection:
        update_changes.insert(
            connection, partition, update.id, updates.RUN, updates.PUBLISHED, now, **values, **updates.files_of(update)
        )
    return update


def rewrite(services: Services, update: Update, data: bytes) -> None:
    """Overwrite a file of an update."""
    services.board.put(update.files[0].key, data)


def of(ids: list[int]) -> bytes:
    return damaged.parquet(pa.table({"id": pa.array(ids, pa.int64())}))
