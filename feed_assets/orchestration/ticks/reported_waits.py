"""Reasons why partitions wait, as an observation on Dagster's page of each."""

import dagster as dg

from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.reported_reasons import to_tell
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.ticks.tick import OutOfTime, Tick

TOLD = 100
"""Maximum number of observations of a tick; the rest follow in the next ones."""


def tell_waits(tick: Tick, _: OutOfTime) -> None:
    """Observe each partition whose reason to wait changed since the last report; none in a tick that fails."""
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
    return dg.AssetObservation(node.key, f"{state}: {why}", metadata, node.key_of(item.partition))
