"""The facts of a ledger, found by going through all of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.choosing import Choice
from feed_assets.core.facts import Attempt, Built, Facts
from feed_assets.core.feeds import Partition, parse_update_id
from feed_assets.core.positions import Pin
from feed_assets.core.propagation import Due
from feed_assets.core.readiness import Need
from feed_assets.ledger import pauses, quality, runs, updates
from feed_assets_tests.ledger.held import PARENTS, Held, parent_of
from feed_assets_tests.ledger.records import NOW, due_of

WELL = {updates.PUBLISHED, runs.UNCHANGED}


def facts_by_hand(connection: sa.Connection, held: Held, needs: Sequence[Need]) -> Facts:
    """The facts, by going through everything; what is due of a consumer has an oracle of its own."""
    inputs = {partition for need in needs for partition in need.partitions}
    outputs = {need.output for need in needs}
    sets = {each: tuple(sorted(b for b in held.batches if parent_of(b) == each)) for each in inputs if each in PARENTS}
    members = {member for each in inputs for member in sets.get(each, (each,))}
    newest = _last(held, updates.PUBLISHED)
    pins = {p: Pin(p, newest[p], held.updates[p, newest[p]][1], 7, 1) for p in members if p in newest}
    found = Facts(
        now=NOW,
        outputs={need.output: built for need in needs if (built := _built(held, newest, sets, need)) != Built()},
        newest=pins,
        batches=sets,
        pruned={partition: name for partition, name in _last(held, updates.PRUNED).items() if partition in members},
        failed={partition: reason for partition in inputs | outputs if (reason := _why_blocked(held, partition))},
        paused=pauses.paused(connection, held.paused & {need.consumer.feed for need in needs if need.consumer}),
        max_attempts=3,
    )
    return replace(found, choices=_choices(connection, held, found, needs))


def _built(
    held: Held, newest: Mapping[Partition, str], sets: Mapping[Partition, tuple[Partition, ...]], need: Need
) -> Built:
    published = newest.get(need.output)
    consumed = _read(held, need.output, published) if published else ()
    return Built(published, consumed, _late_since(held, consumed, sets, need), _attempts(held, need.output))


def _last(held: Held, state: str) -> dict[Partition, str]:
    """The last update of each partition in a state."""
    return {partition: name for partition, name in sorted(held.updates) if held.updates[partition, name][0] == state}


def _why_blocked(held: Held, partition: Partition) -> str:
    """The different reasons of the checks that failed, in the order of the checks' names."""
    reasons: list[str] = []
    for (where, check), (state, reason) in sorted(held.checks.items(), key=lambda item: item[0]):
        if (
            where == partition
            and state == quality.FAILED
            and (said := reason or f"check {check} failed") not in reasons
        ):
            reasons.append(said)
    return "; ".join(reasons)


def _read(held: Held, partition: Partition, name: str) -> tuple[Pin, ...]:
    """What an update was built from."""
    return tuple(
        sorted(
            Pin(source, position, version, 7, 1)
            for (where, update_id, source), (position, version, is_input) in held.consumed.items()
            if (where, update_id) == (partition, name) and is_input
        )
    )


def _late_since(
    held: Held, read: Sequence[Pin], sets: Mapping[Partition, tuple[Partition, ...]], need: Need
) -> datetime | None:
    """When the first update came that an output was not built from: of what it read, or of a batch that is new."""
    names: list[str] = []
    for pin in read:
        names += [
            name
            for (partition, name), (state, version) in held.updates.items()
            if partition == pin.partition and state == updates.PUBLISHED
            if name > pin.update_id and version != pin.version
        ]
    known = {pin.partition for pin in read}
    new = {b for each in need.partitions for b in sets.get(each, ()) if b not in known} if read else set()
    names += [
        name
        for (partition, name), (state, _) in held.updates.items()
        if partition in new and state == updates.PUBLISHED
    ]
    return parse_update_id(min(names)) if names else None


def _attempts(held: Held, output: Partition) -> tuple[Attempt, ...]:
    """The runs that failed or were refused, and were not begun before a good one had ended."""
    mine = [ran for ran in held.runs if ran.output == output]
    last = max([ran.finished for ran in mine if ran.state in WELL], default=0)
    bad = [ran for ran in mine if ran.state in {runs.FAILED, updates.REFUSED} and ran.began >= last]
    return tuple(Attempt(ran.pins, ran.state == updates.REFUSED, ran.reason or ran.state) for ran in bad)


def _choices(connection: sa.Connection, held: Held, found: Facts, needs: Sequence[Need]) -> dict[Partition, Choice]:
    """What outputs by events consume, and read in place of the newest update."""
    choices: dict[Partition, Choice] = {}
    for need in needs:
        if need.consumer:
            what = due_of(connection, need.consumer).get(need.output.key, Due())
            choices[need.output] = Choice(what, _pins(held, found, need, what))
    return choices


def _pins(held: Held, found: Facts, need: Need, what: Due) -> dict[Partition, Pin | None]:
    pins: dict[Partition, Pin | None] = {}
    coming = {each.partition for group in (*what.later, *what.incomplete) for each in group.events}
    known = {pin.partition: pin for pin in found.outputs.get(need.output, Built()).consumed}
    for member in [member for each in need.partitions for member in found.batches.get(each, (each,))]:
        slices = [each for each in what.slices if each.partition == member]
        is_table = member.feed in need.tables
        if slices and is_table:
            (piece,) = slices
            pins[member] = Pin(member, piece.end, piece.version, start=piece.start)
        elif slices:
            pins[member] = _at(held, found, member, slices[0].end)
        elif is_table and member in {*coming, *known}:
            pins[member] = known.get(member)
        elif member in coming:
            pins[member] = _still(held, known.get(member))
    return pins


def _still(held: Held, pin: Pin | None) -> Pin | None:
    """A consumed update as it is now, if it is valid."""
    state, version = held.updates.get((pin.partition, pin.update_id), ("", "")) if pin else ("", "")
    return Pin(pin.partition, pin.update_id, version, 7, 1) if pin and state == updates.PUBLISHED else None


def _at(held: Held, found: Facts, member: Partition, end: str) -> Pin | None:
    """The update that an event named, if it is valid still and not the newest; else the newest."""
    state, version = held.updates.get((member, end), ("", ""))
    newest = found.newest.get(member)
    is_older = newest is not None and newest.update_id > end
    return Pin(member, end, version, 7, 1) if is_older and state == updates.PUBLISHED else newest
