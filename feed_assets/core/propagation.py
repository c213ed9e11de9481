"""Updates that have reached every table that a consumer needs, and the slice of each table that its next run reads.

Source: "Data Orchestration via Events" (2024). Propagation is judged by sets of tables: counts are wrong for a table
that publishes twice, and for the very first correlation id when it is partial.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from feed_assets.core.events import Recorded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.rounds import Round, rounds
from feed_assets.core.slices import Slice

Seen = Mapping[tuple[str, str], Sequence[tuple[Feed, int]]]
"""The tables and numbers of events, consumed or not, in commit order, by their correlation id and partition key."""

Group = tuple[str, str]
"""A pipeline and a partition key, whose inputs belong together."""


@dataclass(frozen=True)
class Consumer:
    """A dataset that reads tables, and when it does: `pipelines` are the tables that each pipeline writes.

    It waits for any or all of its pipelines (`wait_for`). An incomplete propagation is skipped, and taken once complete
    (`skip`), or nothing after it is taken (`block`). Without `merge` a run takes one propagation of a pipeline.
    """

    feed: Feed
    tables: frozenset[Feed]
    pipelines: Mapping[str, frozenset[Feed]] = field(default_factory=dict[str, frozenset[Feed]])
    wait_for: Literal["any", "all"] = "any"
    on_incomplete: Literal["skip", "block"] = "skip"
    merge: bool = True

    @property
    def needed(self) -> dict[str, frozenset[Feed]]:
        """Return the tables that this consumer needs of each pipeline; a table in no pipeline is one of its own."""
        cut = {name: tables & self.tables for name, tables in sorted(self.pipelines.items())}
        in_pipelines = frozenset[Feed]().union(*self.pipelines.values())
        own = {str(table): frozenset({table}) for table in sorted(self.tables - in_pipelines)}
        return {name: tables for name, tables in {**cut, **own}.items() if tables}


@dataclass(frozen=True)
class Propagation:
    """One update on its way through a pipeline: the events not consumed yet, and the tables that have none."""

    pipeline: str
    correlation: str
    partition_key: str
    events: tuple[Recorded, ...]
    missing: frozenset[Feed] = frozenset()

    @property
    def group(self) -> Group:
        """Return the pipeline and the partition key that it goes through."""
        return self.pipeline, self.partition_key

    @property
    def since(self) -> datetime:
        """Return when the first of its events arrived (UTC)."""
        return min(event.at for event in self.events)

    def __str__(self) -> str:
        missing = ", ".join(map(str, sorted(self.missing)))
        where = f" of {self.partition_key}" if self.partition_key else ""
        return f"{self.correlation}{where} has not reached {missing} (pipeline {self.pipeline})"


@dataclass(frozen=True)
class Due:
    """Propagations that a consumer's next run takes, and those left for later, complete or not."""

    selected: tuple[Propagation, ...] = ()
    slices: tuple[Slice, ...] = ()
    later: tuple[Propagation, ...] = ()
    incomplete: tuple[Propagation, ...] = ()
    waits: str | None = None
    """The reason in words why nothing, or not everything, is taken."""

    @property
    def correlations(self) -> tuple[str, ...]:
        """Return the correlation ids that are taken."""
        return tuple(sorted({each.correlation for each in self.selected}))


@dataclass(frozen=True)
class Judged:
    """Judgement by lineage of a consumer's inputs, by pipeline and partition key.

    The newest updates of `consistent` ones belong together, whatever their events report, and all events are taken.
    Nothing is taken of `mixed` ones, each with the reason.
    """

    consistent: frozenset[Group] = frozenset()
    mixed: Mapping[Group, str] = field(default_factory=dict[Group, str])


BY_EVENTS_ALONE = Judged()
"""The judgement without lineage."""


def due(consumer: Consumer, events: Iterable[Recorded], histories: Seen, judged: Judged = BY_EVENTS_ALONE) -> Due:
    """Return what is due of the events that a consumer has not consumed, in the order in which they were recorded."""
    every = _propagations(
        consumer, [event for event in events if event.partition.feed in consumer.tables], histories, judged
    )
    open_ = [each for each in every if each.missing or each.group in judged.mixed]
    complete = [each for each in every if not each.missing]
    incomplete = tuple(each for each in every if each.missing)
    ready = _ready(consumer, every, open_)
    why = next(iter(judged.mixed.values()), None) or _in_words(incomplete)
    if absent := _absent(consumer, ready):
        waits = f"no complete update of {absent}" if every else why
        return Due(later=tuple(complete), incomplete=incomplete, waits=waits)
    selected, slices = _take(consumer, ready, judged)
    gone = {id(each) for each in selected}  # Comparing each with each is too slow: there may be thousands.
    later = tuple(each for each in complete if id(each) not in gone)
    return Due(selected, slices, later, incomplete, why)


def _in_words(incomplete: Sequence[Propagation]) -> str | None:
    suffix = f" and {len(incomplete) - 1} more" if len(incomplete) > 1 else ""
    return f"update {incomplete[0]}{suffix}" if incomplete else None


def _ready(consumer: Consumer, every: Sequence[Propagation], open_: Sequence[Propagation]) -> list[Propagation]:
    """Return the propagations that may be taken: all that are not open, or only those before the first open one."""
    waiting = {id(each) for each in open_}
    ready = [each for each in every if id(each) not in waiting]
    if consumer.on_incomplete == "skip" or not open_:
        return ready
    return [each for each in ready if each.events[0].sequence < open_[0].events[0].sequence]


def _absent(consumer: Consumer, ready: Sequence[Propagation]) -> str:
    """Return the pipelines that a consumer of all of them still waits for."""
    if consumer.wait_for == "any":
        return ""
    return ", ".join(sorted(consumer.needed.keys() - {each.pipeline for each in ready}))


def _propagations(consumer: Consumer, events: Sequence[Recorded], histories: Seen, judged: Judged) -> list[Propagation]:
    """Return the propagations that events belong to, or their pieces, in the order of their first events."""
    grouped: dict[tuple[str, str], list[Recorded]] = {}
    for event in events:
        grouped.setdefault((event.correlation, event.partition.key), []).append(event)
    needed = consumer.needed
    propagations = [each for key, group in grouped.items() for each in _of(needed, key, group, histories.get(key, ()))]
    propagations = [
        replace(each, missing=frozenset()) if each.group in judged.consistent else each for each in propagations
    ]
    return sorted((piece for each in propagations for piece in _pieces(each)), key=lambda each: each.events[0].sequence)


def _of(
    needed: Mapping[str, frozenset[Feed]],
    key: tuple[str, str],
    group: Sequence[Recorded],
    history: Sequence[tuple[Feed, int]],
) -> list[Propagation]:
    """Return one id's propagations in a partition, by round. A table of two pipelines counts for the complete one."""
    reported = sorted(
        {*history, *((event.partition.feed, event.sequence) for event in group)}, key=lambda each: each[1]
    )
    rounds_by_name = {name: rounds(reported, wanted) for name, wanted in needed.items()}
    events_by_round: dict[tuple[str, Round], list[Recorded]] = {}
    for event in group:
        open_to = {name: of[event.sequence] for name, of in rounds_by_name.items() if event.sequence in of}
        name = min(open_to, key=lambda each: (bool(open_to[each].missing), each))
        events_by_round.setdefault((name, open_to[name]), []).append(event)
    return [Propagation(name, *key, tuple(mine), round_.missing) for (name, round_), mine in events_by_round.items()]


def _pieces(propagation: Propagation) -> list[Propagation]:
    """Split a complete propagation at its holes into pieces, each for a run of its own.

    A table that publishes twice for one correlation id may have published another one in between.
    """
    if propagation.missing:
        return [propagation]
    pieces: list[list[Recorded]] = []
    for event in propagation.events:
        fitting = next((piece for piece in pieces if _joined({}, [*piece, event]) is not None), None)
        if fitting is None:
            pieces.append([event])
        else:
            fitting.append(event)
    return [replace(propagation, events=tuple(piece)) for piece in pieces]


def _take(
    consumer: Consumer, ready: Sequence[Propagation], judged: Judged
) -> tuple[tuple[Propagation, ...], tuple[Slice, ...]]:
    """Return as many propagations as have slices without a hole between them; the others are for the next run."""
    selected: list[Propagation] = []
    slices: dict[Partition, Slice] = {}
    for each in ready:
        alone = not consumer.merge and each.group not in judged.consistent
        if alone and each.pipeline in {other.pipeline for other in selected}:
            continue
        joined = _joined(slices, each.events)
        if joined is not None:
            selected.append(each)
            slices = joined
    return tuple(selected), tuple(slices[partition] for partition in sorted(slices))


def _joined(slices: Mapping[Partition, Slice], events: Iterable[Recorded]) -> dict[Partition, Slice] | None:
    """Return the slices grown by some events; None if the data between them belong to another propagation."""
    grown = dict(slices)
    for event in events:
        old = grown.get(event.partition)
        union = _grown(old, event) if old else slice_of(event)
        if union is None:
            return None
        grown[event.partition] = union
    return grown


def _grown(old: Slice, event: Recorded) -> Slice | None:
    interval, new = old.interval.grown(event.interval, event.previous), slice_of(event)
    if interval is None:
        return None
    operations, size = old.operations | new.operations, old.bytes + new.bytes
    return Slice(old.partition, interval.start, interval.end, operations, old.events + 1, size)


def slice_of(event: Recorded) -> Slice:
    """Return the slice that one event covers; the bytes are those of its context, if it has them."""
    reported = event.context.get("bytes")
    size = reported if isinstance(reported, int) else 0
    return Slice(event.partition, event.start, event.marker, frozenset({event.operation}), bytes=size)


def is_whole(piece: Slice, events: Iterable[Recorded]) -> bool:
    """Return whether the events that are not consumed yet still make up a slice that was cut of them before."""
    joined = _joined({}, sorted(events, key=lambda event: (event.start or "", event.marker)))
    remaining = joined.get(piece.partition) if joined else None
    return remaining is not None and remaining.interval == piece.interval
