"""What a dataset by events reads: the updates that complete propagations name, if they belong together.

Events say what has come, lineage says what it was made of. Where the two differ (a roll-back, a repair, a re-run by
hand), lineage has the last word: inputs of one pipeline are never read at different states of what they come from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from feed_assets.core.consistency import Lineage, belong_together, mixed
from feed_assets.core.events import Recorded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.increments import numbers_in
from feed_assets.core.positions import Pin
from feed_assets.core.propagation import Consumer, Due, Group, Judged, Seen, due


@dataclass(frozen=True)
class Inbox:
    """What an output has to choose from; `events` are those that it has not consumed, `inputs` are all it may read."""

    inputs: tuple[Partition, ...]
    events: Sequence[Recorded] = ()
    seen: Seen = field(default_factory=dict[tuple[str, str], Sequence[tuple[Feed, int]]])
    tables: frozenset[Feed] = frozenset()
    """Inputs that are event tables."""
    newest: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    consumed: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    """What the newest update of the output was built from."""
    valid: Mapping[tuple[Partition, str], Pin] = field(default_factory=dict[tuple[Partition, str], Pin])
    """The updates that events and `consumed` name and that are still valid."""
    lineage: Lineage = field(default_factory=Lineage)


@dataclass(frozen=True)
class Choice:
    """What is due, and what is read in place of the newest update of an input; None: nothing that fits has come yet."""

    due: Due = field(default_factory=Due)
    pins: Mapping[Partition, Pin | None] = field(default_factory=dict[Partition, Pin | None])


def choose(consumer: Consumer, inbox: Inbox) -> Choice:
    """Returns what the next run of an output consumes and reads; `due.waits` says what holds up the rest.

    First what the events say. A pipeline whose updates are mixed then, or that has incomplete ones, is read as it is
    now, if its newest updates belong together; if it is mixed also then, it stays as it was consumed.
    """
    groups = _groups(consumer, inbox)
    choice = _choice(consumer, inbox, groups, Judged())
    wrong = _mixed(inbox, groups, choice)
    doubtful = wrong.keys() | _incomplete(consumer, choice.due)
    whole = frozenset(group for group in groups if group in doubtful and _is_whole(inbox, groups[group]))
    judged = Judged(whole, {group: why for group, why in wrong.items() if group not in whole})
    while doubtful:
        choice = _choice(consumer, inbox, groups, judged)
        wrong = {group: why for group, why in _mixed(inbox, groups, choice).items() if group not in judged.mixed}
        if not wrong:
            break
        judged = Judged(judged.whole - wrong.keys(), {**judged.mixed, **wrong})
    return choice


def _groups(consumer: Consumer, inbox: Inbox) -> dict[Group, tuple[Partition, ...]]:
    """The inputs that may be mixed: several tables of one pipeline, of one partition key."""
    found: dict[Group, list[Partition]] = {}
    for name, tables in consumer.needed.items():
        for each in inbox.inputs if len(tables) > 1 else ():
            if each.feed in tables:
                found.setdefault((name, each.key), []).append(each)
    return {group: tuple(members) for group, members in found.items() if len(members) > 1}


def _incomplete(consumer: Consumer, due: Due) -> set[Group]:
    """Where something is incomplete by its events; a consumer that takes one update at a time takes these first."""
    taken = set[Group]() if consumer.merge else {each.group for each in due.taken}
    return {each.group for each in due.incomplete} - taken


def _is_whole(inbox: Inbox, members: Collection[Partition]) -> bool:
    """Whether the newest of some inputs belong together."""
    lineage, pins = inbox.lineage, [_last(inbox, each) for each in members]
    known = [pin for pin in pins if pin]
    return len(known) == len(pins) and belong_together(known, lineage.built_from, lineage.newest)


def _last(inbox: Inbox, member: Partition) -> Pin | None:
    """The newest of an input; of an event table the last marker that came, or was consumed."""
    if member.feed not in inbox.tables:
        return inbox.newest.get(member)
    markers = [event.marker for event in inbox.events if event.partition == member]
    end = max(markers, default=None)
    return inbox.consumed.get(member) if end is None else Pin(member, end, f"..{end}")


def _choice(consumer: Consumer, inbox: Inbox, groups: Mapping[Group, Collection[Partition]], judged: Judged) -> Choice:
    found = due(consumer, inbox.events, inbox.seen, judged)
    pins = _by_events(inbox, found)
    for group in judged.whole:
        if not any(each.group == group for each in (*found.later, *found.incomplete)):
            pins |= {each: inbox.newest[each] for each in groups[group] if each in inbox.newest}
    for group in judged.mixed:
        pins |= _as_consumed(inbox, groups[group])
    return Choice(found, pins)


def _by_events(inbox: Inbox, found: Due) -> dict[Partition, Pin | None]:
    """The update or slice of what is taken, the consumed one of what is on its way; the newest of all others."""
    slices = {each.partition: each for each in found.slices}
    coming = {event.partition for each in (*found.later, *found.incomplete) for event in each.events}
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
    """A batch of ours, of which the event of its partition tells; one that came after that is not read yet.

    Of batches that were put together no event tells: they hold what came before.
    """
    newest, numbers = inbox.newest.get(batch), numbers_in(batch.name)
    if newest is None or newest.update_id <= end:
        return newest or _consumed(inbox, batch)
    told = (event.marker for event in inbox.events if event.partition == batch.parent)
    is_compacted = numbers is not None and numbers.is_range and newest.update_id not in told
    return newest if is_compacted else _consumed(inbox, batch)


def _up_to(inbox: Inbox, member: Partition, end: str) -> Pin | None:
    """The update that a slice of a feed ends at. If that is no longer valid, it is the newest that is."""
    newest = inbox.newest.get(member)
    return newest if newest is None or newest.update_id <= end else inbox.valid.get((member, end), newest)


def _consumed(inbox: Inbox, member: Partition) -> Pin | None:
    """What was consumed of an input, as it is now, if that is valid still."""
    pin, newest = inbox.consumed.get(member), inbox.newest.get(member)
    if pin is None or member.feed in inbox.tables:
        return pin
    is_newest = newest is not None and pin.update_id == newest.update_id
    return newest if is_newest else inbox.valid.get((member, pin.update_id))


def _as_consumed(inbox: Inbox, members: Iterable[Partition]) -> dict[Partition, Pin | None]:
    """Some inputs as they were consumed together; nothing of any if one of these is gone."""
    pins = {each: _consumed(inbox, each) for each in members}
    return pins if all(pins.values()) else dict.fromkeys(pins)


def _mixed(inbox: Inbox, groups: Mapping[Group, Collection[Partition]], choice: Choice) -> dict[Group, str]:
    """The pipelines whose chosen updates do not belong together, each with the reason."""
    lineage, found = inbox.lineage, dict[Group, str]()
    for group, members in groups.items():
        pins = [choice.pins.get(each, inbox.newest.get(each)) for each in members]
        why = mixed((pin for pin in pins if pin), lineage.built_from, lineage.newest)
        if why:
            found[group] = why
    return found
