"""Comparison of inputs from one pipeline by lineage: whether they were made from the same versions of data.

A partition may be built again from newer inputs with the same rows. Its consumers are not built again then, so their
lineage still names the older update. Therefore the lineage of the newest update also counts for older updates with the
same rows.
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
    """Ledger facts about some updates and all their ancestors with the same partition key."""

    built_from: BuiltFrom = field(default_factory=dict[tuple[Partition, str], tuple[Pin, ...]])
    newest: Newest = field(default_factory=dict[Partition, Pin])


def mixed(pins: Iterable[Pin], built_from: BuiltFrom, newest: Newest) -> str | None:
    """Describe two pins that were made of different data of one partition. Return None if all pins agree.

    Two lineages are compared: that of the pins themselves, and that of the newest updates with the same rows. It is
    enough if one of the two shows no difference.
    """
    pins = sorted(pins)
    conflict = _conflict(pins, built_from, newest)
    return conflict if conflict and _conflict(pins, built_from, {}) else None


def belong_together(pins: Iterable[Pin], built_from: BuiltFrom, newest: Newest) -> bool:
    """Return whether lineage proves that pins were made of the same data.

    For this, each pair of pins must share ancestors, and all pins must agree.
    """
    pins = sorted(pins)
    traces = [_traced(pin, built_from, newest) for pin in pins]
    are_related = all(one.keys() & other.keys() for one, other in combinations(traces, 2))
    return len(pins) > 1 and are_related and mixed(pins, built_from, newest) is None


def of_one_origin(pins: Iterable[Pin], built_from: BuiltFrom, newest: Newest) -> list[list[Pin]]:
    """Return groups of pins with the same partition key and the same sources. Each group is from one pipeline.

    The sources of a pin are its ancestors that were not made from other partitions.
    """
    groups: dict[tuple[str, frozenset[Partition]], list[Pin]] = {}
    derived = {partition for (partition, _), some in built_from.items() if some}
    for pin in sorted(pins):
        sources = frozenset(_traced(pin, built_from, newest).keys() - derived)
        groups.setdefault((pin.partition.key, sources), []).append(pin)
    return [group for group in groups.values() if len(group) > 1]


_Trace = Mapping[Partition, Mapping[str, str]]
"""Ancestors of a pin: for each partition, the versions of its data that were used, each with an update id."""


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
    """Return the partition to name in a message: preferably a source, which was not made from other partitions."""
    derived = {partition for (partition, _), pins in built_from.items() if pins}
    return min(differing, key=lambda each: (each in derived, each))


def _in_words(one: Pin, other: Pin, source: Partition, one_trace: _Trace, other_trace: _Trace) -> str:
    led = " and ".join(" and ".join(sorted(trace[source].values())) for trace in (one_trace, other_trace))
    return (
        f"{one.partition} {one.update_id} and {other.partition} {other.update_id} do not belong together: they were "
        f"made from different updates of {source}, {led}"
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
    """Return the update whose lineage counts: the newest update if it has the same data, otherwise the pinned one."""
    last = newest.get(pin.partition)
    return last if last and _data(last) == _data(pin) else pin


def _data(pin: Pin) -> str:
    """Return the identity of a pin's data: a version, or the end marker of an event table's slice."""
    return pin.update_id if pin.is_slice else pin.version
