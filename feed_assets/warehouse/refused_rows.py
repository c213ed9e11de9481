"""Rows that a table has refused, in the state table `refused`. A load adds them in its transaction, so each once."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from feed_assets.core.sql_text import literal
from feed_assets.warehouse import loader_tables
from feed_assets.warehouse.engines import MOST_OF_A_ROW, Connection, Engine, RefusedRow
from feed_assets.warehouse.statements import REFUSED_PLACE, STATE

_AT_ONCE = 1000
"""The most rows that one statement inserts."""

_MOST_OF_A_REASON = 2_000
"""The most characters of a reason that are read: somebody else may have written a longer one."""


class RefusedMessage(NamedTuple):
    """A refused message by its place, with the reason, and its row as JSON. Redshift's tables have no JSON of it."""

    topic: str
    partition: int
    offset: int
    reason: str
    refused_at: datetime | None
    row: str | None


def refuse(connection: Connection, engine: Engine, topic: str, rows: Sequence[RefusedRow]) -> None:
    """Store the places and reasons of rows that the warehouse could not store."""
    for at in range(0, len(rows), _AT_ONCE):
        page = rows[at : at + _AT_ONCE]
        for partition in {each.partition for each in page}:
            offsets = ", ".join(str(each.offset) for each in page if each.partition == partition)
            connection.execute(
                f"DELETE FROM {STATE}.refused WHERE topic = {literal(topic)} AND topic_partition = {partition} "
                f"AND topic_offset IN ({offsets})"
            )
        values = [
            f"({literal(topic)}, {each.partition}, {each.offset}, {literal(each.reason)}, {engine.now})"
            for each in page
        ]
        connection.execute(f"INSERT INTO {STATE}.refused ({REFUSED_PLACE}) VALUES {', '.join(values)}")


def newest(connection: Connection, topic: str | None, limit: int) -> list[RefusedMessage]:
    """Return up to `limit` refused rows of a topic, or of all topics, newest first."""
    where = f"WHERE topic = {literal(topic)} " if topic else ""
    moment = f"CASE WHEN {loader_tables.is_possible('refused_at')} THEN refused_at END"
    rows = connection.execute(
        f"SELECT topic, topic_partition, topic_offset, left(reason, {_MOST_OF_A_REASON}), {moment}, "
        f"left(row_json, {MOST_OF_A_ROW}) FROM {STATE}.refused {where}"
        f"ORDER BY refused_at DESC, topic, topic_partition DESC, topic_offset DESC LIMIT {limit}"
    )
    return [RefusedMessage(*each) for each in rows]


def drop(connection: Connection, topic: str, until: datetime) -> int:
    """Delete the refused rows of a topic that were refused up to a time, because a person has handled them.

    Return how many there were.
    """
    where = f"WHERE topic = {literal(topic)} AND refused_at <= CAST({literal(until.isoformat())} AS timestamptz)"
    connection.execute("BEGIN")
    [(count,)] = connection.execute(f"SELECT count(*) FROM {STATE}.refused {where}")
    connection.execute(f"DELETE FROM {STATE}.refused {where}")
    connection.execute("COMMIT")
    return int(count)
