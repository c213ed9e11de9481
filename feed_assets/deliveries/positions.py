"""Positions of subscriptions in the log: the number of the last change that is in the outbox."""

import sqlalchemy as sa

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.ledger import subscriptions
from feed_assets.ledger.database import insert_into
from feed_assets.ledger.tables import delivery, delivery_owner, delivery_turn, subscription

_LISTENER = "delivered to "


def _listener(name: str, dataset: Feed | str = "") -> str:
    """Return the name under which a subscription reads the log. Without `dataset`, return how such a name begins."""
    return f"{_LISTENER}{name} of {dataset}"


def readers(connection: sa.Connection) -> dict[str, tuple[str, str]]:
    """Return the name and the dataset of each subscription that ever read the log.

    The keys are the names under which they read it (see `_listener`).
    """
    query = sa.select(subscription.c.subscriber).where(subscription.c.subscriber.startswith(_LISTENER))
    parts = {name: name.removeprefix(_LISTENER).partition(" of ") for name in connection.execute(query).scalars()}
    return {subscriber: (name, dataset) for subscriber, (name, _, dataset) in parts.items()}


def forget(connection: sa.Connection, name: str) -> int:
    """Remove a subscription with all its deliveries. Return the number of deliveries."""
    removed = connection.execute(sa.delete(delivery).where(delivery.c.subscription == name)).rowcount
    for table in (delivery_turn, delivery_owner):
        connection.execute(sa.delete(table).where(table.c.subscription == name))
    its_rows = subscription.c.subscriber.startswith(_listener(name), autoescape=True)
    connection.execute(sa.delete(subscription).where(its_rows))
    return removed


def position(connection: sa.Connection, name: str, dataset: Feed) -> int | None:
    """Return the number of the last change that a subscription has read. Return None for a new subscription.

    Raise InvalidDefinition if a subscription of this name has read changes of another dataset.
    """
    beginning, rows = _listener(name), sa.select(subscription.c.subscriber, subscription.c.position)
    its_rows = rows.where(subscription.c.subscriber.startswith(beginning, autoescape=True))
    position_by_dataset = {row.subscriber.removeprefix(beginning): row.position for row in connection.execute(its_rows)}
    if other := position_by_dataset.keys() - {str(dataset)}:
        raise InvalidDefinition(
            f"the subscription {name} of {dataset} has the name of one of {min(other)}: rename it. If the other one is "
            f"no longer declared, run `feed-assets subscriptions drop {name} --all`."
        )
    return position_by_dataset.get(str(dataset))


def advance(connection: sa.Connection, name: str, dataset: Feed, before: int | None, reached: int) -> bool:
    """Move a subscription's position in the log from `before` to `reached`.

    Return False if another process has moved it meanwhile.
    """
    its_key = {"subscriber": _listener(name, dataset), "feed": subscriptions.ALL}
    if before is None:
        first = insert_into(connection, subscription).values(**its_key, position=reached).on_conflict_do_nothing()
        return bool(connection.execute(first).rowcount)
    moved = sa.update(subscription).filter_by(**its_key, position=before).values(position=reached)
    return bool(connection.execute(moved).rowcount)
