"""Comparison by lineage of inputs from one pipeline: were they made of the same data? Versions decide.

The newest update of a dataset stands for every older one with the same rows. Its own inputs are what these rows are
made of now, although consumers of the older updates were not built again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from feed_assets.core.feeds import Partition
from feed_assets.core.pins import Pin

BuiltFrom = Mapping[tuple[Partition, str], tuple[Pin, ...]]
"""The pins that updates were built from, by partition and update id."""
Newest = Mapping[Partition, Pin]
"""The newest published update of partitions."""


@dataclass(frozen=True)
class Lineage:
    """Ledger facts about some updates and all that they lead back to, by the same partition key."""

    built_from: BuiltFrom = field(default_factory=dict[tuple[Partition, str], tuple[Pin, ...]])
    newest: Newest = field(default_factory=dict[Partition, Pin])


def mixed(pins: Iterable[Pin], built_from: BuiltFrom, newest: Newest) -> str | None:
    """Return in words which two of some pins lead back to different data of one partition; None if no two do.

    Pins belong together if they do so by what each was built from, or by what rows like theirs are made of now.
    """
    pins = sorted(pins)
    conflict = _conflict(pins, built_from, newest)
    return conflict if conflict and _conflict(pins, built_from, {}) else None


def belong_together(pins: Iterable[Pin], built_from: BuiltFrom, newest: Newest) -> bool:
    """Return whether lineage shows that pins were made of the same data: each two share an ancestor, none differs."""
    pins = sorted(pins)
    traces = [_traced(pin, built_from, newest) for pin in pins]
    are_related = all(one.keys() & other.keys() for one, other in combinations(traces, 2))
    return len(pins) > 1 and are_related and mixed(pins, built_from, newest) is None


def of_one_origin(pins: Iterable[Pin], built_from: BuiltFrom, newest: Newest) -> list[list[Pin]]:
    """Return groups of pins that lead back to the same sources by the same key: each is from one pipeline."""
    groups: dict[tuple[str, frozenset[Partition]], list[Pin]] = {}
    derived = {partition for (partition, _), some in built_from.items() if some}
    for pin in sorted(pins):
        sources = frozenset(_traced(pin, built_from, newest).keys() - derived)
        groups.setdefault((pin.partition.key, sources), []).append(pin)
    return [group for group in groups.values() if len(group) > 1]


_Trace = Mapping[Partition, Mapping[str, str]]
"""The data that a pin leads back to, by partition, each with an update that has it."""


def _conflict(pins: Sequence[Pin], built_from: BuiltFrom, newest: Newest) -> str | None:
    traces = {pin: _traced(pin, built_from, newest) for pin in pins}
    for one, other in combinations(pins, 2):
        one_trace, other_trace = traces[one], traces[other]
        differing = [
            each for each in one_trace.keys() & other_trace.keys() if one_trace[each].keys() != other_trace[each].keys()
        ]
        if differing:
            return _in_words(one, other, _source(differing, built_from), one_trace, other_trace)
    return None


def _source(differing: Sequence[Partition], built_from: BuiltFrom) -> Partition:
    """Return the partition to name: one that was made of nothing, if there is one."""
    derived = {partition for (partition, _), pins in built_from.items() if pins}
    return min(differing, key=lambda each: (each in derived, each))


def _in_words(one: Pin, other: Pin, source: Partition, one_trace: _Trace, other_trace: _Trace) -> str:
    led = " and ".join(" and ".join(sorted(trace[source].values())) for trace in (one_trace, other_trace))
    return (
        f"{one.partition} {one.update_id} and {other.partition} {other.update_id} do not belong together: they lead "
        f"back to different updates of {source}, {led}"
    )


def _traced(pin: Pin, built_from: BuiltFrom, newest: Newest) -> _Trace:
    trace: dict[Partition, dict[str, str]] = {}
    pending, visited = [pin], set[tuple[Partition, str]]()
    while pending:
        each = pending.pop()
        trace.setdefault(each.partition, {})[_data(each)] = each.update_id
        key = (each.partition, _speaker(each, newest).update_id)
        if key not in visited:
            visited.add(key)
            pending += [made_of for made_of in built_from.get(key, ()) if made_of.partition.key == pin.partition.key]
    return trace


def _speaker(pin: Pin, newest: Newest) -> Pin:
    """Return the update whose lineage shows what a pin's data are made of."""
    last = newest.get(pin.partition)
    return last if last and _data(last) == _data(pin) else pin


def _data(pin: Pin) -> str:
    """Return what distinguishes data: the version, or for a slice of an event table the marker at its end."""
    return pin.update_id if pin.is_slice else pin.version
