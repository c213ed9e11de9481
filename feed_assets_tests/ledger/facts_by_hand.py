"""The facts of a ledger, found by going through all of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Partition, parse_update_id
from feed_assets.core.positions import Pin
from feed_assets.core.propagation import Due
from feed_assets.core.readiness import Attempt, Facts, Need
from feed_assets.ledger import pauses, quality, runs, updates
from feed_assets_tests.ledger.held import PARENTS, Held, parent_of
from feed_assets_tests.ledger.records import NOW, due_of

WELL = {updates.PUBLISHED, runs.UNCHANGED}


def facts_by_hand(connection: sa.Connection, held: Held, needs: Sequence[Need]) -> Facts:
    """The facts, by going through everything; what is due of a consumer has an oracle of its own."""
    inputs = {partition for need in needs for partition in need.inputs}
    outputs = {need.output for need in needs}
    sets = {each: tuple(sorted(b for b in held.batches if parent_of(b) == each)) for each in inputs if each in PARENTS}
    members = {member for each in inputs for member in sets.get(each, (each,))}
    newest = _last(held, updates.PUBLISHED)
    published = {place: newest[place] for place in outputs if place in newest}
    pins = {p: Pin(p, newest[p], held.updates[p, newest[p]][1], 7, 1) for p in members if p in newest}
    found = Facts(
        now=NOW,
        newest=pins,
        batches=sets,
        held={place: reason for place in inputs | outputs if (reason := _why_blocked(held, place))},
        published=published,
        consumed={place: read for place in published if (read := _read(held, place, published[place]))},
        late_since={},
        attempts={place: tried for place in outputs if (tried := _attempts(held, place))},
        pruned={place: name for place, name in _last(held, updates.PRUNED).items() if place in members},
        due=_due(connection, needs),
        paused=pauses.paused(connection, held.paused & {need.consumer.feed for need in needs if need.consumer}),
        max_attempts=3,
    )
    late = {need.output: _late_since(held, found, need) for need in needs}
    late_since = {output: moment for output, moment in late.items() if moment}
    return replace(found, late_since=late_since, chosen=_chosen(held, found, needs))


def _last(held: Held, state: str) -> dict[Partition, str]:
    """The last update of each partition in a state."""
    return {place: name for place, name in sorted(held.updates) if held.updates[place, name][0] == state}


def _why_blocked(held: Held, place: Partition) -> str:
    """The different reasons of the checks that failed, in the order of the checks' names."""
    reasons: list[str] = []
    for (where, check), (state, reason) in sorted(held.checks.items(), key=lambda item: item[0]):
        if where == place and state == quality.FAILED and (said := reason or f"check {check} failed") not in reasons:
            reasons.append(said)
    return "; ".join(reasons)


def _read(held: Held, place: Partition, name: str) -> tuple[Pin, ...]:
    """What an update was built from."""
    return tuple(
        sorted(
            Pin(source, position, version, 7, 1)
            for (where, update_id, source), (position, version, is_input) in held.consumed.items()
            if (where, update_id) == (place, name) and is_input
        )
    )


def _late_since(held: Held, found: Facts, need: Need) -> datetime | None:
    """When the first update came that an output was not built from: of what it read, or of a batch that is new."""
    names: list[str] = []
    read = found.consumed.get(need.output, ())
    for pin in read:
        names += [
            name
            for (place, name), (state, version) in held.updates.items()
            if place == pin.partition and state == updates.PUBLISHED
            if name > pin.update_id and version != pin.version
        ]
    known = {pin.partition for pin in read}
    new = {b for each in need.inputs for b in found.batches.get(each, ()) if b not in known} if read else set()
    names += [name for (place, name), (state, _) in held.updates.items() if place in new and state == updates.PUBLISHED]
    return parse_update_id(min(names)) if names else None


def _attempts(held: Held, output: Partition) -> tuple[Attempt, ...]:
    """The runs that failed or were refused, and were not begun before a good one had ended."""
    mine = [ran for ran in held.runs if ran.output == output]
    last = max([ran.finished for ran in mine if ran.state in WELL], default=0)
    bad = [ran for ran in mine if ran.state in {runs.FAILED, updates.REFUSED} and ran.began >= last]
    return tuple(Attempt(ran.pins, ran.state == updates.REFUSED, ran.reason or ran.state) for ran in bad)


def _due(connection: sa.Connection, needs: Sequence[Need]) -> dict[Partition, Due]:
    found: dict[Partition, Due] = {}
    for need in needs:
        if need.consumer:
            by_key = due_of(connection, need.consumer)
            found |= {Partition(need.output.feed, key): each for key, each in by_key.items() if key == need.output.key}
    return found


def _chosen(held: Held, found: Facts, needs: Sequence[Need]) -> dict[tuple[Partition, Partition], Pin | None]:
    """What outputs by events read in place of the newest update."""
    chosen: dict[tuple[Partition, Partition], Pin | None] = {}
    for need in needs:
        if need.consumer is None:
            continue
        what = found.due.get(need.output, Due())
        coming = {each.place for group in (*what.later, *what.incomplete) for each in group.events}
        known = {pin.partition: pin for pin in found.consumed.get(need.output, ())}
        for member in [member for each in need.inputs for member in found.batches.get(each, (each,))]:
            slices = [each for each in what.slices if each.place == member]
            is_table = member.feed in need.tables
            if slices and is_table:
                (piece,) = slices
                chosen[need.output, member] = Pin(member, piece.end, piece.version, start=piece.start)
            elif slices:
                chosen[need.output, member] = _at(held, found, member, slices[0].end)
            elif member in coming or (is_table and member in known):
                chosen[need.output, member] = known.get(member)
    return chosen


def _at(held: Held, found: Facts, member: Partition, end: str) -> Pin | None:
    """The update that an event named, if it is valid still and not the newest; else the newest."""
    state, version = held.updates.get((member, end), ("", ""))
    newest = found.newest.get(member)
    is_older = newest is not None and newest.update_id > end
    return Pin(member, end, version, 7, 1) if is_older and state == updates.PUBLISHED else newest
