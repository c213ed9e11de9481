"""Feeds of intake in the loop: the log alone tells of their batches, and a tick never lists them."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import Pull, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.write import publish as put
from feed_assets.intake.publish import Batch, publish
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.orchestration.worlds import DAY, DAYS, RAW, SCHEMA, harness, outcomes, rows, sums_of

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
EVENTS = {"schema": "id string, at timestamp", "event_time": "at", "format": "json", "partitions_def": HOURS}


@pytest.mark.usefixtures("home")
def test_a_batch_is_built_from_though_nobody_looks_through_its_feed():
    raw = foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA, intake=Pull("partner", "%Y-%m-%d/*"))
    world = harness(raw, sums_of(raw))
    batch, services = Partition(Feed.parse(RAW), DAY).batch("a"), Services.of(settings())
    put(services.board, batch, {"raw.csv": rows(1).encode()}, datetime(2020, 2, 1, tzinfo=UTC))
    assert outcomes(world.run_until_idle()) == []
    publish(services, Batch(batch, {"raw.csv": rows(1).encode()}), "pull")
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_a_feed_of_intake_is_appendable_and_none_of_those_that_are_looked_through():
    pushed = foreign_feed("partners/men/v1.0", intake="push", **EVENTS)
    other = foreign_feed("partners/other/v1.0", schema="id string")
    graph = Graph(dg.Definitions([pushed, other]).resolve_asset_graph())
    assert graph.polled() == [Feed.parse("partners/other/v1.0")]
    assert graph.claiming() == [Feed.parse("partners/men/v1.0")]
    assert graph.appendable() == {Feed.parse("partners/men/v1.0")}


@pytest.mark.parametrize(
    "odd",
    [
        {"format": "csv"},
        {"event_time": None},
        {"partitions_def": None},
        {"partitions_def": dg.DailyPartitionsDefinition("2026-01-01")},
        {"partitions_def": dg.HourlyPartitionsDefinition("2026-01-01-00:00", timezone="Europe/Berlin")},
        {"partitions_def": dg.HourlyPartitionsDefinition("2026-01-01-00:30", minute_offset=30)},
    ],
)
def test_what_the_receiver_could_not_sort_into_hours_is_refused(odd):
    with pytest.raises(InvalidDefinition, match="is pushed, and declared as"):
        foreign_feed("partners/men/v1.0", intake="push", **{**EVENTS, **odd})
