"""Facts about a harness: sensors, verdicts, checks and unread inputs."""

from datetime import timedelta

import dagster as dg

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.status_grid import nodes_shown, status_of
from feed_assets.orchestration.decide.undeclared import unread
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import DAY, SUMS


def evaluate_orphans(world: Harness, **later: float) -> str:
    """Evaluate the orphan sensor at a later time, and return its message."""
    sensor = world.definitions.resolve_sensor_def("orphans")
    context = dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name=sensor.name)
    with context, dg.partition_loading_context(utc_now() + timedelta(**later)):
        found = sensor(context)
    return found.skip_message


def verdict_of(world: Harness, feed: str = SUMS) -> tuple[str, str]:
    graph = Graph(world.definitions.resolve_asset_graph())
    services = Services.of(settings())
    with services.ledger.read() as connection:
        (verdict,) = verdicts(graph, connection, [Partition(Feed.parse(feed), DAY)], utc_now())
    return verdict.state.value, verdict.reason


def unread_feeds(world) -> dict[str, str]:
    return unread(Graph(world.definitions.resolve_asset_graph()), Services.of(settings()), utc_now())


def check_results(world_, asset, name):
    """Return the results of an unpartitioned check, newest first."""
    keys = world_.definitions.resolve_asset_graph().asset_check_keys
    (key,) = [each for each in keys if each.asset_key.to_user_string() == asset and each.name == name]
    history = world_.instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    return [each.status.value for each in history]


def status(world_, feed):
    """Return the notes of `feed-assets status` and the newest partitions that it shows of a feed."""
    graph, now = Graph(world_.definitions.resolve_asset_graph()), world_.now()
    known = dg.partition_loading_context(now, world_.instance)
    with known, open_ledger(settings().ledger).read() as connection:
        found = status_of(graph, connection, nodes_shown(graph), None, now)
    return found.notes, [each for row in found.rows if str(row.node.feed) == feed for each in row.shown]
