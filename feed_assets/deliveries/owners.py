"""Owners of subscriptions: code locations that declare them.

Two code locations on one ledger may use the same name. If they declare the same, they share the work. Otherwise each
would deliver some of the changes to a target of its own, and no target would get all.
"""

from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets.core.delivery_targets import Subscription
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.ledger.database import Ledger, insert_into
from feed_assets.ledger.tables import delivery_owner

LIVE_FOR = timedelta(minutes=15)
"""Time after a tick in which a declaration counts as live. By cron, a location may tick every five minutes only."""

_EACH = timedelta(seconds=30)
"""Interval at which the time of the last tick is recorded. So most ticks write nothing."""


def check(ledger: Ledger, subscription: Subscription, location: str, now: datetime) -> None:
    """Record that a code location declares a subscription. `location` is '' if it has no name.

    Raise InvalidDefinition if another location declares the name differently and has had a tick in the last `LIVE_FOR`.
    A location may change its own declaration at any time.
    """
    each = subscription  # `positions.position` refuses the name of another dataset's subscription.
    declaration = repr((each.transitions, each.target, each.grain, each.level))
    values = {"location": location, "declaration": declaration, "seen": now}
    with ledger.read() as connection:
        owner = _owner(connection, subscription.name)
    if owner and (owner.location, owner.declaration) == (location, declaration) and now < owner.seen + _EACH:
        return
    insert = insert_into(connection, delivery_owner).values(subscription=subscription.name, **values)
    is_own = delivery_owner.c.declaration == insert.excluded.declaration
    is_own |= (delivery_owner.c.location == insert.excluded.location) & (insert.excluded.location != "")
    is_own |= delivery_owner.c.seen <= now - LIVE_FOR
    upsert = insert.on_conflict_do_update(index_elements=["subscription"], set_=values, where=is_own)
    with ledger.write() as connection:
        if connection.execute(upsert).rowcount:
            return
        owner = _owner(connection, subscription.name)
    raise _refusal(subscription, owner)


def refuse_live(connection: sa.Connection, name: str, now: datetime) -> None:
    """Raise InvalidName if a code location still declares a subscription that is to be forgotten.

    Its next tick would begin it anew, without the changes that were not delivered yet.
    """
    owner = _owner(connection, name)
    if owner and now < owner.seen + LIVE_FOR:
        raise InvalidName(
            f"the subscription {name} is declared, and its last tick was at {owner.seen:%H:%M:%S} UTC: expected one "
            "that is no longer declared. Remove its declaration, wait 15 minutes, and try again. To skip changes, "
            "leave out --all."
        )


def last_tick(connection: sa.Connection, name: str) -> datetime | None:
    """Return when a code location last recorded that it declares a subscription (UTC). Return None for a sink."""
    owner = _owner(connection, name)
    return owner.seen if owner else None


def _owner(connection: sa.Connection, name: str) -> sa.Row[tuple[str, str, str, datetime]] | None:
    return connection.execute(sa.select(delivery_owner).where(delivery_owner.c.subscription == name)).one_or_none()


def _refusal(subscription: Subscription, owner: sa.Row[tuple[str, str, str, datetime]] | None) -> InvalidDefinition:
    location = f"the code location {owner.location}" if owner and owner.location else "another code location"
    since = f", whose last tick was at {owner.seen:%H:%M:%S} UTC" if owner else ""
    return InvalidDefinition(
        f"the subscription {subscription.name} of {subscription.dataset} is declared differently by {location}{since}: "
        "rename one of them. If you have changed the declaration, it is used 15 minutes after the last such tick."
    )
