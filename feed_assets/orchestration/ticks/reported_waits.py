"""Reasons why partitions wait, reported as observations on Dagster's pages."""

import dagster as dg

from feed_assets.core.markdown import without_links
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.reported_reasons import to_tell
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.ticks.tick import OutOfTime, Tick

TOLD = 100
"""Greatest number of observations per tick. The next ticks report the others."""


def tell_waits(tick: Tick, _: OutOfTime) -> None:
    """Report to Dagster, as an observation, each partition whose reason to wait has changed.

    If the tick fails, report nothing.
    """
    if tick.raised:
        return
    nodes, most = {node.feed: node for node in tick.graph.datasets_of(tick.source)}, min(TOLD, tick.budget.reports)
    changed = to_tell(tick.ledger, nodes.keys(), most)
    tick.reported_waits += changed
    tick.reports = [*tick.reports, *(_observation(nodes[each.partition.feed], each) for each in changed)]
    tick.is_complete &= len(changed) < most


def _observation(node: Node, item: DueOutput) -> dg.AssetObservation:
    state, why = item.state or "", item.reason or ""
    metadata = {"verdict": state, "why": why, "since": dg.MetadataValue.timestamp(item.since)}
    return dg.AssetObservation(node.key, without_links(f"{state}: {why}"), metadata, node.key_of(item.partition))
