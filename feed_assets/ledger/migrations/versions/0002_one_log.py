"""One log for what two counters numbered, subscriptions, quality as a fact, pauses; attempts by the log's numbers.

Also a column for where the range of an event starts, and a table of the events that a run consumed.
"""

import json
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0002"
down_revision = "0001"

_NAMES = {"uq": "uq_%(table_name)s_%(column_0_name)s"}


def upgrade() -> None:
    """Give events numbers after the changes of updates. No consumed event is delivered again, and nothing is lost."""
    _create()
    connection = op.get_bind()
    offset = int(connection.execute(sa.text("SELECT value FROM cursor WHERE name = 'change'")).scalar() or 0)
    copied_after = _fill_log(connection, offset)
    last = connection.execute(sa.text("SELECT max(sequence) FROM change")).scalar() or 0
    heard = min(copied_after, last)
    _absent(connection)
    _subscriptions(connection, offset, heard)
    # Set it after the events, which are now the last changes of what is listed: otherwise these would count as new.
    connection.execute(sa.text("UPDATE due SET changed = :heard"), {"heard": heard})
    _quality(connection)
    _pauses(connection)
    _alter(connection, last)
    for name in ("looked for", "stopped looking for"):
        rename = sa.text("UPDATE cursor SET name = :new WHERE name = :old")
        connection.execute(rename, {"old": f"{name} litter", "new": f"{name} orphans"})
    _starts(connection)
    connection.execute(
        sa.text(
            "DELETE FROM cursor WHERE name = 'change' OR name LIKE 'fanned out to %' OR name LIKE 'events of %' "
            "OR name LIKE 'paused %' OR name LIKE 'published to %'"
        )
    )


def _create() -> None:
    op.create_table(
        "change",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False, comment="commit order"),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False, comment="update, event, quality or unchanged"),
        sa.Column("subject", TEXT, nullable=False, comment="what changed: update id, marker or check"),
        sa.Column("before", TEXT, comment="its state before; NULL if it was not known"),
        sa.Column("after", TEXT, comment="its state after"),
        sa.Column("why", TEXT),
        sa.Column("who", TEXT, comment="run, event source or person"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("change_of_partition", "change", ["feed", "partition", "sequence"])
    op.create_table(
        "subscription",
        sa.Column("subscriber", TEXT, nullable=False, comment="consumer, or who else listens to the log"),
        sa.Column("feed", TEXT, nullable=False, comment="whose changes; '' for those of all"),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="sequence of the last change that it has"),
        sa.PrimaryKeyConstraint("subscriber", "feed"),
    )
    op.create_table(
        "quality",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("check", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False, comment="passed or failed"),
        sa.Column("reason", TEXT),
        sa.Column("by", TEXT, comment="run or person that reported it"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "partition", "check"),
    )
    op.create_table(
        "pause",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("who", TEXT),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed"),
    )
    op.create_table(
        "taken",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False, comment="event, consumed"),
        sa.Column("run", TEXT, nullable=False, comment="run whose update it went into"),
        sa.PrimaryKeyConstraint("feed", "partition", "sequence", "run"),
    )
    op.create_index("taken_by_run", "taken", ["run"])
    op.create_table(
        "awaited",
        sa.Column("subscriber", TEXT, nullable=False, comment="consumer that cannot be told; '' for all readers"),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False, comment="that changed, and cannot be mapped to outputs"),
        sa.Column("sequence", sa.BigInteger(), nullable=False, comment="first change that has not been fanned out"),
        sa.Column("look_at", UtcDateTime(), nullable=False),
        sa.Column("reason", TEXT, comment="error; NULL if it is a dynamic partition that is not there"),
        sa.PrimaryKeyConstraint("subscriber", "feed", "partition"),
    )


def _fill_log(connection: sa.Connection, offset: int) -> int:
    """Fill the log: changes keep their numbers, events follow, then copies of changes that not every consumer had.

    Return the number after which these copies come.
    """
    columns = "(sequence, feed, partition, kind, subject, before, after, why, who, at)"
    updates = "feed, partition, 'update', id, NULL, state, reason, run, at FROM update_"
    logged = "state IN ('published', 'invalidated', 'pruned')"
    connection.execute(sa.text(f"INSERT INTO change {columns} SELECT changed, {updates} WHERE {logged}"))
    for table in ("event", "inbox"):  # Negative numbers in between keep each number unique.
        connection.execute(sa.text(f"UPDATE {table} SET sequence = -(sequence + {offset})"))  # noqa: S608
        connection.execute(sa.text(f"UPDATE {table} SET sequence = -sequence"))  # noqa: S608
    events = "sequence, feed, partition, 'event', marker, NULL, NULL, NULL, NULLIF(source, ''), at FROM event"
    connection.execute(sa.text(f"INSERT INTO change {columns} SELECT {events}"))
    told = [int(value) for _, value in _cursors(connection, "fanned out to ")]
    last = connection.execute(sa.text("SELECT max(sequence) FROM change")).scalar() or 0
    again = f"INSERT INTO change {columns} SELECT changed + {last}, {updates} WHERE {logged} AND changed > :told"
    connection.execute(sa.text(again), {"told": min(told, default=offset)})
    return last


def _cursors(connection: sa.Connection, prefix: str) -> list[tuple[str, str]]:
    rows = connection.execute(sa.text("SELECT name, value FROM cursor WHERE name LIKE :like"), {"like": f"{prefix}%"})
    return [(name.removeprefix(prefix), value) for name, value in rows]


def _subscriptions(connection: sa.Connection, offset: int, heard: int) -> None:
    """Continue consumers where they were: in event tables after the last delivered event, elsewhere after `heard`.

    Changes of updates that a consumer did not have follow once more after that.
    """
    found: dict[tuple[str, str], int] = {}
    inputs = sa.text("SELECT DISTINCT input_feed FROM consumed WHERE feed = :feed AND is_input")
    for consumer, _ in _cursors(connection, "fanned out to "):
        feeds = connection.execute(inputs, {"feed": consumer}).scalars().all()
        found |= {(consumer, feed): heard for feed in (consumer, *feeds)}
    for edge, value in _cursors(connection, "events of "):
        table, _, consumer = edge.partition(" to ")
        found[consumer, table] = min(int(value) + offset, heard)
    found |= {(f"published to {url}", ""): int(value) + offset for url, value in _cursors(connection, "published to ")}
    insert = sa.text("INSERT INTO subscription (subscriber, feed, position) VALUES (:subscriber, :feed, :position)")
    for (subscriber, feed), position in found.items():
        connection.execute(insert, {"subscriber": subscriber, "feed": feed, "position": position})


def _absent(connection: sa.Connection) -> None:
    """Move input partitions that did not exist yet to `awaited`: their events are delivered once they exist.

    Do so for each consumer, as before: another one may have the partition, and have consumed its events.
    """
    rows = connection.execute(sa.text("SELECT feed, partition, changed FROM due WHERE awaited")).all()
    insert = sa.text(
        "INSERT INTO awaited (subscriber, feed, partition, sequence, look_at) "
        "VALUES (:reader, :feed, :key, :first, :at)"
    ).bindparams(sa.bindparam("at", type_=UtcDateTime()))
    for reader, name, changed in rows:
        feed, _, key = name.partition("|")
        values = {"reader": reader, "feed": feed, "key": key, "first": changed, "at": datetime.now(UTC)}
        connection.execute(insert, values)
        waited = sa.text("DELETE FROM inbox WHERE feed = :reader AND partition = :name")
        connection.execute(waited, {"reader": reader, "name": name})
    connection.execute(sa.text("DELETE FROM due WHERE awaited"))


def _quality(connection: sa.Connection) -> None:
    """Record the checks of refused runs as failed, which blocks what these runs blocked."""
    values = "feed, partition, 'audit', 'failed', max(reason), max(id), max(coalesce(ended, started))"
    refused = "FROM run WHERE state = 'refused' AND NOT settled GROUP BY feed, partition"
    columns = '(feed, partition, "check", state, reason, "by", at)'
    connection.execute(sa.text(f"INSERT INTO quality {columns} SELECT {values} {refused}"))


def _pauses(connection: sa.Connection) -> None:
    insert = sa.text("INSERT INTO pause (feed, why, at) VALUES (:feed, :why, :at)")
    for feed, why in _cursors(connection, "paused "):
        values = {"feed": feed, "why": why, "at": datetime.now(UTC)}
        connection.execute(insert.bindparams(sa.bindparam("at", type_=UtcDateTime())), values)


def _alter(connection: sa.Connection, last: int) -> None:
    op.drop_index("update_by_change", "update_")
    constraint = {"sqlite": "uq_update__changed", "postgresql": "update__changed_key"}[connection.dialect.name]
    with op.batch_alter_table("update_", naming_convention=_NAMES) as table:
        table.drop_constraint(constraint, type_="unique")
        table.alter_column(
            "changed", existing_type=sa.BigInteger(), existing_nullable=False, comment="sequence of its last change"
        )
    connection.execute(sa.text("UPDATE update_ SET changed = :last WHERE changed > :last"), {"last": last})
    op.drop_index("run_of_output", "run")
    op.add_column("run", sa.Column("began", sa.BigInteger(), comment="last change when it started"))
    op.add_column("run", sa.Column("finished", sa.BigInteger(), comment="last change when it ended"))
    # A run that was settled is no attempt any more; the others still are.
    connection.execute(sa.text("UPDATE run SET began = CASE WHEN settled THEN -1 ELSE :last END"), {"last": last})
    connection.execute(sa.text("UPDATE run SET finished = 0 WHERE state <> 'running'"))
    op.drop_column("run", "settled")
    op.create_index("run_of_output", "run", ["feed", "partition", "state", "began"])
    op.drop_column("due", "awaited")
    if connection.dialect.name == "postgresql":
        op.execute("ALTER TABLE event ALTER COLUMN sequence DROP DEFAULT")
        op.execute("DROP SEQUENCE IF EXISTS event_sequence_seq")


_EVENT = sa.table(
    "event", *map(sa.column, ("sequence", "feed", "partition", "marker", "previous", "start", "operation", "context"))
)


def _starts(connection: sa.Connection) -> None:
    """Fill `start` as `WriteEvent.start` does. An event of a feed's update covers all, and is known by its update.

    Events that were consumed before are not recorded one by one, and stay consumed.
    """
    what = "it covers what was updated after this, up to marker; NULL: from the beginning"
    op.add_column("event", sa.Column("start", TEXT, comment=what))
    update = sa.table("update_", *map(sa.column, ("feed", "partition", "id")))
    same = (update.c.feed == _EVENT.c.feed) & (update.c.partition == _EVENT.c.partition)
    is_update = sa.select(update.c.id).where(same, update.c.id == _EVENT.c.marker).exists()
    increments = sa.update(_EVENT).where(_EVENT.c.operation != "OVERWRITE", ~is_update)
    connection.execute(increments.values(start=_EVENT.c.previous))
    empty = sa.select(_EVENT.c.sequence, _EVENT.c.context).where(_EVENT.c.context.like("%no_new_data%"), ~is_update)
    for sequence, context in connection.execute(empty).all():
        if json.loads(context).get("no_new_data"):
            mine = sa.update(_EVENT).where(_EVENT.c.sequence == sequence)
            connection.execute(mine.values(start=_EVENT.c.marker))
