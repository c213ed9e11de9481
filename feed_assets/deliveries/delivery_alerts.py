"""Alerts about changes that a target does not accept: `undelivered:<dataset>|<subscription>`.

While a change waits for a person, the name ends with `|person`. So this is an alert of its own, and channels report it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.delivery_targets import Subscription
from feed_assets.deliveries import outbox, positions
from feed_assets.ledger import alerts, subscriptions
from feed_assets.ledger.database import Ledger

UNDELIVERED = "undelivered"
"""The kind of these alerts."""

_PERSON = "|person"
"""End of the name of an alert that needs a person."""


def key_of(subscription: Subscription) -> str:
    """Return the name of a subscription's alert, without the kind."""
    return f"{subscription.dataset}|{subscription.name}"


def keep(
    ledger: Ledger, declared: Iterable[Subscription], failures: Mapping[str, str], now: datetime
) -> Mapping[str, str]:
    """Open and resolve the alerts of a code location's subscriptions, and return their reasons by name.

    `failures` are errors by `key_of` that kept changes out of the outbox. Alerts of subscriptions that another code
    location declares stay. They belong to subscriptions, not to datasets, because several locations may declare a feed.
    """
    subscription_by_key = {key_of(each): each for each in declared}
    reasons = dict(failures)
    with ledger.read() as connection:
        for key, each in subscription_by_key.items():
            problem = outbox.problem(connection, each.name)
            if problem and key not in reasons:
                reasons[f"{key}{_PERSON * outbox.has_dead(connection, each.name)}"] = problem
        gone = _gone(connection, now)
    alerts.keep(ledger, UNDELIVERED, reasons, now, lambda _: False)
    own = {each for key in subscription_by_key for each in (key, f"{key}{_PERSON}")}
    alerts.resolve(ledger, UNDELIVERED, (own | gone) - reasons.keys(), now)
    return reasons


def unsolved(ledger: Ledger, declared: Iterable[Subscription]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the subscriptions whose changes wait for a person, and those that wait for another try, with the reasons.

    The second mapping also has subscriptions with an open alert and no error in the outbox, as after a failed run.
    """
    for_person, again = dict[str, str](), dict[str, str]()
    with ledger.read() as connection:
        opened = alerts.of_kind(connection, UNDELIVERED)
        for each in declared:
            reason = outbox.problem(connection, each.name)
            if reason and outbox.has_dead(connection, each.name):
                for_person[each.name] = reason
            elif reason := reason or opened.get(key_of(each)):
                again[each.name] = reason
    return for_person, again


def resolve_gone(ledger: Ledger, now: datetime) -> None:
    """Resolve the alerts of subscriptions that no code location declares."""
    with ledger.read() as connection:
        gone = _gone(connection, now)
    alerts.resolve(ledger, UNDELIVERED, gone, now)


def _gone(connection: sa.Connection, now: datetime) -> set[str]:
    """Return the open alerts of forgotten subscriptions, and of those that have not read the log for an hour."""
    keys = alerts.of_kind(connection, UNDELIVERED)
    if not keys:
        return set()
    readers = positions.readers(connection)
    lagging = subscriptions.lagging(connection, now - subscriptions.GONE_AFTER)
    idle = {f"{dataset}|{name}" for subscriber, (name, dataset) in readers.items() if subscriber in lagging}
    names = {name for name, _ in readers.values()}
    return {key for key in keys if key.removesuffix(_PERSON) in idle or key.split("|")[1] not in names}
