"""Failed tries of alert channels: rows of the outbox, by channel and lane, with pauses that grow.

A channel that is down has one row, and gets nothing until its pause is over. A notice that is refused has a row of its
own, with the name of its alert as the lane.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.errors import AlertChannelDown, AlertNotDelivered, DeliveryFailed, DeliveryTargetDown, in_short
from feed_assets.deliveries import outbox, outlets
from feed_assets.deliveries.outbox import CHANNEL, Delivery
from feed_assets.ledger.alerts import Notice
from feed_assets.ledger.database import Ledger

WHOLE_CHANNEL = ""
"""The lane of a channel that is down."""

Failures = Mapping[tuple[str, str], Delivery]
"""The last failed tries, by channel and lane."""


def failures_of(connection: sa.Connection, channels: Iterable[str]) -> Failures:
    """Return the last failed tries of some channels. One query reads all."""
    rows = outlets.failures(connection, [f"{CHANNEL}{name}" for name in channels])
    return {(name.removeprefix(CHANNEL), lane): row for (name, lane), row in rows.items()}


def due_notices(notices: Iterable[Notice], failures: Failures, now: datetime) -> list[Notice]:
    """Return the notices that can be tried now.

    After an outage, a channel begins with the alert after the one that failed. So an alert that a channel never takes
    does not keep the others away.
    """
    waiting = {lane for lane, row in failures.items() if outlets.waits(row, now)}
    due = [each for each in notices if waiting.isdisjoint(lanes_of(each))]
    failed = {channel: row.event["subject"] for (channel, lane), row in failures.items() if lane == WHOLE_CHANNEL}
    last = {each.channel: number for number, each in enumerate(due) if failed.get(each.channel) == each.name}
    numbered = sorted(enumerate(due), key=lambda pair: pair[0] <= last.get(pair[1].channel, -1))
    return [each for _, each in numbered]


def lanes_of(notice: Notice) -> set[tuple[str, str]]:
    """Return the keys of the failures that end when a channel accepts a notice."""
    return {(notice.channel, WHOLE_CHANNEL), (notice.channel, notice.name)}


def record(ledger: Ledger, notice: Notice, error: AlertNotDelivered, now: datetime) -> None:
    """Record a failed try. A channel that answers with a refusal is no longer down.

    Refusals are not counted, so no alert waits for a person: nobody might look while no alert arrives.
    """
    is_down = isinstance(error, AlertChannelDown)
    lane, kind = (WHOLE_CHANNEL, DeliveryTargetDown) if is_down else (notice.name, DeliveryFailed)
    event = {"subject": notice.name, "data": {"transition": notice.state}}
    head = Delivery(f"{CHANNEL}{notice.channel}", lane, 0, event, due=now)
    with ledger.write() as connection:
        outlets.failed(connection, head, now, kind(in_short(error)))
        outage = None if is_down else outbox.first(connection, head.subscription, WHOLE_CHANNEL)
        outbox.remove(connection, [outage] if outage else [])


def remove_solved(ledger: Ledger, notices: Iterable[Notice], failures: Failures) -> None:
    """Remove failures of which no notice is left, such as after a kill right after a delivery."""
    waiting = {lane for notice in notices for lane in lanes_of(notice)}
    remove(ledger, [row for lane, row in failures.items() if lane not in waiting])


def remove(ledger: Ledger, rows: Sequence[Delivery]) -> None:
    """Remove failures after a success. If the process is killed before, the next try removes them."""
    if rows:
        with ledger.write() as connection:
            outbox.remove(connection, rows)
