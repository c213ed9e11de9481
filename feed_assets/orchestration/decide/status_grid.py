"""The status grid of all datasets of a code location: states, reasons, and counts of partitions not shown."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import CellState, Hole, PartitionFacts, Shown, Slots, holes, judge, worst_first
from feed_assets.core.readiness import Need, State
from feed_assets.core.windows import WindowAddress, tiles, window_at, window_of
from feed_assets.ledger import due_counts, expected_cursor, pauses, quality, status_facts
from feed_assets.ledger.states.watermarks import Line, Watermarks, next_done, watermarks
from feed_assets.ledger.status_facts import ShownPartition, Stale
from feed_assets.orchestration.decide.decisions import decide_needs
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.output_needs import deadline_said, need_of
from feed_assets.orchestration.decide.overlapping_windows import own_grain, own_window
from feed_assets.orchestration.decide.periods import (
    PERIODS,
    PERIODS_OF_ONE,
    extents_within,
    line_of,
    newest_extents,
)
from feed_assets.orchestration.declare.declarations import (
    CAUGHT_UP,
    LOADED,
    NOT_YET,
    ON_TIME,
    Dataset,
    EventTable,
    Rejects,
)
from feed_assets.orchestration.declare.partitions import Extent, end_of, times_of
from feed_assets.orchestration.declare.sub_partitions import sub_partition_of

ROWS_EACH = 12
"""Greatest number of rows per dataset. Each key of the dimensions other than time gets a row.

If a dataset has more keys than rows, all keys share one row.
"""

DECISIONS = 1000
"""Greatest number of missing partitions for which the page shows exactly which inputs each one lacks."""

STALE_SHOWN = 100
"""Greatest number of stale partitions for which the page shows the reason. `--stale` lists all."""


_COMES_BY_ITSELF = (CellState.MISSING, CellState.WAITING, CellState.RUNNING)


@dataclass(frozen=True)
class GridRow:
    """A row of the grid: the partitions of one dataset, or only those with one key of its dimensions other than time.

    Watermarks are ends of windows (UTC).
    """

    node: Node
    of: str
    shown: tuple[Shown, ...]
    line: Line | None = None
    """The key of the row's watermarks in the state store."""
    marks: Watermarks = field(default_factory=Watermarks)


@dataclass(frozen=True)
class Status:
    """The content of the page for one state of the ledger. Times are UTC."""

    now: datetime
    slots: Slots | None
    """The requested days. None means the newest periods of each dataset."""
    rows: tuple[GridRow, ...]
    holes: tuple[tuple[GridRow, Hole], ...]
    stale: tuple[Stale, ...]
    stale_in_all: int
    elsewhere: tuple[due_counts.Group, ...]
    """Due partitions that are not shown, by dataset and verdict."""
    notes: tuple[str, ...]
    requested: tuple[Feed, ...] = ()
    """The requested datasets. () means all."""


def nodes_shown(graph: Graph, feeds: Iterable[Feed] = ()) -> list[Node]:
    """Return the nodes of these feeds, or of all feeds, that get rows.

    Rejects get no rows: a dataset's run writes them. Raise InvalidName if no asset has one of the feeds.
    """
    candidates = [graph.node(feed) for feed in feeds] or graph.by_feed.values()
    return [node for node in candidates if not isinstance(node.declaration, Rejects)]


def status_of(
    graph: Graph,
    connection: sa.Connection,
    nodes: Sequence[Node],
    slots: Slots | None,
    now: datetime,
    asked_for: Sequence[Feed] = (),
) -> Status:
    """Return the status of some nodes: for the days of `slots`, or for the newest periods with the worst rows first.

    A single requested dataset gets more periods. The number of SQL statements depends on the kinds of partitions shown,
    never on their number or history.
    """
    notes = dict[str, str]()
    due = due_counts.by_state(connection)
    count = PERIODS_OF_ONE if len(asked_for) == 1 else PERIODS
    extents_by_feed = (
        extents_within(nodes, slots, notes)
        if slots
        else newest_extents(connection, nodes, due, now=now, count=count, notes=notes)
    )
    listed_nodes = [node for node in nodes if node.feed in extents_by_feed]
    shown_by_partition, unbuilt = _shown_partitions(
        connection, [(node, extents_by_feed[node.feed]) for node in listed_nodes], now
    )
    shown_by_partition |= _decided(graph, connection, shown_by_partition, now)
    shown_by_partition |= _missed(graph, (shown_by_partition[at] for at in unbuilt), now)
    shown_by_partition |= _expected(connection, [shown_by_partition[at] for at in unbuilt])
    shown_by_partition = _with_stopped(connection, listed_nodes, shown_by_partition)
    rows = [row for node in listed_nodes for row in _rows(node, extents_by_feed[node.feed], shown_by_partition)]
    if slots is None:
        rows.sort(key=lambda row: worst_first(row.shown))
    marked = tuple(_with_marks(connection, rows))
    stale, in_all = status_facts.stale(connection, [node.feed for node in listed_nodes if _is_built(node)], STALE_SHOWN)
    notes |= {str(feed): why for feed, why in pauses.paused(connection, [node.feed for node in listed_nodes]).items()}
    remarks = tuple(f"{name}: {why}" for name, why in [*notes.items(), *_of_topics(connection, listed_nodes)])
    elsewhere = tuple(_elsewhere(due, {node.feed for node in listed_nodes}, shown_by_partition))
    row_holes = tuple(_holes(connection, marked))
    return Status(
        now,
        slots,
        marked,
        holes=row_holes,
        stale=tuple(stale),
        stale_in_all=in_all,
        elsewhere=elsewhere,
        notes=remarks,
        requested=tuple(asked_for),
    )


def _of_topics(connection: sa.Connection, nodes: Iterable[Node]) -> list[tuple[str, str]]:
    """Return the problems of topics and their tables that the sensor `watch` has found.

    The page could not derive these problems from the data that have arrived.
    """
    return [(str(feed), why) for (feed, _), why in sorted(_warned(connection, nodes).items())]


def _warned(connection: sa.Connection, nodes: Iterable[Node]) -> dict[tuple[Feed, str], str]:
    """Return problems of topics and warehouse tables, by table and check."""
    declared = [(node.feed, node.declaration) for node in nodes]
    tables = [feed for feed, each in declared if isinstance(each, EventTable) and (each.topic or each.loaded)]
    states = quality.check_states(connection, [Partition(feed, "") for feed in tables]) if tables else {}
    return {(at.feed, check): each.reason for (at, check), each in states.items() if each.reason}


def _with_stopped(
    connection: sa.Connection, nodes: Iterable[Node], shown_by_partition: Mapping[Partition, Shown]
) -> dict[Partition, Shown]:
    """Return the partitions, and show a table as an issue if its load has stopped or lacks rows.

    A table that was never loaded is an issue only if it is late.
    """
    warned = _warned(connection, nodes)
    stopped = {feed: why for (feed, check), why in warned.items() if check == LOADED}
    late = {feed for feed, check in warned if check in (CAUGHT_UP, ON_TIME)}
    calm = {feed for feed, why in stopped.items() if why.startswith(NOT_YET) and feed not in late}
    return {
        at: replace(each, state=CellState.MISSING if at.feed in calm else CellState.ISSUE, why=stopped[at.feed])
        if at.feed in stopped and each.state in (CellState.COMPLETE, CellState.MISSING)
        else each
        for at, each in shown_by_partition.items()
    }


def _is_built(node: Node) -> bool:
    return isinstance(node.declaration, Dataset)


def _shown_partitions(
    connection: sa.Connection, node_extents: Sequence[tuple[Node, Mapping[Partition, Extent]]], now: datetime
) -> tuple[dict[Partition, Shown], list[Partition]]:
    """Return the partitions to show, and which of them have no valid update."""
    all_asked = [each for node, extents in node_extents for each in _queried(node, extents)]
    facts = status_facts.grid_facts(connection, all_asked)
    shown_by_partition: dict[Partition, Shown] = {}
    for _, extents in node_extents:
        for at, extent in extents.items():
            its = facts[at]
            state, why = judge(its, is_over=extent.end is None or extent.end <= now)
            shown_by_partition[at] = Shown(
                at, extent.start, extent.end, state=state, why=why, verdict=its.verdict, since=its.since
            )
    return shown_by_partition, [at for at in shown_by_partition if not facts[at].published]


def _missed(graph: Graph, unbuilt: Iterable[Shown], now: datetime) -> dict[Partition, Shown]:
    """Return partitions that missed a deadline, with the deadline added to the reason.

    Partitions that need a person's action are skipped. They keep their own reason.
    """
    late_partitions: dict[Partition, Shown] = {}
    for each in unbuilt:
        node = graph.by_feed[each.partition.feed]
        is_late = _is_built(node) and each.state in _COMES_BY_ITSELF
        if is_late and (deadline := deadline_said(node, each.partition, now, only_missed=True)):
            late_partitions[each.partition] = replace(each, why="; ".join(filter(None, [each.why, deadline])))
    return late_partitions


def _expected(connection: sa.Connection, unbuilt: Sequence[Shown]) -> dict[Partition, Shown]:
    """Return partitions that are late by a cadence, with the text of the alert added to the reason."""
    by_itself = {each.partition: each for each in unbuilt if each.state in _COMES_BY_ITSELF}
    reasons = expected_cursor.late(connection, by_itself)
    return {
        at: replace(by_itself[at], why="; ".join(filter(None, [by_itself[at].why, why]))) for at, why in reasons.items()
    }


def _decided(
    graph: Graph, connection: sa.Connection, shown_by_partition: Mapping[Partition, Shown], now: datetime
) -> dict[Partition, Shown]:
    """Decide missing partitions of our datasets, and return them with the verdicts.

    The ledger has verdicts for due partitions only. Decide at most `DECISIONS` partitions, the newest ones. Ignore
    errors of mappings here: the sensor reports them.
    """
    own_feeds = {node.feed for node in graph.datasets()}
    missing = [
        each
        for each in shown_by_partition.values()
        if each.state is CellState.MISSING and each.partition.feed in own_feeds
    ]
    missing.sort(key=lambda each: each.start or now, reverse=True)
    needs: list[Need] = []
    for each in missing[:DECISIONS]:
        with suppress(Exception):
            needs.append(need_of(graph, each.partition))
    decided: dict[Partition, Shown] = {}
    for verdict in decide_needs(connection, needs, now):
        each, facts = (
            shown_by_partition[verdict.output],
            PartitionFacts(verdict=verdict.state.value, reason=verdict.reason),
        )
        state = each.state if verdict.state is State.WAITS_FOR_INPUT else judge(facts, is_over=True)[0]
        decided[verdict.output] = replace(each, state=state, verdict=verdict.state.value, why=verdict.reason)
    return decided


def _queried(node: Node, extents: Mapping[Partition, Extent]) -> list[ShownPartition]:
    is_table = isinstance(node.declaration, EventTable)
    grain = own_grain(node) if node.tracked else None
    return [
        ShownPartition(at, _windows(node, extent, grain), node.is_appendable, is_table)
        for at, extent in extents.items()
    ]


def _windows(node: Node, extent: Extent, grain: str | None) -> tuple[WindowAddress, ...]:
    """Return the windows of a partition: the window equal to it, or the smaller windows that fill it."""
    if node.tracked is None or extent.start is None or extent.end is None:
        return ()
    if own := own_window(node, extent, grain):
        return (own,)
    sub_partition = sub_partition_of(node.tracked, extent.values)
    filled = tiles(extent.start, extent.end, node.tracked.grains, node.tracked.zone_of(sub_partition))
    return tuple(WindowAddress(node.feed, sub_partition, each.grain, each.key) for each in filled)


def _rows(
    node: Node, extents: Mapping[Partition, Extent], shown_by_partition: Mapping[Partition, Shown]
) -> list[GridRow]:
    """Return the rows of a dataset in the grid: one for each key of the dimensions other than time.

    If there are too many keys, return one row for all of them.
    """
    by_key: dict[str, list[Partition]] = {}
    for at in extents:
        by_key.setdefault(at.key.partition("/")[2] if times_of(node.partitions_def) else at.key, []).append(at)
    if len(by_key) > ROWS_EACH:
        return [GridRow(node, f"{len(by_key)} keys", tuple(shown_by_partition[at] for at in extents))]
    rows = [
        GridRow(node, key, tuple(shown_by_partition[at] for at in mine), line_of(node, extents[mine[0]]))
        for key, mine in by_key.items()
    ]
    return rows or [GridRow(node, "", ())]


def _with_marks(connection: sa.Connection, rows: Sequence[GridRow]) -> Iterable[GridRow]:
    """Yield the rows of the grid with their watermarks (how far the data are complete).

    A row without windows only gets the end of its newest partition with data.
    """
    marks = watermarks(connection, {row.line for row in rows if row.line})
    latest = status_facts.latest_keys(connection, {row.node.feed for row in rows if not row.line})
    for row in rows:
        if row.line:
            yield replace(row, marks=marks.get(row.line, Watermarks()))
        else:
            last = latest.get(row.node.feed)
            yield replace(row, marks=Watermarks(latest=end_of(row.node.partitions_def, last) if last else None))


def _holes(connection: sa.Connection, rows: Iterable[GridRow]) -> Iterable[tuple[GridRow, Hole]]:
    """Yield holes, which are missing partitions before an existing one, with their rows of the grid.

    For a row with watermarks, yield the first hole only. For other rows, yield the holes among the shown partitions.
    """
    lines = {row.line: at for row in rows if (at := _hole_of(row))}
    texts, behind = status_facts.window_reasons(connection, lines.values()), next_done(connection, lines.values())
    for row in rows:
        if row.line is None:
            yield from ((row, each) for each in holes(row.shown))
        elif row.line in lines and row.marks.latest:
            at = lines[row.line]
            end = _start(row, at, behind[at]) if at in behind else row.marks.latest
            yield row, Hole(row.marks.contiguous, end, texts[at])


def _start(row: GridRow, at: WindowAddress, key: str) -> datetime:
    zone = row.node.tracked.zone_of(at.sub_partition) if row.node.tracked else "UTC"
    return window_at(at.grain, key, zone).start.astimezone(UTC)


def _hole_of(row: GridRow) -> WindowAddress | None:
    """Return the first incomplete window of a row, if a later window is complete: a hole. Otherwise return None."""
    marks, tracked = row.marks, row.node.tracked
    if row.line is None or tracked is None or not marks.latest or not marks.contiguous:
        return None
    feed, sub_partition, grain = row.line
    if marks.contiguous >= marks.latest:
        return None
    zone = tracked.zone_of(sub_partition)
    return WindowAddress(feed, sub_partition, grain, window_of(grain, marks.contiguous, zone).key)


def _elsewhere(
    due: Iterable[due_counts.Group], feeds: set[Feed], shown_by_partition: Mapping[Partition, Shown]
) -> Iterable[due_counts.Group]:
    counts: dict[tuple[Feed, str | None], int] = {}
    for at, each in shown_by_partition.items():
        counts[at.feed, each.verdict] = counts.get((at.feed, each.verdict), 0) + 1
    for group in due:
        count = group.count - counts.get((group.feed, status_facts.verdict_of(group.state)), 0)
        if group.feed in feeds and count > 0:
            examples = (each for each in group.examples if Partition(group.feed, each.key) not in shown_by_partition)
            yield replace(group, count=count, examples=tuple(examples))
