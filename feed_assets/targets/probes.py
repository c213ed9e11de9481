"""The room of each compute target: its free resources in the last answer, minus what runs were granted since.

All processes share the answers through the ledger.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial

from feed_assets.core.resources import NOTHING
from feed_assets.core.target_room import Grant, Probe, Room, free_of, spread, unseen
from feed_assets.core.targets import ComputeTarget, Connect, Local
from feed_assets.ledger import target_probes
from feed_assets.ledger.database import Ledger

AT_ONCE = 16
"""Greatest number of targets that are probed at the same time."""

Targets = Mapping[str, ComputeTarget]

_SIZED = (Local, Connect)
"""Kinds of targets whose size is in the settings."""


def answers(ledger: Ledger, targets: Targets, now: datetime) -> dict[str, Probe]:
    """Return the last answer of each target. Probe targets whose answer is old, unless another process probes them.

    The probes run at the same time. The result lacks targets that have no answer yet.
    """
    fresh, stale = target_probes.answers(ledger, [*targets], now)
    every = fresh | (_ask(ledger, {name: targets[name] for name in stale}, now) if stale else {})
    return {name: _with_own_size(targets[name], each) for name, each in every.items()}


def _with_own_size(target: ComputeTarget, probe: Probe) -> Probe:
    """Return an answer with the size in this process's settings, if a target of its kind has a size there.

    The process that probed the target may have had other settings.
    """
    if not isinstance(target, _SIZED) or probe.offline:
        return probe
    return replace(probe, total=target.total, free=target.total)


def ask_again(ledger: Ledger, name: str, target: ComputeTarget, now: datetime) -> Probe:
    """Probe a target even if its last answer is new, and return its answer."""
    return _ask(ledger, {name: target}, now)[name]


def _ask(ledger: Ledger, targets: Targets, now: datetime) -> dict[str, Probe]:
    from feed_assets.targets.looks import look  # requests takes a tenth of a second to load

    with ThreadPoolExecutor(min(len(targets), AT_ONCE)) as pool:
        probes = pool.map(partial(look, now), targets.values())
        return target_probes.keep(ledger, dict(zip(targets, probes, strict=True)))


def rooms(
    targets: Targets, probes: Mapping[str, Probe], grants: Mapping[str, Sequence[Grant]], closed: Mapping[str, str]
) -> dict[str, Room]:
    """Return the room of each target, by name.

    Args:
        targets: The declared targets.
        probes: Their last answers.
        grants: The resources that runs have been granted there.
        closed: The reasons why this process cannot use some targets.
    """
    return {
        name: _room(target, probes.get(name), grants.get(name, ()), closed.get(name))
        for name, target in targets.items()
    }


def _room(target: ComputeTarget, probe: Probe | None, grants: Sequence[Grant], closed: str | None) -> Room:
    """Return the room of one target. Without a usable answer, it is closed and nothing is free."""
    if closed is None and probe is None:
        closed = "is being asked"
    if closed is None and probe and probe.offline:
        closed = f"offline since {probe.since or probe.at:%H:%M} UTC ({probe.offline})"
    may_grow = not isinstance(target, _SIZED)
    room = Room(NOTHING, NOTHING, labels=target.labels, closed=closed, needs=target.needs, may_grow=may_grow)
    if probe is None or probe.offline:
        return room
    granted, machines = sum((each.amount for each in grants), NOTHING), spread(probe.workers, unseen(probe, grants))
    free = free_of(probe, grants)
    return replace(room, total=probe.total, free=free, queued=probe.queued, granted=granted, workers=machines)
