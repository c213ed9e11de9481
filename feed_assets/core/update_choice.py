"""Choice of the updates that a dataset built by events reads: the updates of complete propagations.

Events report which updates arrived. Lineage shows from which data an update was made. The two differ after a roll-back,
a repair or a manual re-run. Then lineage decides: inputs of one pipeline are never read if they were made from
different states of their sources.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from feed_assets.core.batch_names import numbers_in
from feed_assets.core.consistency import Lineage, belong_together, mixed
from feed_assets.core.events import Recorded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.propagation import Consumer, Due, Group, Judged, Seen, due


@dataclass(frozen=True)
class Inbox:
    """Everything that an output may choose from.

    `inputs` are all partitions that it may read, and `events` are those events that it has not consumed.
    """

    inputs: tuple[Partition, ...]
    events: Sequence[Recorded] = ()
    histories: Seen = field(default_factory=dict[tuple[str, str], Sequence[tuple[Feed, int]]])
    tables: frozenset[Feed] = frozenset()
    """Inputs that are event tables."""
    newest: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    consumed: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    """The pins from which the output's newest update was built."""
    valid: Mapping[tuple[Partition, str], Pin] = field(default_factory=dict[tuple[Partition, str], Pin])
    """Updates that events or `consumed` name and that are still valid, by partition and update id."""
    lineage: Lineage = field(default_factory=Lineage)


@dataclass(frozen=True)
class Choice:
    """The events that are due, and the pins that a run reads. An input without a pin is read at its newest update.

    A pin of None means that the input cannot be read yet, because none of its updates fits the other inputs.
    """

    due: Due = field(default_factory=Due)
    pins: Mapping[Partition, Pin | None] = field(default_factory=dict[Partition, Pin | None])


def choose(consumer: Consumer, inbox: Inbox) -> Choice:
    """Choose which events the next run of an output consumes, and which updates it reads.

    The result's `due.waits` is the reason why other propagations wait.

    The first choice follows the events. For a pipeline, it may be incomplete, or mixed (its updates were made from
    different data). Then the newest updates of the pipeline are read, if they belong together. If the choice is still
    mixed, the updates that were consumed last are read again.
    """
    groups = _groups(consumer, inbox)
    choice = _choice(consumer, inbox, groups, Judged())
    wrong = _mixed(inbox, groups, choice)
    doubtful = wrong.keys() | _incomplete(consumer, choice.due)
    consistent = frozenset(group for group in groups if group in doubtful and _is_whole(inbox, groups[group]))
    judged = Judged(consistent, {group: why for group, why in wrong.items() if group not in consistent})
    while doubtful:
        choice = _choice(consumer, inbox, groups, judged)
        wrong = {group: why for group, why in _mixed(inbox, groups, choice).items() if group not in judged.mixed}
        if not wrong:
            break
        judged = Judged(judged.consistent - wrong.keys(), {**judged.mixed, **wrong})
    return choice


def _groups(consumer: Consumer, inbox: Inbox) -> dict[Group, tuple[Partition, ...]]:
    """Return the groups of inputs in which data of different propagations could be mixed.

    A group has several tables of one pipeline with the same partition key.
    """
    members_by_group: dict[Group, list[Partition]] = {}
    for name, tables in consumer.needed.items():
        for each in inbox.inputs if len(tables) > 1 else ():
            if each.feed in tables:
                members_by_group.setdefault((name, each.key), []).append(each)
    return {group: tuple(members) for group, members in members_by_group.items() if len(members) > 1}


def _incomplete(consumer: Consumer, due: Due) -> set[Group]:
    """Return the groups of events whose propagation still lacks an event of a required table.

    Without `merge`, skip the groups of the propagations that the run takes.
    """
    selected = set[Group]() if consumer.merge else {each.group for each in due.selected}
    return {each.group for each in due.incomplete} - selected


def _is_whole(inbox: Inbox, members: Collection[Partition]) -> bool:
    """Return whether the newest updates of these inputs were made of the same data, so that one run may read them."""
    lineage, pins = inbox.lineage, [_last(inbox, each) for each in members]
    valid_pins = [pin for pin in pins if pin]
    return len(valid_pins) == len(pins) and belong_together(valid_pins, lineage.built_from, lineage.newest)


def _last(inbox: Inbox, member: Partition) -> Pin | None:
    """Return the pin of an input's newest data.

    For an event table, this is a slice up to the marker of the last unconsumed event. If there is no unconsumed event,
    it is the slice that the output last read.
    """
    if member.feed not in inbox.tables:
        return inbox.newest.get(member)
    markers = [event.marker for event in inbox.events if event.partition == member]
    end = max(markers, default=None)
    return inbox.consumed.get(member) if end is None else Pin(member, end, f"..{end}")


def _choice(consumer: Consumer, inbox: Inbox, groups: Mapping[Group, Collection[Partition]], judged: Judged) -> Choice:
    due_events = due(consumer, inbox.events, inbox.histories, judged)
    pins = _by_events(inbox, due_events)
    for group in judged.consistent:
        if not any(each.group == group for each in (*due_events.later, *due_events.incomplete)):
            pins |= {each: inbox.newest[each] for each in groups[group] if each in inbox.newest}
    for group in judged.mixed:
        pins |= _as_consumed(inbox, groups[group])
    return Choice(due_events, pins)


def _by_events(inbox: Inbox, due_events: Due) -> dict[Partition, Pin | None]:
    """Return the pins that events select. An input without an entry is read at its newest update.

    An input with new rows in the run's slices is read up to the end of its slice. An input that has only events of
    other propagations is read again at the update that the output last read.
    """
    slices = {each.partition: each for each in due_events.slices}
    coming = {event.partition for each in (*due_events.later, *due_events.incomplete) for event in each.events}
    pins: dict[Partition, Pin | None] = {}
    for member in inbox.inputs:
        is_table = member.feed in inbox.tables
        held = member.parent if member.parent not in inbox.inputs else None
        if member in slices and is_table:
            piece = slices[member]
            pins[member] = Pin(member, piece.end, piece.version, start=piece.start)
        elif member in slices:
            pins[member] = _up_to(inbox, member, slices[member].end)
        elif held in slices:
            pins[member] = _not_after(inbox, member, slices[held].end)
        elif held in coming or member in coming or (is_table and member in inbox.consumed):
            pins[member] = _consumed(inbox, member)
    return pins


def _not_after(inbox: Inbox, batch: Partition, end: str) -> Pin | None:
    """Return the newest pin of a batch if its update id is not after `end`, the end of its partition's slice.

    Otherwise return the pin that the output last read. A compacted batch is always read, because it has no events and
    holds only earlier rows.
    """
    newest, numbers = inbox.newest.get(batch), numbers_in(batch.name)
    if newest is None or newest.update_id <= end:
        return newest or _consumed(inbox, batch)
    markers = (event.marker for event in inbox.events if event.partition == batch.parent)
    is_compacted = numbers is not None and numbers.is_range and newest.update_id not in markers
    return newest if is_compacted else _consumed(inbox, batch)


def _up_to(inbox: Inbox, member: Partition, end: str) -> Pin | None:
    """Return the pin of the update to which the slice of a feed extends.

    If that update is invalid, return the newest pin.
    """
    newest = inbox.newest.get(member)
    return newest if newest is None or newest.update_id <= end else inbox.valid.get((member, end), newest)


def _consumed(inbox: Inbox, member: Partition) -> Pin | None:
    """Return the pin of the update that the output last read of an input.

    Return None if that update is no longer valid.
    """
    pin, newest = inbox.consumed.get(member), inbox.newest.get(member)
    if pin is None or member.feed in inbox.tables:
        return pin
    is_newest = newest is not None and pin.update_id == newest.update_id
    return newest if is_newest else inbox.valid.get((member, pin.update_id))


def _as_consumed(inbox: Inbox, members: Iterable[Partition]) -> dict[Partition, Pin | None]:
    """Return the pins of inputs that belong together, as the output last read them.

    If one of these updates is no longer valid, return None for all of them.
    """
    pins = {each: _consumed(inbox, each) for each in members}
    return pins if all(pins.values()) else dict.fromkeys(pins)


def _mixed(inbox: Inbox, groups: Mapping[Group, Collection[Partition]], choice: Choice) -> dict[Group, str]:
    """Return the groups of inputs whose chosen updates were made of different data, each with the reason."""
    lineage, reason_by_group = inbox.lineage, dict[Group, str]()
    for group, members in groups.items():
        pins = [choice.pins.get(each, inbox.newest.get(each)) for each in members]
        why = mixed((pin for pin in pins if pin), lineage.built_from, lineage.newest)
        if why:
            reason_by_group[group] = why
    return reason_by_group
