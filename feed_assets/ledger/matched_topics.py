"""Topics that match the pattern of a code location, one row for each: so that definitions load without a broker.

Only the connector records topics, and only `feed-assets kafka forget` removes them.
"""

import json
from collections.abc import Mapping

import sqlalchemy as sa
from pydantic import SecretStr

from feed_assets.ledger.database import drop_cursor, look, put_cursors
from feed_assets.ledger.tables import cursor

_OF = "topic of "


def recorded(connection: sa.Connection, prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the recorded topics of a pattern's tables, each with the fields of its message key, if they were read."""
    begin = f"{_OF}{prefix}/"
    query = sa.select(cursor.c.name, cursor.c.value).where(cursor.c.name.startswith(begin, autoescape=True))
    names = {name.removeprefix(begin): value for name, value in connection.execute(query)}
    # A longer prefix, such as `shop/eu` beside `shop`, is another pattern's: a topic's name has no slash.
    return {name: tuple(json.loads(value)) for name, value in names.items() if "/" not in name}


def recorded_in(ledger_url: SecretStr, prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the recorded topics in a ledger as it is. Return {} if there is no ledger yet.

    Definitions load in many processes, and some of them fork later. So no connection stays open.
    """
    with look(ledger_url) as ledger:
        if ledger is None:
            return {}
        with ledger.read() as connection:
            return recorded(connection, prefix)


def record(connection: sa.Connection, prefix: str, topics: Mapping[str, tuple[str, ...]]) -> None:
    """Record topics of a pattern, each with the fields of its message key.

    Each topic is a row of its own. So two connectors that record at once lose none, and a repetition changes nothing.
    """
    put_cursors(connection, {f"{_OF}{prefix}/{name}": json.dumps(fields) for name, fields in topics.items()})


def forget(connection: sa.Connection, prefix: str, topic: str) -> bool:
    """Remove the record of a topic. Return whether there was one."""
    return drop_cursor(connection, f"{_OF}{prefix}/{topic}")
