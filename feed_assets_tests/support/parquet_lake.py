"""A lake that programs without Spark read: updates of Parquet written by pyarrow, on any blackboard."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import feed_assets
from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish

DAILY = "plant/daily/v1.0"
MONDAY, TUESDAY, WEDNESDAY, THURSDAY = (f"2026-06-0{day}" for day in range(1, 5))
OLD, NEW = "20260602.060000", "20260603.060000"
NOON = datetime(2026, 6, 2, 12, tzinfo=UTC)
"""A moment between the two updates."""


def parquet(table: pa.Table | Mapping[str, Any], **options: Any) -> bytes:
    """Return the bytes of a Parquet file."""
    file = BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(dict(table)), file, **options)
    return file.getvalue()


@dataclass(frozen=True)
class Lake:
    """A blackboard with a feed that tests write, and read by its URL."""

    board: Blackboard

    def put(self, key: str, *parts: Mapping[str, Any] | bytes, update_id: str = OLD, ending: str = "parquet") -> str:
        """Publish parts, given as rows or bytes, as an update. Return its id."""
        files = {
            f"part-{number}.{ending}": part if isinstance(part, bytes) else parquet(part)
            for number, part in enumerate(parts)
        }
        return publish(self.board, self.at(key), files, parse_update_id(update_id) or NOON).id

    def at(self, key: str) -> Partition:
        """Return a partition of the feed."""
        return Partition(Feed.parse(DAILY), key)

    def read(self, *args: Any, **kwargs: Any) -> feed_assets.FeedData:
        """Read the feed by `feed_assets.read`."""
        return feed_assets.read(DAILY, *args, blackboard=self.board.url, **kwargs)

    def rows(self, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a reading."""
        return [tuple(row.values()) for row in self.read(*args, **kwargs).to_arrow().to_pylist()]
