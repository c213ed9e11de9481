"""What Dagster is told of by no run: one reporter, with a position in the log and the few changes that wait.

| a change of | is reported as | waits while |
|---|---|---|
| an update | the newest valid update of its partition, unless its run has reported it last | that run goes on |
| an event of an event table | the event | |
| a window of a state table, at the grain of its partitions | complete: its materialization; else an observation | |
| a check of an asset that no run makes | its newest result | |
| what others' checks have found, a mark, a waiver | an observation of the partition | |
| a feed's window that is, or was, bad or backfilled, at the grain of its partitions | an observation | |
| anything else, or of what can never be a partition | nothing | |

A partition that does not exist yet waits, too. What a later change of the same partition has overtaken is not reported,
but for events, unless hundreds of changes come at once. Each kind belongs to the sensor that brings it about, which
reports before it requests: else a run would read what Dagster has not heard of, and look out of date. Each of these
sensors has a position of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import dagster as dg
import sqlalchemy as sa

from feed_assets.core.events import Recorded, in_words
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.positions import Pin, pins_digest
from feed_assets.ledger import events, log, runs, updates
from feed_assets.ledger.facts import pins_of
from feed_assets.ledger.log import Numbered
from feed_assets.orchestration.build.reports import DATA_VERSION_TAG, recorded
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.windows import own_grain
from feed_assets.orchestration.declare.declarations import WATCHED, Dataset, Declaration, Foreign, StateTable
from feed_assets.orchestration.declare.partitions import Existence, existence
from feed_assets.orchestration.ticks.observed import (
    Report,
    of_checks,
    of_windows,
    partition_of,
    unsaid,
)
from feed_assets.orchestration.ticks.tick import OutOfTime, Tick

REPORTED = "feed_assets/reported"
"""Where an instance keeps the position of a sensor, whichever program drives it; the name goes on with the sensor's."""

_LOG = "log"


@dataclass(frozen=True)
class Position:
    """What an instance has of the log: every change up to `sequence`, but for those that wait."""

    sequence: int = 0
    waiting: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read what `str` wrote; of anything else the beginning."""
        kind, _, numbers = text.partition(":")
        if kind != _LOG:
            return cls()
        sequence, *waiting = map(int, numbers.split(","))
        return cls(sequence, tuple(waiting))

    def __str__(self) -> str:
        return f"{_LOG}:{','.join(map(str, (self.sequence, *self.waiting)))}"


def report_updates(tick: Tick, _: OutOfTime) -> None:
    """Report the updates of all feeds that no run has reported, and the windows of state tables."""
    _report(tick, log.UPDATE, tick.graph.by_feed.keys())


def report_events(tick: Tick, _: OutOfTime) -> None:
    """Report the events of the source's tables."""
    _report(tick, log.EVENT, {node.feed for node in tick.graph.tables() if node.source == tick.source})


def report_checks(tick: Tick, _: OutOfTime) -> None:
    """Report the results of the checks that no run makes."""
    _report(tick, log.QUALITY, tick.graph.by_feed.keys())


def _report(tick: Tick, kind: str, feeds: Collection[Feed]) -> None:
    """Report what has changed since Dagster's position, which moves with the tick's cursor: once it has stored all.

    A tick that is killed before that is repeated: Dagster then hears of an equal data version twice.
    """
    limit = tick.budget.reports
    with tick.ledger.read() as connection:
        upto = log.last(connection)
        start = _confirmed(tick, upto)
        windows = _grains(tick.graph, kind)
        new = log.newest(connection, kind, start.sequence, upto, limit, feeds, windows)
        changes = [*log.newest_of(connection, start.waiting), *new]
        fates = _fates(tick, connection, changes)
        ready = [each for each in changes if fates[each] == "report"]
        told = {each: each.kind == log.WINDOW for each in ready[:limit]}
        tick.reports = [
            *_REPORTS_OF[kind](tick.graph, connection, [each for each in told if not told[each]]),
            *of_windows(tick.graph, connection, [each for each in told if told[each]]),
        ]
    waiting = [each.sequence for each in changes if fates[each] == "wait"] + [each.sequence for each in ready[limit:]]
    reached = new[-1].sequence if len(new) == limit else upto
    tick.position = str(Position(reached, tuple(waiting)))


_WINDOWS_OF: dict[str, tuple[type[Declaration], ...]] = {log.UPDATE: (StateTable,), log.QUALITY: (Foreign, Dataset)}


def _grains(graph: Graph, kind: str) -> dict[Feed, str]:
    """Whose windows are reported with a kind of changes, each with the grain of its partitions, if it has one."""
    nodes = [node for node in graph.by_feed.values() if isinstance(node.declaration, _WINDOWS_OF.get(kind, ()))]
    return {node.feed: grain for node in nodes if node.tracked and (grain := own_grain(node))}


def _confirmed(tick: Tick, last: int) -> Position:
    """The last position whose reports this instance has stored; the beginning if the log was begun anew since."""
    storage, key = tick.context.instance.daemon_cursor_storage, f"{REPORTED}/{tick.context.sensor_name}"
    known = storage.get_cursor_values({key}).get(key)
    given, _, _ = (tick.context.cursor or "").partition("/")
    both = Position.parse(known or ""), Position.parse(given)
    found = max(both, key=lambda each: (each.sequence, -len(each.waiting)))
    found = found if found.sequence <= last else Position()
    if str(found) != known:
        storage.set_cursor_values({key: str(found)})
    return found


Fate = Literal["report", "wait", "drop"]


def _fates(tick: Tick, connection: sa.Connection, changes: Sequence[Numbered]) -> dict[Numbered, Fate]:
    newest = updates.newest(connection, [each.partition for each in changes if each.kind == log.UPDATE])
    makers = {partition: row.run for partition, row in newest.items() if row.run}
    dagster_runs = runs.in_dagster(connection, makers.values())
    found: dict[Numbered, Fate] = dict.fromkeys(unsaid(tick.graph, connection, changes), "drop")
    of_run = cache(partial(_materialized, tick.context.instance))
    for each in (each for each in changes if each not in found):
        row = newest.get(each.partition) if each.kind == log.UPDATE else None
        is_as_reported = row is not None and not _uncovers(each, row)
        made_by = dagster_runs.get(makers.get(each.partition, "")) if is_as_reported else None
        found[each] = _fate(tick, each, row, of_run(made_by) if made_by else None)
    return found


def _uncovers(change: Numbered, newest: updates.Row) -> bool:
    """Whether a newer update went, or this one is valid again: Dagster was told of another one since."""
    if change.after == updates.INVALIDATED:
        return change.subject > newest.id
    return change.before == updates.INVALIDATED and change.subject == newest.id


def _fate(tick: Tick, change: Numbered, newest: updates.Row | None, made_by: "_Reported | None") -> Fate:
    node = tick.graph.by_feed.get(change.partition.feed)
    if node is None:
        return "drop"
    if change.kind == log.QUALITY and change.subject in WATCHED:
        return "report"
    partition = partition_of(tick.graph, change)
    if partition is None:
        return "drop"
    exists = existence(node.partitions_def, partition.key, tick.now)
    if exists is not Existence.EXISTS:
        return "wait" if exists is Existence.NOT_YET else "drop"
    if made_by is None or newest is None:
        return "report"
    if made_by.versions.get((node.key, node.key_of(partition))) == newest.data_version:
        return "drop"
    return "report" if made_by.is_over else "wait"


@dataclass(frozen=True)
class _Reported:
    """The data versions that a run of Dagster has reported last of what it made, and whether it may report more."""

    versions: Mapping[tuple[dg.AssetKey, str | None], str | None]
    is_over: bool


def _materialized(instance: dg.DagsterInstance, run_id: str) -> _Reported | None:
    """What a run has reported; None of one of another instance. Read once a tick: a run may make many partitions."""
    run = instance.get_run_by_id(run_id)
    if run is None:
        return None
    entries = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    told = [entry.asset_materialization for entry in entries if entry.asset_materialization]
    versions = {(each.asset_key, each.partition): (each.tags or {}).get(DATA_VERSION_TAG) for each in told}
    return _Reported(versions, run.is_finished)


def _updates(graph: Graph, connection: sa.Connection, changes: Sequence[Numbered]) -> list[Report]:
    newest = updates.newest(connection, [each.partition for each in changes])
    batches = {each.partition for each in changes if graph.node(each.partition.feed).is_appendable}
    singles = [_update(graph.node(at.feed), row) for at, row in newest.items() if at not in batches]
    return [*singles, *_sets(graph, connection, {batch: newest.get(batch) for batch in sorted(batches)})]


def _update(node: Node, row: updates.Row) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(row.partition),
        metadata=recorded(row),
        tags={DATA_VERSION_TAG: row.data_version},
    )


def _sets(graph: Graph, connection: sa.Connection, batches: Mapping[Partition, updates.Row | None]) -> list[Report]:
    """One materialization of each partition whose batches have changed, however many: its data are the whole set."""
    by_set: dict[Partition, dict[str, str]] = {}
    for batch, row in batches.items():
        by_set.setdefault(graph.parent_partition(batch), {}).update({batch.name: row.id} if row else {})
    pins = pins_of(connection, sorted(by_set))
    return [_set(graph.node(at.feed), at, new, pins[at]) for at, new in by_set.items() if pins[at]]


def _set(node: Node, parent: Partition, new: Mapping[str, str], pins: Sequence[Pin]) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(parent),
        metadata={
            "update id": max(pin.update_id for pin in pins),
            "path": parent.path,
            "batches": len(pins),
            "new": dg.MetadataValue.json(dict(new)),
            "files": sum(pin.files for pin in pins),
            "bytes": sum(pin.size for pin in pins),
        },
        tags={DATA_VERSION_TAG: pins_digest(pins)},
    )


def _events(graph: Graph, connection: sa.Connection, changes: Sequence[Numbered]) -> list[Report]:
    recorded = events.numbered(connection, [each.sequence for each in changes])
    return [_event(graph.node(event.partition.feed), event) for event in recorded]


def _event(node: Node, event: Recorded) -> dg.AssetMaterialization:
    context = {name: value for name, value in event.context.items() if isinstance(value, (str, int, float, bool))}
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(event.partition),
        metadata={
            "marker": in_words(event.marker),
            "correlation id": event.correlation,
            "operation": event.operation.value,
            **({"flag": event.flag} if event.flag else {}),
            **context,
        },
        tags={DATA_VERSION_TAG: event.marker},
    )


_REPORTS_OF: dict[str, Callable[[Graph, sa.Connection, Sequence[Numbered]], list[Report]]] = {
    log.UPDATE: _updates,
    log.EVENT: _events,
    log.QUALITY: of_checks,
}
