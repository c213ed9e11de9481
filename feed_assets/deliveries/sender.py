"""Delivery of a subscription's outbox to its target.

A change is removed from the outbox only after the target has accepted it. So a kill may repeat a delivery, but loses
none. Only the process that has the subscription's turn delivers, and it reads a delivery again when it takes the turn.
So two processes cannot change the order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from feed_assets.core.delivery_targets import Statement, Subscription, Target, Webhook
from feed_assets.core.errors import DeliveryRefused, DeliveryTargetDown, FeedAssetsError
from feed_assets.deliveries import outbox, positions, sql_delivery, webhook
from feed_assets.deliveries.changes import DatasetChange, changes_between
from feed_assets.deliveries.outbox import Delivery
from feed_assets.ledger import log
from feed_assets.ledger.database import Ledger
from feed_assets.secret_stores import ANSWER_SECONDS

CHANGES_PER_STEP = 1000
"""Number of changes that one transaction puts into the outbox."""

_MARGIN = timedelta(seconds=30)
"""Time that a turn lasts after the longest try. It also covers clocks that differ between hosts."""

_AHEAD = timedelta(seconds=10)
"""Time that a turn is taken ahead. So a quick target needs no write of the ledger before each try."""

Describe = Callable[[DatasetChange], Mapping[str, Any]]
"""A function that returns the CloudEvent of a change."""

Clock = Callable[[], datetime]


def fill(
    ledger: Ledger, subscription: Subscription, describe: Describe, now: datetime, out_of_time: Callable[[], bool]
) -> bool:
    """Put new changes of the dataset into the outbox. A new subscription gets the changes that follow its first call.

    Return False if the time is over and changes are left. One step of `CHANGES_PER_STEP` is always made.
    The position in the log moves in the same transaction, and only if no other process has moved it since it was read.
    So a slow process cannot add changes again that another process has delivered meanwhile.
    """
    name, dataset = subscription.name, subscription.dataset
    while True:
        with ledger.read() as connection:
            upto, after = log.last(connection), positions.position(connection, name, dataset)
            begin = upto if after is None else after
            changes = changes_between(connection, subscription, begin, upto, limit=CHANGES_PER_STEP)
        is_last = len(changes) < CHANGES_PER_STEP
        reached = upto if is_last else changes[-1].sequence
        new = [_delivery(subscription, each, describe, now) for each in changes]
        if after == reached:
            return True
        with ledger.write() as connection:
            if not positions.advance(connection, name, dataset, after, reached):
                return True
            outbox.put(connection, new)
        if out_of_time():
            return is_last


def _delivery(subscription: Subscription, change: DatasetChange, describe: Describe, now: datetime) -> Delivery:
    return Delivery(subscription.name, change.partition.key, change.sequence, describe(change), due=now)


def deliver(ledger: Ledger, subscription: Subscription, clock: Clock, out_of_time: Callable[[], bool]) -> int:
    """Deliver what can be tried now, until nothing is left or the time is over. Return how many changes were accepted.

    A target that is down ends the call, because the next delivery would fail, too. Other failures hold only their lane.
    One try is always made.
    """
    turn, count = _Turn(ledger, subscription), 0
    try:
        for head in _heads(ledger, subscription, clock):
            group = turn.take(head, clock())
            if group is None:
                break
            error = _error_of(subscription.target, group, clock()) if group else None
            if error is None:
                count += _remove(ledger, subscription, group)
            else:
                with ledger.write() as connection:
                    outbox.failed(connection, group[0], clock(), error)
            if isinstance(error, DeliveryTargetDown) or out_of_time():
                break
    finally:
        turn.end()
    return count


def _remove(ledger: Ledger, subscription: Subscription, group: Sequence[Delivery]) -> int:
    """Remove the deliveries that a target has accepted, and return their number.

    One refresh of a view serves all deliveries up to the last of the group.
    """
    if not group:
        return 0
    if not subscription.target.one_lane:
        with ledger.write() as connection:
            outbox.remove(connection, group)
        return len(group)
    count = 0
    while True:
        with ledger.write() as connection:
            removed = outbox.remove_upto(connection, subscription.name, group[-1].sequence)
        count += removed
        if removed < outbox.REMOVED_PER_STEP:
            return count


def _heads(ledger: Ledger, subscription: Subscription, clock: Clock) -> Iterator[Delivery]:
    """Yield the first delivery of each lane that can be tried, until there is none.

    If the target is a `RefreshView`, all deliveries are one lane.
    """
    name, one_lane = subscription.name, subscription.target.one_lane
    while True:
        with ledger.read() as connection:
            is_down = outbox.is_down(connection, name, clock())
            heads = [] if is_down else outbox.heads(connection, name, clock(), one_lane=one_lane)
        if not heads:
            return
        yield from heads


def _error_of(target: Target, group: Sequence[Delivery], now: datetime) -> FeedAssetsError | None:
    """Deliver, and return the error if the target does not accept. All but outages count as refusals."""
    try:
        _send(target, group, now)
    except FeedAssetsError as error:
        return error
    except Exception as error:  # noqa: BLE001  Otherwise the change would be tried at each tick, for ever.
        kind = type(error).__name__  # Its text may have secrets.
        return DeliveryRefused(f"the {target.kind} was not reached, because of an unexpected {kind}: report it.")
    return None


def _send(target: Target, group: Sequence[Delivery], now: datetime) -> None:
    if isinstance(target, Webhook):
        webhook.post_event(target, group[0].event, now)
    elif isinstance(target, Statement):
        sql_delivery.run(target, group[0].event)
    else:
        sql_delivery.refresh(target)


class _Turn:
    """The turn of this process to deliver to one subscription."""

    def __init__(self, ledger: Ledger, subscription: Subscription) -> None:
        self._ledger, self._name, self._holder = ledger, subscription.name, uuid4().hex
        self._one_lane = subscription.target.one_lane
        look_ups = 2 * ANSWER_SECONDS if isinstance(subscription.target, Webhook) else 0
        self._lasts = timedelta(seconds=subscription.target.seconds + look_ups) + _MARGIN
        self._until: datetime | None = None

    def take(self, head: Delivery, now: datetime) -> list[Delivery] | None:
        """Take or prolong the turn before a try, and return the deliveries that one call to the target serves.

        For a view, return only the first and the last delivery. One refresh also serves those between them.
        Return None if another process has the turn. Return [] if another process has tried `head` since it was read.
        """
        is_long_enough = self._until is not None and now + self._lasts <= self._until
        with self._ledger.read() if is_long_enough else self._ledger.write() as connection:
            if not is_long_enough:
                until = now + self._lasts + _AHEAD
                is_taken = outbox.take_turn(connection, self._name, self._holder, now, until)
                self._until = until if is_taken else None
            if not outbox.has_turn(connection, self._name, self._holder):
                return None
            if self._one_lane:
                return outbox.ends(connection, self._name)
            return [head] if outbox.first(connection, self._name, head.lane) == head else []

    def end(self) -> None:
        """End the turn. If the process is killed, the turn ends when its time is over."""
        if self._until:
            with self._ledger.write() as connection:
                outbox.end_turn(connection, self._name, self._holder)
