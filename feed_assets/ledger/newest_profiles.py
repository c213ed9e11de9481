"""The newest profile of each partition: its measures by name. Other partitions are compared with these profiles."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import upsert
from feed_assets.ledger.tables import profile


def keep(
    connection: sa.Connection, partition: Partition, position: str, measures: Mapping[str, float], now: datetime
) -> None:
    """Store the measures of a partition's data. `position` is the measured update or window transition.

    A repeated call changes nothing.
    """
    values = {"position": position, "measures": json.dumps(measures, sort_keys=True), "at": now}
    row = {"feed": str(partition.feed), "partition": partition.key, **values}
    upsert(connection, profile, [row], [*values])


def profiles_of(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, Mapping[str, float]]:
    """Return the newest profiles of partitions: measures by name. Cost: one index lookup for each partition."""
    rows = key_tables.matching(connection, profile, key_tables.keys(partitions))
    return {Partition(Feed.parse(row.feed), row.partition): json.loads(row.measures) for row in rows}
