"""Propagations: updates on their way through a pipeline, and the slices of tables that a consumer's next run reads.

Source: "Data Orchestration via Events" (2024). A propagation is complete when every table that the consumer needs has
an event. The number of events does not matter, because a table may publish twice.
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
"""All events, consumed or not, by correlation id and partition key: pairs of table and number, in commit order."""

Group = tuple[str, str]
"""A pipeline and a partition key. The inputs of a group belong together."""


@dataclass(frozen=True)
class Consumer:
    """A dataset that reads tables, and its rules for when it reads them.

    Attributes:
        feed: The dataset.
        tables: The tables that it reads.
        pipelines: The tables that each pipeline writes.
        wait_for: Whether a run needs a complete propagation of `any` pipeline, or of `all` of them.
        on_incomplete: `skip`: a run takes later propagations before an incomplete one. `block`: later ones wait, too.
        merge: True if a run may take several propagations of a pipeline, False if it takes one of each pipeline.
    """

    feed: Feed
    tables: frozenset[Feed]
    pipelines: Mapping[str, frozenset[Feed]] = field(default_factory=dict[str, frozenset[Feed]])
    wait_for: Literal["any", "all"] = "any"
    on_incomplete: Literal["skip", "block"] = "skip"
    merge: bool = True

    @property
    def needed(self) -> dict[str, frozenset[Feed]]:
        """Return the needed tables of each pipeline. A table without a pipeline counts as a pipeline of its own."""
        cut = {name: tables & self.tables for name, tables in sorted(self.pipelines.items())}
        in_pipelines = frozenset[Feed]().union(*self.pipelines.values())
        own = {str(table): frozenset({table}) for table in sorted(self.tables - in_pipelines)}
        return {name: tables for name, tables in {**cut, **own}.items() if tables}


@dataclass(frozen=True)
class Propagation:
    """One update on its way through a pipeline: its unconsumed events, and the tables that it has not reached."""

    pipeline: str
    correlation: str
    partition_key: str
    events: tuple[Recorded, ...]
    missing: frozenset[Feed] = frozenset()

    @property
    def group(self) -> Group:
        """Return the pipeline and the partition key."""
        return self.pipeline, self.partition_key

    @property
    def since(self) -> datetime:
        """Return when the first event of this propagation arrived (UTC)."""
        return min(event.at for event in self.events)

    def __str__(self) -> str:
        missing = ", ".join(map(str, sorted(self.missing)))
        where = f" of {self.partition_key}" if self.partition_key else ""
        return f"{self.correlation}{where} has not reached {missing} (pipeline {self.pipeline})"


@dataclass(frozen=True)
class Due:
    """The propagations that a consumer's next run takes (`selected`), and those that it leaves for a later run."""

    selected: tuple[Propagation, ...] = ()
    slices: tuple[Slice, ...] = ()
    later: tuple[Propagation, ...] = ()
    incomplete: tuple[Propagation, ...] = ()
    waits: str | None = None
    """The reason why the run takes nothing, or leaves some propagations."""

    @property
    def correlations(self) -> tuple[str, ...]:
        """Return the correlation ids of the propagations that the next run takes."""
        return tuple(sorted({each.correlation for each in self.selected}))


@dataclass(frozen=True)
class Judged:
    """Results of comparing a consumer's inputs by lineage, for groups of pipeline and partition key.

    `consistent` has groups whose newest updates belong together: a run takes all events of such a group, even if some
    of its tables have no event. `mixed` has groups of which a run takes nothing, each with the reason.
    """

    consistent: frozenset[Group] = frozenset()
    mixed: Mapping[Group, str] = field(default_factory=dict[Group, str])


BY_EVENTS_ALONE = Judged()
"""The result if lineage is not compared."""


def due(consumer: Consumer, events: Iterable[Recorded], histories: Seen, judged: Judged = BY_EVENTS_ALONE) -> Due:
    """Return which of the unconsumed `events` a consumer's next run takes. `events` are in commit order."""
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
    gone = {id(each) for each in selected}  # Comparing all pairs of propagations is too slow: there may be thousands.
    later = tuple(each for each in complete if id(each) not in gone)
    return Due(selected, slices, later, incomplete, why)


def _in_words(incomplete: Sequence[Propagation]) -> str | None:
    suffix = f" and {len(incomplete) - 1} more" if len(incomplete) > 1 else ""
    return f"update {incomplete[0]}{suffix}" if incomplete else None


def _ready(consumer: Consumer, every: Sequence[Propagation], open_: Sequence[Propagation]) -> list[Propagation]:
    """Return the propagations that may be taken: those not in `open_`.

    With `block`, return only those that began before the first one in `open_`.
    """
    waiting = {id(each) for each in open_}
    ready = [each for each in every if id(each) not in waiting]
    if consumer.on_incomplete == "skip" or not open_:
        return ready
    return [each for each in ready if each.events[0].sequence < open_[0].events[0].sequence]


def _absent(consumer: Consumer, ready: Sequence[Propagation]) -> str:
    """Return the pipelines for which no propagation is ready, if the consumer waits for all pipelines."""
    if consumer.wait_for == "any":
        return ""
    return ", ".join(sorted(consumer.needed.keys() - {each.pipeline for each in ready}))


def _propagations(consumer: Consumer, events: Sequence[Recorded], histories: Seen, judged: Judged) -> list[Propagation]:
    """Group events by correlation id and partition into propagations, in the order of their first events.

    If the events of a propagation leave a hole in a table, the propagation is split there.
    """
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
    """Return the propagations of one correlation id and partition key: one for each round (see `core.rounds`).

    There may be several, because an id may pass through a pipeline again.

    If a table belongs to two pipelines, its event counts for only one of the pipelines: the one with a complete round,
    if there is such a round.
    """
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
    """Split a complete propagation at its holes into pieces, each for a separate run.

    There is a hole if a table publishes for this correlation id, then for another id, and then for this id again.
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
    """Return the propagations that the next run consumes, and the slices of tables that it reads for them.

    The slices of the taken propagations join without a hole. A later run takes the other propagations.
    """
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
    """Return the slices, extended by the events. A slice is the range of a table's rows that a run reads.

    Return None if an event cannot extend a slice without a gap. Such a gap would hold data of another propagation,
    which this run must not read.
    """
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
    return Slice(old.partition, interval.start, interval.end, operations=operations, events=old.events + 1, bytes=size)


def slice_of(event: Recorded) -> Slice:
    """Return the slice of a table that one event reports: the rows up to its marker.

    The slice's size is the number of bytes in the event's context, or 0.
    """
    reported = event.context.get("bytes")
    size = reported if isinstance(reported, int) else 0
    return Slice(event.partition, event.start, event.marker, frozenset({event.operation}), bytes=size)


def is_whole(piece: Slice, events: Iterable[Recorded]) -> bool:
    """Return whether the unconsumed events still make up exactly this slice.

    The slice was chosen earlier. Since then, another run may have consumed some of its events.
    """
    joined = _joined({}, sorted(events, key=lambda event: (event.start or "", event.marker)))
    remaining = joined.get(piece.partition) if joined else None
    return remaining is not None and remaining.interval == piece.interval
