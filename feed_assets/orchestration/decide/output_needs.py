"""The needs of an output: partitions and windows of each input, and the waiting rules of its dataset."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import AbsentInput, Beyond, Input, TableInput, WindowInput
from feed_assets.core.late_policy import Late, Periods
from feed_assets.core.needs import Need
from feed_assets.core.waits import Waits, waits_of
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.overlapping_windows import mapping_between, spans_of
from feed_assets.orchestration.decide.pipeline_tables import consumer_of
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.orchestration.declare.partitions import extent_of, keys_beside_time, times_of
from feed_assets.orchestration.declare.time_windows import ends_from
from feed_assets.runs.recipe import made_with
from feed_assets.settings import settings


def need_of(graph: Graph, output: Partition) -> Need:
    """Return everything that an output needs. Raise InvalidDefinition if its waiting rules cannot be met."""
    node = graph.node(output.feed)
    declared = node.declaration
    if not isinstance(declared, Dataset):
        raise InvalidName(f"{node.feed} is a {node.role} feed: expected a dataset.")
    read = [*graph.parents(node), *([node] if mapping_between(node, node) else [])]
    inputs = tuple(each for parent in read for each in _inputs(graph, parent, node, declared, output))
    waits, recipe_digest = waits_for(node, output), made_with(declared.recipe, settings())
    late_of = {Feed.parse(feed): late for feed, late in declared.late_of.items()}
    periods = _periods(node, output, [declared.late, *late_of.values()])
    options = recipe_digest, waits, declared.reprocess, late_of, periods, declared.adds or declared.appendable
    need = Need(output, inputs, declared.late, consumer_of(graph, node), *options)
    waits.refuse(output, len(need.needed))
    return need


def _periods(node: Node, output: Partition, policies: Iterable[Late]) -> Periods:
    """Return the ends of an output's period and of the following periods in which its late data are checked.

    Return no ends if no policy for late data depends on periods.
    """
    counting = [each for each in policies if each.check or each.counts_periods]
    times, extent = times_of(node.partitions_def), extent_of(node.partitions_def, output.key)
    if not counting or times is None or extent.end is None:
        return Periods(zone=extent.zone)
    back = max((max(each.looked_at) for each in counting if each.looked_at), default=-1)
    return Periods(ends_from(times, extent.end, back + 1), extent.zone)


def waits_for(node: Node, output: Partition) -> Waits:
    """Return the waiting times of an output, as declared for its dataset."""
    declared, extent = node.declaration, extent_of(node.partitions_def, output.key)
    wait = declared.wait if isinstance(declared, Dataset) else None
    if wait is None or extent.start is None or extent.end is None:
        return Waits()
    return waits_of(wait, extent.start, extent.end, extent.zone)


def deadline_said(node: Node, output: Partition, now: datetime, *, only_missed: bool = False) -> str | None:
    """Return a text with the deadline of an unbuilt output and whether it was missed.

    Return None if it has no deadline or, with `only_missed`, if the deadline is not over.
    """
    deadline = waits_for(node, output).deadline
    if deadline is None or (only_missed and deadline > now):
        return None
    by = f"built by {deadline:%Y-%m-%d %H:%M} UTC"
    return f"it should have been {by}" if deadline <= now else f"it should be {by}"


def _inputs(graph: Graph, parent: Node, node: Node, declared: Dataset, output: Partition) -> Iterator[Input]:
    """Yield the partitions of one input that an output needs, and their windows."""
    needed, absent = graph.upstream(parent, node, node.key_of(output))
    yield from _partitions(graph, parent, declared, output, needed)
    own, is_optional = Partition(parent.feed, output.key), parent.feed in declared.optional_of
    needs_own = parent.feed in declared.requires_own_of
    missing = absent if not needs_own else [] if own in needed else [own]
    yield from map(AbsentInput, missing if not is_optional else ())
    yield from _windows(graph, parent, node, declared=declared, output=output, needed=needed)


def _partitions(
    graph: Graph, parent: Node, declared: Dataset, output: Partition, needed: Sequence[Partition]
) -> Iterator[Input]:
    feed, kind, own = parent.feed, parent.kind_of_input, Partition(parent.feed, output.key)
    can_be_required = kind is not TableInput and feed not in declared.optional_of
    needs_own, ignores_quality = feed in declared.requires_own_of, feed in declared.ignores_quality_of
    beyond, checks = _beyond(graph, parent, declared, output), declared.checks_of.get(str(feed), ())
    check_names = frozenset(key.name for key in graph.checks(parent)) if checks else frozenset[str]()
    is_timed = times_of(parent.partitions_def) is not None
    for each in needed:
        is_required = can_be_required and (not needs_own or each == own)
        keys = keys_beside_time(each.key) if is_timed else each.key
        yield kind(
            each,
            is_required,
            ignores_quality,
            beyond=beyond,
            checks=checks,
            made_checks=check_names,
            keys=keys,
        )


def _windows(
    graph: Graph, parent: Node, node: Node, declared: Dataset, output: Partition, needed: Sequence[Partition]
) -> Iterator[Input]:
    is_required, wait = parent.feed not in declared.optional_of, declared.wait
    spans = spans_of(parent, node, output, needed)
    counters = graph.counters_of(parent, node, needed) if spans and parent.counted_by else None
    for span, counted in spans:
        yield WindowInput(
            span,
            is_required,
            parent.feed in declared.ignores_quality_of,
            tuple(counted),
            counts_itself=counters == (),
            counters=counters or (),
            is_partial=is_required and wait is not None and wait.at_least is not None,
            checks=declared.checks_of.get(str(parent.feed), ()),
        )


def _beyond(graph: Graph, parent: Node, declared: Dataset, output: Partition) -> Beyond | None:
    """Return the time that an input's data must reach before the output is built: the end of the output's time.

    Return None if the dataset declares no such rule for the input.
    """
    extent, tracked = extent_of(graph.node(output.feed).partitions_def, output.key), parent.tracked
    if parent.feed not in declared.beyond_of or extent.end is None:
        return None
    return Beyond(extent.end, grain=tracked.base if tracked else None)
