"""Reports to Dagster about changes that no run reports. Each sensor reads the log from its stored position on.

| a change of | is reported as | waits while |
|---|---|---|
| an update | the newest valid update of its partition, unless its own run made the last report | that run is active |
| an event of an event table | the event | |
| a window of a state table, at the grain of its partitions | complete: its materialization; else an observation | |
| an asset check that no run evaluates | its newest result | |
| a result of any other check, a mark, a waiver | an observation of the partition | |
| a feed's window that is, or was, bad or backfilled, at the grain of its partitions | an observation | |
| anything else, or a path that can never be a partition | nothing | |

A change of a partition that does not exist yet waits, too. Only the latest change of a partition is reported. Events
are all reported, unless hundreds come at once. Each sensor has its own position, and reports the kind of changes that
it causes. A sensor reports before it requests runs. Otherwise a run could read data that Dagster does not know yet, and
Dagster would show its output as out of date.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg
import sqlalchemy as sa

from feed_assets.core.batch_names import set_version
from feed_assets.core.events import COLUMNS, Recorded, in_words
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.markdown import without_links
from feed_assets.core.pins import Pin
from feed_assets.ledger import event_store, log, runs, updates
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.ledger.log import LogEntry
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.overlapping_windows import own_grain
from feed_assets.orchestration.declare.declarations import (
    WATCHED,
    Dataset,
    Declaration,
    EventTable,
    Foreign,
    LoadedDataset,
    StateTable,
)
from feed_assets.orchestration.declare.partitions import Existence, existence
from feed_assets.orchestration.execute.build_events import DATA_VERSION_TAG, NEWEST, UPDATE_ID, recorded
from feed_assets.orchestration.execute.metadata import url_of
from feed_assets.orchestration.ticks.tick import OutOfTime, Tick
from feed_assets.orchestration.ticks.window_reports import (
    Report,
    of_checks,
    of_windows,
    partition_of,
    unsaid,
)

REPORTED = "feed_assets/reported"
"""Prefix of the Dagster cursor that has a sensor's position. The sensor's name follows.

The daemon, `feed-assets run` and tests share this cursor.
"""

_LOG = "log"


@dataclass(frozen=True)
class LogPosition:
    """The log changes that a Dagster instance has: all changes up to `sequence`, except the waiting ones."""

    sequence: int = 0
    waiting: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "LogPosition":
        """Parse a text that `str` made. Return the beginning of the log for any other text."""
        kind, _, numbers = text.partition(":")
        if kind != _LOG:
            return cls()
        sequence, *waiting = map(int, numbers.split(","))
        return cls(sequence, tuple(waiting))

    def __str__(self) -> str:
        return f"{_LOG}:{','.join(map(str, (self.sequence, *self.waiting)))}"


def report_updates(tick: Tick, _: OutOfTime) -> None:
    """Report updates that no run has reported, and windows of state tables."""
    _report(tick, log.UPDATE, tick.graph.by_feed.keys())


def report_events(tick: Tick, _: OutOfTime) -> None:
    """Report the events of the source's tables."""
    _report(tick, log.EVENT, {node.feed for node in tick.graph.tables() if node.source == tick.source})


def report_checks(tick: Tick, _: OutOfTime) -> None:
    """Report results of the checks that no run evaluates."""
    _report(tick, log.QUALITY, tick.graph.by_feed.keys())


def _report(tick: Tick, kind: str, feeds: Collection[Feed]) -> None:
    """Report the changes since Dagster's position.

    The position moves with the tick's cursor, after Dagster has stored all reports. If a tick is killed before that,
    the reports are repeated, and Dagster gets the same data version twice.
    """
    limit = tick.budget.reports
    with tick.ledger.read() as connection:
        upto = log.last(connection)
        start = _confirmed(tick, upto)
        windows = _grains(tick.graph, kind)
        new = log.newest(connection, kind, start.sequence, upto=upto, limit=limit, feeds=feeds, windows=windows)
        changes = [*log.newest_of(connection, start.waiting), *new]
        fates = _fates(tick, connection, changes)
        ready = [each for each in changes if fates[each] == "report"]
        is_window = {each: each.kind == log.WINDOW for each in ready[:limit]}
        tick.reports = [
            *_REPORTS_OF[kind](tick.graph, connection, [each for each in is_window if not is_window[each]]),
            *of_windows(tick.graph, connection, [each for each in is_window if is_window[each]]),
        ]
    waiting = [each.sequence for each in changes if fates[each] == "wait"] + [each.sequence for each in ready[limit:]]
    reached = new[-1].sequence if len(new) == limit else upto
    tick.position = str(LogPosition(reached, tuple(waiting)))


_WINDOWS_OF: dict[str, tuple[type[Declaration], ...]] = {log.UPDATE: (StateTable,), log.QUALITY: (Foreign, Dataset)}


def _grains(graph: Graph, kind: str) -> dict[Feed, str]:
    """Return the feeds whose windows are reported for a kind of log change, each with the grain of its partitions.

    Windows of other grains have no partition, so they are not reported.
    """
    nodes = [node for node in graph.by_feed.values() if isinstance(node.declaration, _WINDOWS_OF.get(kind, ()))]
    return {node.feed: grain for node in nodes if node.tracked and (grain := own_grain(node))}


def _confirmed(tick: Tick, last: int) -> LogPosition:
    """Return the last position whose reports this instance has stored.

    If the log ends before this position, it is a new log. Then return its beginning.
    """
    storage, key = tick.context.instance.daemon_cursor_storage, f"{REPORTED}/{tick.context.sensor_name}"
    stored = storage.get_cursor_values({key}).get(key)
    tick_position, _, _ = (tick.context.cursor or "").partition("/")
    both = LogPosition.parse(stored or ""), LogPosition.parse(tick_position)
    position = max(both, key=lambda each: (each.sequence, -len(each.waiting)))
    position = position if position.sequence <= last else LogPosition()
    if str(position) != stored:
        storage.set_cursor_values({key: str(position)})
    return position


Fate = Literal["report", "wait", "drop"]


def _fates(tick: Tick, connection: sa.Connection, changes: Sequence[LogEntry]) -> dict[LogEntry, Fate]:
    newest = updates.newest(connection, [each.partition for each in changes if each.kind == log.UPDATE])
    by_run = runs.in_dagster(connection, [row.run for row in newest.values() if row.run])
    fates: dict[LogEntry, Fate | None] = {each: _fate(tick, each) for each in changes}
    fates |= dict.fromkeys(unsaid(tick.graph, connection, changes), "drop")
    open_ones = [each for each in changes if fates[each] is None]
    rows = {each: newest[each.partition] for each in open_ones if _is_as_made(each, newest)}
    made_by = {each: by_run[row.run] for each, row in rows.items() if row.run in by_run}
    of_id = {run_id: tick.context.instance.get_run_by_id(run_id) for run_id in {*made_by.values()}}
    # Read the reports after the runs, because a run that was over by then has all its reports in Dagster.
    stored = _stored_reports(tick, made_by)
    for each in open_ones:
        run = of_id.get(made_by.get(each, ""))
        is_told = run is not None and (_place(tick, each), run.run_id, rows[each].id) in stored
        fates[each] = _fate_of_made(run, is_told)
    return {each: fate or "report" for each, fate in fates.items()}


def _is_as_made(change: LogEntry, newest: Mapping[Partition, updates.UpdateRow]) -> bool:
    """Return whether this change needs no report if the run that made the newest update has reported this update."""
    row = newest.get(change.partition) if change.kind == log.UPDATE else None
    return row is not None and not _uncovers(change, row)


def _uncovers(change: LogEntry, newest: updates.UpdateRow) -> bool:
    """Return whether this change made an older update the newest again.

    Dagster's last report is then about another update. This happens if a newer update became invalid, or if `newest`
    became valid again.
    """
    if change.after == updates.INVALIDATED:
        return change.subject > newest.id
    return change.before == updates.INVALIDATED and change.subject == newest.id


def _fate(tick: Tick, change: LogEntry) -> Fate | None:
    """Decide whether a log change is reported to Dagster, dropped, or waits.

    Return None if this depends on what the run of the change has reported.
    """
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
    return None


def _fate_of_made(run: dg.DagsterRun | None, has_told: bool) -> Fate:
    """Decide whether a run's update is reported to Dagster, waits for the end of the run, or is dropped.

    It is dropped if the run has reported it. `run` is None if this instance does not have the run.
    """
    if run is None:
        return "report"
    if has_told:
        return "drop"
    return "report" if run.is_finished else "wait"


_Place = tuple[dg.AssetKey, str | None]


def _stored_reports(tick: Tick, changes: Iterable[LogEntry]) -> set[tuple[_Place, str, str]]:
    """Return the newest reports that Dagster has about these partitions, from its asset index: place, run, and update.

    Search the index, not the run's own log: Dagster writes the run's log first, so the log may be ahead. Only the
    newest reports are searched. An update with an older report is reported again.
    """
    keys = dict[dg.AssetKey, set[str | None]]()
    for asset, key in (_place(tick, each) for each in changes):
        keys.setdefault(asset, set()).add(key)
    reports = set[tuple[_Place, str, str]]()
    for asset, partitions in keys.items():
        record_filter = dg.AssetRecordsFilter(asset, asset_partitions=sorted(filter(None, partitions)) or None)
        records = tick.context.instance.fetch_materializations(record_filter, limit=NEWEST * len(partitions)).records
        reports |= {((asset, record.partition_key), record.run_id, _update_id(record)) for record in records}
    return reports


def _place(tick: Tick, change: LogEntry) -> _Place:
    node = tick.graph.node(change.partition.feed)
    return node.key, node.key_of(partition_of(tick.graph, change) or change.partition)


def _update_id(record: dg.EventLogRecord) -> str:
    entry = record.asset_materialization.metadata.get(UPDATE_ID) if record.asset_materialization else None
    return str(entry.value) if entry else ""


def _updates(graph: Graph, connection: sa.Connection, changes: Sequence[LogEntry]) -> list[Report]:
    newest = updates.newest(connection, [each.partition for each in changes])
    batches = {each.partition for each in changes if graph.node(each.partition.feed).is_appendable}
    singles = [_update(graph.node(at.feed), row) for at, row in newest.items() if at not in batches]
    return [*singles, *_sets(graph, connection, {batch: newest.get(batch) for batch in sorted(batches)})]


def _update(node: Node, row: updates.UpdateRow) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(row.partition),
        metadata=recorded(node, row),
        tags={DATA_VERSION_TAG: row.data_version},
    )


def _sets(
    graph: Graph, connection: sa.Connection, batches: Mapping[Partition, updates.UpdateRow | None]
) -> list[Report]:
    """Return one materialization for each partition whose batches changed. A partition's data are all its batches."""
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
            "path": url_of(parent, blackboard=node.blackboard),
            "batches": len(pins),
            "new": dg.MetadataValue.json(dict(new)),
            "files": sum(pin.files for pin in pins),
            "bytes": sum(pin.size for pin in pins),
        },
        tags={DATA_VERSION_TAG: set_version(pins)},
    )


def _events(graph: Graph, connection: sa.Connection, changes: Sequence[LogEntry]) -> list[Report]:
    recorded = event_store.numbered(connection, [each.sequence for each in changes])
    return [_event(graph, event) for event in recorded]


def _event(graph: Graph, event: Recorded) -> dg.AssetMaterialization:
    node = graph.node(event.partition.feed)
    context = {name: value for name, value in event.context.items() if isinstance(value, (str, int, float, bool))}
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(event.partition),
        metadata={
            **context,  # Its writer chooses the keys, and replaces none of ours.
            "marker": in_words(event.marker),
            "correlation id": event.correlation,
            "operation": event.operation.value,
            **({"flag": event.flag} if event.flag else {}),
            **_columns(graph, node, event),
        },
        tags={DATA_VERSION_TAG: event.marker},
    )


def _columns(graph: Graph, node: Node, event: Recorded) -> Mapping[str, Any]:
    """Return Dagster metadata with the columns of a warehouse table, if the event reports them.

    Dagster's UI shows the columns of the newest event. If the table is loaded from a dataset, each column depends on
    the dataset's column with the same name.
    """
    columns = event.context.get(COLUMNS)
    if not isinstance(node.declaration, EventTable) or not node.declaration.loaded or not columns:
        return {}
    table_columns = [
        dg.TableColumn(
            each["name"],
            each["type"],
            without_links(each["description"]),  # A schema's text, which Dagster's UI renders as Markdown.
            dg.TableColumnConstraints(each["nullable"]),
        )
        for each in columns
    ]
    loaded = node.declaration.loaded
    source = graph.by_feed[loaded.dataset].key if isinstance(loaded, LoadedDataset) else None
    deps = {
        each.name: [dg.TableColumnDep(source, each.name)] for each in table_columns if source and each.name[0] != "_"
    }
    lineage = {"dagster/column_lineage": dg.TableColumnLineage(deps)} if deps else {}
    return {"dagster/column_schema": dg.TableSchema(table_columns), **lineage}


_REPORTS_OF: dict[str, Callable[[Graph, sa.Connection, Sequence[LogEntry]], list[Report]]] = {
    log.UPDATE: _updates,
    log.EVENT: _events,
    log.QUALITY: of_checks,
}
