"""Rows of the ledger about copies: the state of each, and of each file what was copied."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.ledger.database import upsert
from feed_assets.ledger.place_copies import MISSED, PUBLISHED
from feed_assets.ledger.tables import replica

COPYING, WITHDRAWN, REMOVED = "copying", "withdrawn", "removed"
"""States of a copy, beside `PUBLISHED` and `MISSED`. Only a published one is visible in its place."""


@dataclass(frozen=True)
class CopiedFile:
    """A file that was copied and verified: its size, its MD5 or SHA-256, and its etags at both ends."""

    size: int
    checksum: str
    source_etag: str
    etag: str


@dataclass(frozen=True)
class Replica:
    """A copy of an update in a place. `files` are its verified files by name. Times are in UTC."""

    place: str
    partition: Partition
    id: str
    state: str
    files_digest: str | None
    size: int
    files: Mapping[str, CopiedFile]
    since: datetime
    at: datetime


def _is(place: str, partition: Partition) -> sa.ColumnElement[bool]:
    of_partition = (replica.c.feed == str(partition.feed)) & (replica.c.partition == partition.key)
    return of_partition & (replica.c.place == place)


def find(connection: sa.Connection, place: str, partition: Partition, update_id: str) -> Replica | None:
    """Return a copy. Return None if it was never begun."""
    query = sa.select(replica).where(_is(place, partition), replica.c.id == update_id)
    row = connection.execute(query).mappings().first()
    return _replica(partition, row) if row else None


def _replica(partition: Partition, row: sa.RowMapping) -> Replica:
    recorded: dict[str, tuple[int, str, str, str]] = json.loads(row["files"] or "{}")
    files = {name: CopiedFile(*facts) for name, facts in recorded.items()}
    names = ("place", "id", "state", "files_digest", "size", "since", "at")
    return Replica(partition=partition, files=files, **{name: row[name] for name in names})


def put(connection: sa.Connection, copy: Replica) -> None:
    """Record a copy with its state and its files."""
    files: Mapping[str, Any] = {name: [*vars(each).values()] for name, each in copy.files.items()}
    row = {**vars(copy), "feed": str(copy.partition.feed), "partition": copy.partition.key}
    row["files"] = json.dumps(files) if files else None
    columns = ["state", "files_digest", "size", "files", "since", "at"]
    upsert(connection, replica, [row], columns)


def set_state(
    connection: sa.Connection, place: str, partition: Partition, update_id: str, *, state: str, now: datetime
) -> None:
    """Change the state of a copy. A removed one has no files."""
    values = {"state": state, "at": now} | ({"files": None} if state == REMOVED else {})
    connection.execute(sa.update(replica).where(_is(place, partition), replica.c.id == update_id).values(values))


def published(connection: sa.Connection, place: str, partition: Partition) -> list[str]:
    """Return the ids of the published copies of a partition, oldest first."""
    query = sa.select(replica.c.id).where(_is(place, partition), replica.c.state == PUBLISHED)
    return [*connection.execute(query.order_by(replica.c.id)).scalars()]


def unpublished_before(connection: sa.Connection, place: str, partition: Partition, update_id: str) -> list[str]:
    """Return the ids of the copies before `update_id` that are not visible, but may have files."""
    has_files = replica.c.state.in_([COPYING, WITHDRAWN, MISSED]) & (replica.c.id < update_id)
    return [*connection.execute(sa.select(replica.c.id).where(_is(place, partition), has_files)).scalars()]
