"""Feeds of intake in the loop: ticks learn of batches from the log only, and never list them."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import Completeness, Pull, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.feeds.write import publish as put
from feed_assets.intake.batch_publication import BatchContent, publish
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import DAY, DAYS, RAW, SCHEMA, harness, outcomes, rows, sums_of

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
EVENTS = {"schema": "id string, at timestamp", "event_time": "at", "format": "json", "partitions_def": HOURS}


@pytest.mark.usefixtures("home")
def test_a_batch_is_built_from_though_nobody_looks_through_its_feed():
    raw = foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA, intake=Pull("partner", "%Y-%m-%d/*"))
    world = harness(raw, sums_of(raw), sources={"partner": "memory://"})
    batch, services = Partition(Feed.parse(RAW), DAY).batch("a"), Services.of(settings())
    put(services.board, batch, {"raw.csv": rows(1).encode()}, datetime(2020, 2, 1, tzinfo=UTC))
    assert outcomes(world.run_until_idle()) == []
    publish(services, BatchContent(batch, {"raw.csv": rows(1).encode()}), "pull")
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


@pytest.mark.usefixtures("home")
def test_pushed_events_complete_their_windows_before_any_run_reads_them():
    """Report the number of events by the other tier: the hour is complete with them, and has an issue with one more."""
    men = "partners/men/v1.0"
    raw = foreign_feed(men, intake="push", completeness=Completeness(grains=("hour",), tiers=("adserver",)), **EVENTS)
    world, services = harness(raw), Services.of(settings())
    hour = datetime(2026, 1, 1, 5, tzinfo=UTC)
    batches = Partition(Feed.parse(men), "2026-01-01-05:00")
    at = WindowAddress(batches.feed, "", "hour", "2026-01-01-05:00")

    def state() -> str:
        world.tick()
        with services.ledger.read() as connection:
            return str(window_queries.stored_windows(connection, [at])[at].state)

    world.tick()
    publish(services, BatchContent(batches.batch("a"), {"events.json": b"{}\n{}\n"}, ((hour, 2),)), "receiver a")
    assert state() == "open"
    told = [Report(batches.feed, "", "day", ((hour, n),), "adserver", f"{n:020d}") for n in (2, 3)]
    assert not report(services.ledger, told[:1], datetime.now(UTC)).rejected
    assert state() == "complete"
    publish(services, BatchContent(batches.batch("b"), {"events.json": b"{}\n"}, ((hour, 1),)), "receiver b")
    assert state() == "complete_with_issue", "one more than the other tier has"
    assert not report(services.ledger, told[1:], datetime.now(UTC)).rejected
    assert state() == "complete"


def test_a_feed_of_intake_is_appendable_and_none_of_those_that_are_looked_through():
    pushed = foreign_feed("partners/men/v1.0", intake="push", **EVENTS)
    other = foreign_feed("partners/other/v1.0", schema="id string")
    graph = Graph(dg.Definitions([pushed, other]).resolve_asset_graph())
    assert graph.polled() == [Feed.parse("partners/other/v1.0")]
    assert graph.claiming() == [Feed.parse("partners/men/v1.0")]
    assert graph.appendable() == {Feed.parse("partners/men/v1.0")}


@each_case(
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
def test_a_pushed_feed_that_cannot_be_sorted_into_hours_is_refused(odd):
    with pytest.raises(InvalidDefinition, match="is pushed, and declared as"):
        foreign_feed("partners/men/v1.0", intake="push", **{**EVENTS, **odd})
