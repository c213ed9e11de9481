"""Four partitions and three consumers in two levels, with two deliberately wrong variants of their automation."""

import os

import dagster as dg

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Partition
from feed_assets.core.launching import run_key
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.steps import FEEDS
from feed_assets.orchestration.ticks.tick import evaluate
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings

KEYS = ("p1", "p2", "p3", "p4")
RAW, LEFT, RIGHT, BOTH = (f"soak/{name}/v1.0" for name in ("raw", "left", "right", "both"))
READS = {LEFT: [RAW], RIGHT: [RAW], BOTH: [LEFT, RIGHT]}
"""Inputs of each dataset."""

RIGHT_ONE, EDGE, KEY = "right", "edge", "key"
VARIANT = "SOAK_VARIANT"
"""Environment variable that chooses one of these variants."""

_AC = dg.AutomationCondition
EDGE_TRIGGERED = (
    _AC.any_deps_match(_AC.data_version_changed()).since(_AC.newly_requested() | _AC.newly_updated())
    & ~_AC.in_progress()
    & ~_AC.missing()
)
"""A wrong condition: it takes an update for consumed that is reported in the tick that sees the previous run's end."""


def definitions(variant: str) -> dg.Definitions:
    """Return the project as a user would write it, or one of its wrong variants."""
    keys = dg.StaticPartitionsDefinition([*KEYS])
    raw = foreign_feed(RAW, partitions_def=keys, schema="k string, n int")

    @feed_asset(LEFT, partitions_def=keys, inputs={"raw": raw})
    def left(raw):
        """Return the rows unchanged."""
        return raw

    @feed_asset(RIGHT, partitions_def=keys, inputs={"raw": raw})
    def right(raw):
        """Return the rows unchanged."""
        return raw

    @feed_asset(BOTH, partitions_def=keys, inputs={"left": left, "right": right})
    def both(left, right):
        """Return the rows of both sides."""
        return left.unionByName(right)

    assets = [raw, left, right, both]
    if variant == EDGE:
        assets = [raw, *(_edge_triggered(each) for each in (left, right, both))]
    automated = with_automation(dg.Definitions(assets=assets))
    return _without_attempts(automated) if variant == KEY else automated


def _edge_triggered(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    return asset.map_asset_specs(lambda spec: spec.replace_attributes(automation_condition=EDGE_TRIGGERED))


def _without_attempts(automated: dg.Definitions) -> dg.Definitions:
    """Request wrongly: the request after a failed run has the same key, and Dagster drops it forever."""
    sensor = dg.SensorDefinition(
        "feeds",
        evaluation_fn=_ask_without_attempts,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=dg.AssetSelection.all(),
    )
    others = [each for each in automated.sensors or () if each.name != "feeds"]
    return dg.Definitions(assets=automated.assets, sensors=[sensor, *others], executor=automated.executor)


def _ask_without_attempts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    result = evaluate(context, FEEDS, None)
    asked = [request.with_replaced_attrs(run_key=_key_of(context, request)) for request in result.run_requests or ()]
    return dg.SensorResult(run_requests=asked, asset_events=result.asset_events, cursor=result.cursor)


def _key_of(context: dg.SensorEvaluationContext, request: dg.RunRequest) -> str:
    path = request.tags.get("feed_assets/output")
    if path is None:  # It covers many partitions.
        return str(request.partition_key_range)
    with Services.of(settings()).ledger.read() as connection:
        graph = Graph(context.repository_def.asset_graph)
        (verdict,) = verdicts(graph, connection, [Partition.parse(path)], utc_now())
    return run_key(verdict, 0, 0)


defs = definitions(os.environ.get(VARIANT, RIGHT_ONE))
