"""The ledger's entries for pulled files, by their names on the partner's blackboard."""

from collections.abc import Collection, Mapping
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, File
from feed_assets.core.pulls import FileState, Pulled
from feed_assets.ledger.database import upsert
from feed_assets.ledger.tables import intake_file as table

_ROWS = 1000
"""Maximum number of files with a problem that are listed, newest first."""

_EQUAL = 100
"""Maximum number of files with the same time, size and etag among which a renamed file is searched."""

_SET = ("size", "etag", "time", "state", "reason", "batch", "update_id", "at")


def registered(connection: sa.Connection, feed: Feed, names: Collection[str]) -> dict[str, Pulled]:
    """Return the entries of the files in `names`, by name. A file without an entry is left out."""
    rows = connection.execute(sa.select(table).where(table.c.feed == str(feed), table.c.name.in_(names)))
    return {row.name: _pulled(row) for row in rows}


def like(connection: sa.Connection, feed: Feed, file: File, time: datetime) -> list[Pulled]:
    """Return pulled files that may be `file` under its old name: they have the same time, size and etag."""
    content = (table.c.time == time) & (table.c.etag == file.etag) & (table.c.size == file.size)
    condition = (table.c.feed == str(feed)) & (table.c.name != file.key) & table.c.batch.is_not(None)
    query = sa.select(table).where(condition, content).limit(_EQUAL)
    return [_pulled(row) for row in connection.execute(query)]


def batches(connection: sa.Connection, feed: Feed, time: datetime, name: str) -> set[str]:
    """Return the keys of batches whose names begin with `name`, and whose files are of the day or hour `time`."""
    condition = (
        (table.c.feed == str(feed)) & (table.c.time == time) & table.c.batch.contains(f"/{name}", autoescape=True)
    )
    return {*connection.execute(sa.select(table.c.batch).where(condition)).scalars()}


def drop(connection: sa.Connection, feed: Feed, name: str) -> None:
    """Delete the entry of a renamed file."""
    connection.execute(sa.delete(table).where(table.c.feed == str(feed), table.c.name == name))


def forget_gone(connection: sa.Connection, feed: Feed, names: Collection[str]) -> None:
    """Clear the problems of files that no longer exist.

    Keep the entries of files that were pulled; delete the other entries.
    """
    is_gone = (table.c.feed == str(feed)) & table.c.name.in_(names)
    connection.execute(sa.delete(table).where(is_gone, table.c.batch.is_(None)))
    connection.execute(sa.update(table).where(is_gone).values(state=FileState.DONE.value, reason=None))


def put(connection: sa.Connection, feed: Feed, each: Pulled, now: datetime) -> None:
    """Store the state of a file."""
    row = {
        "feed": str(feed),
        "name": each.file.key,
        "size": each.file.size,
        "etag": each.file.etag,
        "time": each.time,
        "state": each.state.value,
        "reason": each.reason,
        "batch": each.batch,
        "update_id": each.update_id,
        "at": now,
    }
    upsert(connection, table, [row], _SET)


def wrong(connection: sa.Connection, since: Mapping[Feed, datetime]) -> dict[Feed, list[Pulled]]:
    """Return for each feed the files that were refused or changed since its given time, newest first."""
    files_by_feed: dict[Feed, list[Pulled]] = {}
    states = [FileState.CHANGED.value, FileState.REFUSED.value]
    recent = [
        (table.c.feed == str(feed)) & table.c.state.in_(states) & (table.c.at >= at) for feed, at in since.items()
    ]
    rows = connection.execute(
        sa.select(table).where(sa.or_(sa.false(), *recent)).order_by(table.c.at.desc()).limit(_ROWS)
    )
    for row in rows:
        files_by_feed.setdefault(Feed.parse(row.feed), []).append(_pulled(row))
    return files_by_feed


def _pulled(row: sa.Row[tuple[object, ...]]) -> Pulled:
    file = File(row.name, row.size, row.etag)
    return Pulled(file, row.time, FileState(row.state), reason=row.reason, batch=row.batch, update_id=row.update_id)
