"""Late re-runs as an automation condition ("auto-materialize policy" by its older name).

Staleness is a level: the condition asks the ledger what is stale now, and so cannot lose an edge.
"""

from datetime import datetime
from time import monotonic

import dagster as dg
from dagster import AutomationContext, AutomationResult

from feed_assets.core.feeds import Partition
from feed_assets.core.readiness import State
from feed_assets.ledger import due
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.orchestration.decisions import SOME, decide_needs, need_if_known
from feed_assets.orchestration.graph import Graph
from feed_assets.settings import settings

MOST = 1000
"""Partitions of one dataset that one tick looks at; the rest follow in the next."""


class LateRerun(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions that were built, whose inputs have changed since, by enough to be worth a re-run."""

    @property
    def name(self) -> str:
        """How the UI calls it."""
        return "late data is worth a re-run"

    def evaluate(self, context: AutomationContext[dg.AssetKey]) -> AutomationResult[dg.AssetKey]:
        """Ask the ledger's verdict; nothing is remembered between evaluations."""
        view = context.asset_graph_view
        graph = Graph(view.asset_graph)
        found = late_outputs(graph, _ledger(), context.key, view.effective_dt)
        stale = {graph.by_key[context.key].key_of(each) for each in found}
        if context.partitions_def is None:
            subset = view.get_full_subset(key=context.key) if stale else view.get_empty_subset(key=context.key)
        else:
            subset = view.get_subset_from_partition_keys(context.key, context.partitions_def, {*filter(None, stale)})
        return AutomationResult(context, context.candidate_subset.compute_intersection(subset))


def _ledger() -> Ledger:
    return open_ledger(settings().ledger)


def late_rerun() -> dg.AutomationCondition[dg.AssetKey]:
    """The condition of every feed asset: late data are worth a re-run, and no run is in progress."""
    return ~dg.AutomationCondition.in_progress() & LateRerun()


def late_outputs(graph: Graph, ledger: Ledger, key: dg.AssetKey, now: datetime) -> list[Partition]:
    """The stale partitions of a dataset (asked by the key of any of its assets), as partitions of that asset.

    As many as a tick may request, and as can be found in this asset's share of a tick's time; the rest follow.
    """
    node = graph.by_key[key]
    dataset = graph.by_key[node.outputs[-1]]
    ends = monotonic() + settings().tick_seconds / len(graph.by_key)
    with ledger.read() as connection:
        looked = [item for item in due.look(connection, [dataset.feed], now, MOST) if not item.awaited]
        stale: list[Partition] = []
        for first in range(0, len(looked), SOME):
            needs = [need_if_known(graph, item.partition, now) for item in looked[first : first + SOME]]
            decided = decide_needs(connection, [need for need in needs if need], now)
            stale += [Partition(node.feed, each.output.key) for each in decided if each.state is State.REBUILD]
            if len(stale) >= settings().max_requests or monotonic() > ends:
                break
    return stale[: settings().max_requests]
