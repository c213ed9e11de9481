"""Failed tries of sinks and alert channels, in the outbox.

The ledger already has what they get: the log, or the state of each alert. So a row holds no copy of it, but the error,
the tries and the pause. Without a failure there is no row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import DeliveryFailed, InvalidName
from feed_assets.core.setting_types import LINEAGE
from feed_assets.deliveries import outbox
from feed_assets.deliveries.outbox import SINK, Delivery, kind_of
from feed_assets.ledger import subscriptions


def failures(connection: sa.Connection, names: Iterable[str]) -> dict[tuple[str, str], Delivery]:
    """Return the failed tries of sinks or alert channels, by name and lane."""
    return {(each.subscription, each.lane): each for each in outbox.waiting(connection, *names)}


def waits(row: Delivery | None, now: datetime, *, again: bool = False) -> bool:
    """Return whether a lane waits for a person or, without `again`, for its next try. No row: it does not wait."""
    return row is not None and (row.is_dead or (row.due > now and not again))


def failed(connection: sa.Connection, head: Delivery, now: datetime, error: DeliveryFailed) -> None:
    """Record a failed try, as the only row of its lane. Earlier tries of the same sequence count, too.

    `head.event` describes what was refused, for people. The time of the first of these tries is added to it.
    """
    last = outbox.first(connection, head.subscription, head.lane)
    is_same = last is not None and last.sequence == head.sequence
    began = last.event["time"] if last and is_same else now.isoformat()
    head = replace(last if last and is_same else head, event={**head.event, "time": began})
    outbox.remove(connection, [last] if last else [])
    outbox.put(connection, [head])
    outbox.failed(connection, head, now, error)


def skip(connection: sa.Connection, name: str) -> Mapping[str, Any]:
    """Move a sink past the one event that it refuses, and return the event in short, so that it can be printed.

    Raise InvalidName if no event waits for a person, or if an event cannot be skipped.
    """
    if not name.startswith(f"{SINK}{LINEAGE}"):
        why = (
            "its consumers read the events in order, and one that is missing is lost to all of them"
            if kind_of(name) == "sink"
            else "each alert is sent until the channel accepts it"
        )
        raise InvalidName(f"nothing is skipped for {name!r}: {why}. Repair the cause, then use `subscriptions retry`.")
    head = outbox.first(connection, name, "")
    if head is None or not head.is_dead:
        raise InvalidName(f"no event waits for a person at {name!r}: see `subscriptions ls`.")
    event = head.event
    subscriptions.advance(connection, name, event["number"])
    outbox.remove(connection, [head])
    return {"number": event["number"], "run": event["run"], "job": event["subject"], **event["data"]}
