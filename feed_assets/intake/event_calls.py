"""Calls by other teams. They send write events of their tables, or ask us to check one of their feeds now.

Everything that is recorded here is a change in the ledger's log. Sensors listen for changes, so a tick starts soon
(ADR 102).
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from feed_assets.core.errors import InvalidName
from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.limits import check_partition
from feed_assets.intake.bodies import Sent, in_slices
from feed_assets.intake.bodies import events as events_of
from feed_assets.intake.group_commit import Together
from feed_assets.intake.receiver import EVENTS_AT_A_TIME, REASONS_TOLD, RequestAnswer, reason_entry
from feed_assets.intake.refused import RefusedRequest
from feed_assets.ledger import event_rejects, event_store
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync, sync_batches
from feed_assets.sources.event_rows import Columns

EVENTS_PER_CALL = 5000
"""The most write events of one request. One transaction records them all."""

_COLUMNS = Columns()
_LARGE = 16_384
"""After an event with more bytes than this, other requests get a turn."""


@dataclass(frozen=True)
class WrittenSource:
    """An event source whose owners may send events.

    `named` replaces the table's name in an event by the name that feed_assets uses. If it cannot, it returns a rejected
    event.
    """

    name: str
    named: Callable[[WriteEvent, datetime], WriteEvent | Rejected]
    refuse_out_of_order: bool = False


@dataclass(frozen=True)
class _CheckedEvents:
    source: WrittenSource
    new: Sequence[WriteEvent]
    rejected: Sequence[Rejected]


@dataclass
class Calls:
    """Handlers of calls by other teams.

    `sources` has the event sources by name. `polled` has the names of polled foreign feeds, and whether each is
    appendable.
    """

    services: Services
    sources: Mapping[str, WrittenSource] = field(default_factory=dict[str, WrittenSource])
    polled: Mapping[str, bool] = field(default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        self._record = Together(self._recorded)

    def source(self, name: str) -> WrittenSource:
        """Return the event source of this name. Raise RefusedRequest if there is none."""
        if name not in self.sources:
            raise RefusedRequest(404, f"no event source {name!r} takes events here: ask the operator of this receiver")
        return self.sources[name]

    async def record(self, source: WrittenSource, body: bytes, kind: str) -> RequestAnswer:
        """Record write events, in one transaction with the events of other requests in progress.

        The events are in the ledger before the answer. Sending them again is harmless. Raise RefusedRequest for too
        many events, or a malformed body.
        """
        now, read = self.services.now(), list[WriteEvent | Rejected]()
        for sent in in_slices(events_of(body, kind), lambda each: len(each.raw), EVENTS_AT_A_TIME):
            for each in sent:
                read.append(_read(source, each, now))
                if len(each.raw) > _LARGE:
                    await asyncio.sleep(0)
            if len(read) > EVENTS_PER_CALL:
                raise RefusedRequest(
                    413, f"the body has more than {EVENTS_PER_CALL} events: send it in several requests"
                )
            await asyncio.sleep(0)
        new = [each for each in read if isinstance(each, WriteEvent)]
        first = [each for each in read if isinstance(each, Rejected)]
        refused = {each.raw: each.reason for each in await self._record(_CheckedEvents(source, new, first))}
        reasons = [
            reason_entry(number, why) for number, each in enumerate(read) if (why := _why(each, refused)) is not None
        ]
        answer = {"accepted": len(read) - len(reasons), "rejected": len(reasons), "reasons": reasons[:REASONS_TOLD]}
        return RequestAnswer(json.dumps(answer, ensure_ascii=False), len(read) - len(reasons), len(reasons))

    def _recorded(self, group: Sequence[_CheckedEvents]) -> list[tuple[Rejected, ...]]:
        now, refused = self.services.now(), list[tuple[Rejected, ...]]()
        with self.services.ledger.change() as connection:
            for checked in group:
                source, refuse = checked.source.name, checked.source.refuse_out_of_order
                refused.append(event_store.record(connection, source, checked.new, now, refuse_out_of_order=refuse))
                event_rejects.reject(connection, source, checked.rejected, now)
        return refused

    def wake(self, feed: str, key: str) -> dict[str, Any]:
        """Check a partition of a foreign feed now, and record new updates.

        Return the newest valid update of the partition or, for an appendable feed, of each batch. Raise RefusedRequest
        for a feed that is not polled, or an invalid partition key.
        """
        if feed not in self.polled:
            raise RefusedRequest(404, f"{feed!r} is not a polled foreign feed: ask the operator of this receiver")
        try:
            partition = check_partition(Partition(Feed.parse(feed), key))
        except InvalidName as error:
            raise RefusedRequest(400, str(error)) from None
        services, board = self.services, self.services.board_of(partition.feed)
        if self.polled[feed]:
            _, pins = sync_batches(board, services.ledger, partition, services.now())
        else:
            _, pin = sync(board, services.ledger, partition, services.now())
            pins = (pin,) if pin else ()
        return {"feed": feed, "partition": key, "updates": {str(pin.partition.key): pin.update_id for pin in pins}}


def _read(source: WrittenSource, sent: Sent, now: datetime) -> WriteEvent | Rejected:
    raw, value = sent.raw.decode(errors="surrogateescape"), cast(object, sent.value)
    if sent.broken or not isinstance(value, dict):
        return Rejected(raw, sent.broken or "malformed: expected one JSON object")
    read = _COLUMNS.read(cast(dict[str, Any], value))
    return source.named(read, now) if isinstance(read, WriteEvent) else read


def _why(read: WriteEvent | Rejected, refused: Mapping[str, str]) -> str | None:
    """Return the reason why an event was rejected, here or by the ledger. Return None if it was recorded."""
    if isinstance(read, Rejected):
        return read.reason
    if not refused:  # Below, the event is converted to JSON again, which takes long.
        return None
    return refused.get(Rejected(event_rejects.in_json(read), "").raw)
