"""The stale partitions that one evaluation of the condition requests. The ledger lists them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import dagster as dg

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import due
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.home_choice import placed
from feed_assets.orchestration.decide.request_budget import of_a_tick
from feed_assets.orchestration.decide.requests import in_progress
from feed_assets.orchestration.decide.resource_requests import claimed, in_queue_order
from feed_assets.orchestration.declare.partitions import Existence, existence
from feed_assets.settings import settings

if TYPE_CHECKING:
    from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView


@dataclass(frozen=True)
class _Stale:
    """Stale partitions of one evaluation, by dataset: those in the ledger (`listed`), and those to request (`claimed`).

    Partitions that a run is building are left out. The condition does not request them, so it must not claim them: a
    claim would delay their next request.
    """

    listed: Mapping[Feed, Sequence[DueOutput]]
    claimed: dict[Feed, Sequence[DueOutput]] = field(default_factory=dict[Feed, Sequence[DueOutput]])


_stale: "WeakKeyDictionary[AssetGraphView, _Stale]" = WeakKeyDictionary()
"""Stale partitions by evaluation. One query serves all assets of an evaluation."""


def to_request(view: "AssetGraphView", asset: dg.AssetKey) -> list[str | None]:
    """Return the Dagster keys of a dataset's stale partitions to request now. `asset` is any asset of the dataset."""
    stale = _stale_in(view)
    return _requested(Graph(view.asset_graph), asset, stale, view.effective_dt) if stale.listed else []


def _stale_in(view: "AssetGraphView") -> _Stale:
    if view not in _stale:
        graph, ledger = Graph(view.asset_graph), open_ledger(settings().ledger)
        most = settings().max_requests * settings().partitions_per_run  # the most that a tick can request
        with ledger.read() as connection:
            listed = due.to_rebuild(connection, view.effective_dt, most, settings().history)
        busy = in_progress(graph, ledger, view.instance) if listed else set[Partition]()
        _stale[view] = _Stale(
            {feed: [each for each in some if each.partition not in busy] for feed, some in listed.items()}
        )
    return _stale[view]


def _requested(graph: Graph, asset: dg.AssetKey, stale: _Stale, now: datetime) -> list[str | None]:
    """Return the Dagster keys of a dataset's stale partitions to request now. `asset` is any asset of the dataset.

    Partitions that were removed since the decision are left out, because one of them would fail Dagster's whole tick.
    Partitions that another evaluation has requested meanwhile are left out, too.
    """
    node, dataset = graph.by_key[asset], graph.dataset(asset).feed
    # Dagster evaluates the condition for the rejects, too, but the same run builds them.
    if dataset not in stale.claimed:
        listed, ledger = stale.listed.get(dataset, []), open_ledger(settings().ledger)
        stands = [at for at in listed if existence(node.partitions_def, at.partition.key, now) is Existence.EXISTS]
        by_output = {each.partition: each for each in stands}
        inputs = placed(graph, ledger, by_output, None, now)
        sizes = {output: each.bytes or 0 for output, each in by_output.items() if inputs is None or output in inputs}
        requested = of_a_tick(graph, ledger, in_queue_order(graph, ledger, sizes, now), now)
        blocks = claimed(graph, ledger, requested, by_output, now, inputs=inputs or {}) if stands else []
        stale.claimed[dataset] = [by_output[output] for block in blocks for output in block]
    return [node.key_of(Partition(node.feed, each.partition.key)) for each in stale.claimed[dataset]]
