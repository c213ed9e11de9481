"""Facts for `core.update_choice`, for all outputs at once, and the resulting choices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.core.pins import Pin
from feed_assets.core.propagation import Consumer
from feed_assets.core.readiness import Need
from feed_assets.core.update_choice import Choice, Inbox, choose
from feed_assets.ledger import inbox, lineage

Members = Mapping[Partition, tuple[Partition, ...]]
"""The batches of each partition of an appendable input."""
_Inboxes = dict[Partition, tuple[Consumer, Inbox]]


def choices(
    connection: sa.Connection,
    needs: Sequence[Need],
    batches: Members,
    newest: Mapping[Partition, Pin],
    consumed: Mapping[Partition, tuple[Pin, ...]],
) -> dict[Partition, Choice]:
    """Return for each output the events that its next run consumes, and the updates that it reads.

    `consumed` has the pins of each output's newest update. The number of statements depends on the levels of the
    lineage, not on outputs or consumers.
    """
    inboxes = _inboxes(connection, needs, batches, newest, consumed)
    known_lineage = lineage.NOTHING
    pins = {pin for consumer, each in inboxes.values() if _is_judged(consumer) for pin in _candidates(each)}
    while pins:
        known_lineage = lineage.extend(connection, known_lineage, pins)
        inboxes = {
            output: (consumer, replace(each, lineage=known_lineage)) for output, (consumer, each) in inboxes.items()
        }
        pins = {pin for pin in _chosen(inboxes) if (pin.partition, pin.update_id) not in known_lineage.built_from}
    return {output: choose(consumer, each) for output, (consumer, each) in inboxes.items()}


def _is_judged(consumer: Consumer) -> bool:
    """Return whether a consumer reads several tables of one pipeline.

    Only such a consumer could mix data of different propagations, so only its lineage is compared.
    """
    return any(len(tables) > 1 for tables in consumer.needed.values())


def _candidates(each: Inbox) -> Iterable[Pin]:
    return [*(each.newest[partition] for partition in each.inputs if partition in each.newest), *each.consumed.values()]


def _chosen(inboxes: _Inboxes) -> Iterable[Pin]:
    """Return the pins that would be chosen by the part of the lineage that was read so far.

    The lineage of these pins may not be read yet.
    """
    judged = ((consumer, each) for consumer, each in inboxes.values() if _is_judged(consumer))
    return (pin for consumer, each in judged for pin in choose(consumer, each).pins.values() if pin)


def _inboxes(
    connection: sa.Connection,
    needs: Sequence[Need],
    batches: Members,
    newest: Mapping[Partition, Pin],
    consumed: Mapping[Partition, tuple[Pin, ...]],
) -> _Inboxes:
    by_events = [need for need in needs if need.consumer]
    if not by_events:
        return {}
    consumers = {need.output.feed: need.consumer for need in by_events if need.consumer}
    events = inbox.waiting(connection, [need.output for need in by_events])
    history_by_feed = inbox.seen_by(connection, consumers.values(), events)
    inboxes: _Inboxes = {}
    for need in by_events:
        inputs = tuple(member for each in need.partitions for member in batches.get(each, (each,)))
        own_inbox = Inbox(inputs, events.get(need.output, ()), history_by_feed[need.output.feed], need.tables)
        inboxes[need.output] = consumers[need.output.feed], own_inbox
    valid = lineage.valid(connection, _named(inboxes, consumed, newest))
    return {
        output: (consumer, replace(each, newest=newest, consumed=_by_partition(consumed.get(output, ())), valid=valid))
        for output, (consumer, each) in inboxes.items()
    }


def _by_partition(pins: Iterable[Pin]) -> dict[Partition, Pin]:
    return {pin.partition: pin for pin in pins}


def _named(
    inboxes: _Inboxes, consumed: Mapping[Partition, tuple[Pin, ...]], newest: Mapping[Partition, Pin]
) -> set[tuple[Partition, str]]:
    """Return the updates whose lineage is needed: those that events announce and those that outputs last read.

    Skip the newest updates: the caller has them.
    """
    named = {(pin.partition, pin.update_id) for output in inboxes for pin in consumed.get(output, ())}
    for _, each in inboxes.values():
        named |= {(event.partition, event.marker) for event in each.events if event.partition.feed not in each.tables}
    return {key for key in named if key[0] not in newest or newest[key[0]].update_id != key[1]}
