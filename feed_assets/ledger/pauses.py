"""Paused consumers: no runs of them are requested, and their new data stay due."""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.ledger.database import Ledger, upsert
from feed_assets.ledger.tables import due, pause


def pause_consumer(ledger: Ledger, consumer: Feed, why: str, by: str | None, now: datetime) -> None:
    """Pause a consumer: request no runs of it until it is resumed."""
    with ledger.write() as connection:
        row = {"feed": str(consumer), "why": why, "who": by, "at": now}
        upsert(connection, pause, [row], ["why", "who", "at"])


def resume(ledger: Ledger, consumer: Feed, now: datetime) -> bool:
    """End a consumer's pause, and let the next tick decide its waiting outputs. Return False if it was not paused."""
    with ledger.write() as connection:
        was_paused = connection.execute(sa.delete(pause).where(pause.c.feed == str(consumer))).rowcount
        connection.execute(sa.update(due).where(due.c.feed == str(consumer)).values(look_at=now))
    return bool(was_paused)


def paused(connection: sa.Connection, consumers: Collection[Feed]) -> dict[Feed, str]:
    """Return those consumers that are paused, each with a text that says since when, by whom and why."""
    feeds = set(consumers)
    rows = [(Feed.parse(row.feed), row) for row in connection.execute(sa.select(pause))] if feeds else []
    return {feed: _in_words(feed, row) for feed, row in rows if feed in feeds}


def _in_words(feed: Feed, row: sa.Row[tuple[str, str, str | None, datetime]]) -> str:
    author, why = f" by {row.who}" if row.who else "", f": {row.why}" if row.why else ""
    return f"paused since {row.at:%Y-%m-%d %H:%M} UTC{author}{why}; `feed-assets events resume {feed}` ends it"
