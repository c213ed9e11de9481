"""What sensors report to Dagster: updates and events that no run has told it of, and the results of checks."""

from collections.abc import Sequence
from datetime import datetime

import dagster as dg

from feed_assets.core.events import Recorded, in_words
from feed_assets.core.feeds import Partition
from feed_assets.core.positions import Pin, pins_digest
from feed_assets.ledger import events, log, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.facts import pins_of
from feed_assets.orchestration.declare.partitions import Standing, standing
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.orchestration.requests import InProgress, in_progress, is_busy
from feed_assets.orchestration.tick import REPORTS, OutOfTime, Tick
from feed_assets.orchestration.watch import digest, evaluations

DATA_VERSION_TAG = "dagster/data_version"
"""Dagster's tag of a materialization by which it tells whether data have changed."""

TOLD = "feed_assets/told"

NEVER_TOLD = 0
"""In place of a tick's number, for updates of what is no partition of its asset: Dagster has no place for them."""


def report_updates(tick: Tick, _: OutOfTime) -> None:
    """Materializations of what Dagster has not confirmed: foreign updates, and our own whose run could not tell it."""
    confirmed = _confirmed(tick)
    busy = in_progress(tick.context.instance)
    tick.reports = _events(tick.graph, tick.ledger, busy, confirmed, tick.now, tick.budget.reports)
    tick.position = str(confirmed + bool(tick.reports))


def report_events(tick: Tick, _: OutOfTime) -> None:
    """Materializations of the events of a source's declared tables."""
    position = _position(tick.context)
    told = int(position) if position else _recent(tick.ledger)
    new = _newest_events(tick.graph, tick.ledger, tick.source or "", told, tick.budget.reports)
    tick.reports = [found for event in new if (found := _event_of_table(tick.graph, event, tick.now))]
    tick.position = str(new[-1].sequence if new else told)


def report_checks(tick: Tick, _: OutOfTime) -> None:
    """The results of the checks that no run makes, if one has changed."""
    checks = evaluations(tick.graph, tick.ledger)
    tick.position = digest(checks)
    tick.reports = checks if tick.position != _position(tick.context) else []


def _position(context: dg.SensorEvaluationContext) -> str:
    return (context.cursor or "").partition("/")[0]


def _recent(ledger: Ledger) -> int:
    """Where a new Dagster instance begins to be told: not with all of the history."""
    with ledger.read() as connection:
        return max(0, log.last(connection) - REPORTS)


def _confirmed(tick: Tick) -> int:
    """The last tick whose events this instance has stored; a new instance forgets what others were told."""
    storage = tick.context.instance.daemon_cursor_storage
    known = storage.get_cursor_values({TOLD}).get(TOLD)
    if known is None:
        updates.forget_told(tick.ledger, tick.graph.by_feed.keys())
    confirmed = max(int(known or 0), int(_position(tick.context) or 0))
    if str(confirmed) != known:
        storage.set_cursor_values({TOLD: str(confirmed)})
    return confirmed


def _events(
    graph: Graph, ledger: Ledger, busy: InProgress, confirmed: int, now: datetime, most: int
) -> list[dg.AssetMaterialization]:
    """Materializations of what Dagster has not confirmed: foreign updates, and our own whose run could not tell it."""
    with ledger.read() as connection:
        untold = updates.to_tell(connection, graph.by_feed.keys(), confirmed, most)
    stands = {row: _standing(graph, row.partition, now) for row in untold}
    strange = [row for row in untold if stands[row] is Standing.NEVER]
    updates.mark_told(ledger, [(row.partition, row.id) for row in strange], NEVER_TOLD)
    rows = [row for row in untold if stands[row] is Standing.IS and not is_busy(graph, row.partition, busy)]
    updates.mark_told(ledger, [(row.partition, row.id) for row in rows], confirmed + 1)
    in_batches = [row for row in rows if graph.node(row.partition.feed).is_appendable]
    singles = [_event(graph, row) for row in rows if row not in in_batches]
    return singles + _set_events(graph, ledger, in_batches)


def _standing(graph: Graph, partition: Partition, now: datetime) -> Standing:
    return standing(graph.node(partition.feed).partitions_def, graph.whole(partition).key, now)


def _set_events(graph: Graph, ledger: Ledger, news: Sequence[updates.Row]) -> list[dg.AssetMaterialization]:
    """One materialization of each partition whose batches have news, however many: its data are the whole set."""
    by_set: dict[Partition, list[updates.Row]] = {}
    for row in news:
        by_set.setdefault(graph.whole(row.partition), []).append(row)
    with ledger.read() as connection:
        sets = pins_of(connection, sorted(by_set))
    return [_set_event(graph.node(whole.feed), whole, by_set[whole], pins) for whole, pins in sets.items() if pins]


def _set_event(
    node: Node, whole: Partition, news: Sequence[updates.Row], pins: Sequence[Pin]
) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(whole),
        metadata={
            "update id": max(pin.update_id for pin in pins),
            "path": whole.path,
            "batches": len(pins),
            "new": dg.MetadataValue.json({row.partition.name: row.id for row in news}),
            "files": sum(pin.files for pin in pins),
            "bytes": sum(pin.size for pin in pins),
        },
        tags={DATA_VERSION_TAG: pins_digest(pins)},
    )


def _event(graph: Graph, row: updates.Row) -> dg.AssetMaterialization:
    node = graph.node(row.partition.feed)
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(row.partition),
        metadata={
            "update id": row.id,
            "path": f"{row.partition.path}/{row.id}",
            "files": row.files or 0,
            "bytes": row.size or 0,
            **({"dagster/row_count": row.records} if row.records is not None else {}),
        },
        tags={DATA_VERSION_TAG: row.version or row.id},
    )


def _newest_events(graph: Graph, ledger: Ledger, source: str, after: int, limit: int) -> tuple[Recorded, ...]:
    """The events of a source's declared tables that come after a number."""
    tables = [node.feed for node in graph.tables() if node.source == source]
    with ledger.read() as connection:
        return events.after(connection, tables, after, log.last(connection), limit)


def _event_of_table(graph: Graph, event: Recorded, now: datetime) -> dg.AssetMaterialization | None:
    """An event as Dagster hears of it; None while its partition is none yet."""
    node = graph.node(event.place.feed)
    if standing(node.partitions_def, event.place.key, now) is not Standing.IS:
        return None
    told = {name: value for name, value in event.context.items() if isinstance(value, (str, int, float, bool))}
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(event.place),
        metadata={
            "marker": in_words(event.marker),
            "correlation id": event.correlation,
            "operation": event.operation.value,
            **({"flag": event.flag} if event.flag else {}),
            **told,
        },
        tags={DATA_VERSION_TAG: event.marker},
    )
