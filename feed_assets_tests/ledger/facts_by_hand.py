"""The facts of a ledger, found by a search through all of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.consistency import Lineage
from feed_assets.core.facts import Attempt, Built, Facts
from feed_assets.core.feeds import Partition, parse_update_id
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import Need
from feed_assets.core.update_choice import Choice, Inbox, choose
from feed_assets.ledger import inbox, pauses, quality, runs, updates
from feed_assets_tests.ledger.held import PARENTS, Held, parent_of
from feed_assets_tests.support.ledger_records import MINUTE, NOW

WELL = {updates.PUBLISHED, runs.UNCHANGED}


def facts_by_hand(connection: sa.Connection, held: Held, needs: Sequence[Need]) -> Facts:
    """Return the facts by a search through everything. The due events of a consumer have their own oracle."""
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
    late, tried = _late_since(held, consumed, sets, need), _attempts(held, need.output)
    return Built(published, consumed, late, tried, held.changed(need.output, published) if published else 0)


def _last(held: Held, state: str) -> dict[Partition, str]:
    """Return the last update of each partition in a state."""
    return {partition: name for partition, name in sorted(held.updates) if held.updates[partition, name][0] == state}


def _why_blocked(held: Held, partition: Partition) -> str:
    """Return the distinct reasons of failed checks, in order of the checks' names."""
    reasons: list[str] = []
    for (where, check), (state, reason) in sorted(held.checks.items(), key=lambda item: item[0]):
        if (
            where == partition
            and state == quality.FAILED
            and (said := f"{check}: {reason}" if reason else f"check {check} failed") not in reasons
        ):
            reasons.append(said)
    return "; ".join(reasons)


def _read(held: Held, partition: Partition, name: str) -> tuple[Pin, ...]:
    """Return the pins that an update was built from."""
    return tuple(
        sorted(
            Pin(source, position, version, 7, 1)
            for (where, update_id, source), (position, version, is_input) in held.consumed.items()
            if (where, update_id) == (partition, name) and is_input
        )
    )


def _late_since(
    held: Held, read: Sequence[Pin], sets: Mapping[Partition, tuple[Partition, ...]], need: Need
) -> dict[Partition, datetime]:
    """Return, by input, when the first unread update arrived. It is of an input that was read, or of a new batch."""
    versions = {pin.partition: pin for pin in read}
    new = {b for each in need.partitions for b in sets.get(each, ()) if b not in versions} if read else set()
    late: dict[Partition, list[str]] = {}
    for (partition, name), (state, version) in held.updates.items():
        pin = versions.get(partition)
        is_late = name > pin.update_id and version != pin.version if pin else partition in new
        if state == updates.PUBLISHED and is_late:
            late.setdefault(partition, []).append(name)
    return {partition: moment for partition, names in late.items() if (moment := parse_update_id(min(names)))}


def _attempts(held: Held, output: Partition) -> tuple[Attempt, ...]:
    """Return the failed and refused runs that did not begin before a good one had ended."""
    mine = [(NOW + (number + 1) * MINUTE, ran) for number, ran in enumerate(held.runs) if ran.output == output]
    last = max([ran.finished for _, ran in mine if ran.state in WELL], default=0)
    bad = [each for each in mine if each[1].state in {runs.FAILED, updates.REFUSED} and each[1].began >= last]
    return tuple(
        Attempt(ran.pins, ran.state == updates.REFUSED, ran.reason or ran.state, ended, ran.made_with)
        for ended, ran in bad
    )


def _choices(connection: sa.Connection, held: Held, found: Facts, needs: Sequence[Need]) -> dict[Partition, Choice]:
    """Return what outputs by events consume, and read in place of the newest updates, chosen from everything."""
    choices: dict[Partition, Choice] = {}
    for need in needs:
        if need.consumer:
            events = inbox.waiting(connection, [need.output])
            known = Inbox(
                inputs=tuple(m for each in need.partitions for m in found.batches.get(each, (each,))),
                events=events.get(need.output, ()),
                histories=inbox.seen_by(connection, [need.consumer], events)[need.consumer.feed],
                tables=need.tables,
                newest=found.newest,
                consumed={pin.partition: pin for pin in found.outputs.get(need.output, Built()).consumed},
                valid={key: _pin(held, *key) for key, (state, _) in held.updates.items() if state == updates.PUBLISHED},
                lineage=_lineage(held),
            )
            choices[need.output] = choose(need.consumer, known)
    return choices


def _pin(held: Held, partition: Partition, name: str) -> Pin:
    return Pin(partition, name, held.updates[partition, name][1], 7, 1)


def _lineage(held: Held) -> Lineage:
    """Return what every update was built from in its own partition key, whether or not anything leads to it."""
    made = {(where, name) for where, name, _ in held.consumed} | held.updates.keys()
    built = {
        (where, name): tuple(pin for pin in _read(held, where, name) if pin.partition.key == where.key)
        for where, name in made
    }
    newest = _last(held, updates.PUBLISHED)
    return Lineage(built, {partition: _pin(held, partition, name) for partition, name in newest.items()})
