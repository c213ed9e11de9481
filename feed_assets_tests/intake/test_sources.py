"""One feed of many partners: the source is a static dimension beside hours, and each pushes to its own partitions."""

import json
from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import Completeness, Regions, foreign_feed
from feed_assets.cli.receive import pushed_feeds
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.windows import WindowAddress
from feed_assets.feeds import batch_set
from feed_assets.intake import authentication
from feed_assets.intake.batch_publication import BatchContent, publish
from feed_assets.ledger import event_rejects
from feed_assets.ledger.states import window_queries
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.catalog import Catalog
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import LINES, NOW, Partner, door_of, event, lines, listening, numbers
from feed_assets_tests.support.sum_projects import harness, outcomes, sums_of

FEED = "partners/all/v1.0"
MEN, WOMEN = f"{FEED}/men", f"{FEED}/women"
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-03-00:00")
SOURCES = dg.StaticPartitionsDefinition(["men", "women"])
BY_SOURCE = dg.MultiPartitionsDefinition({"source": SOURCES, "hour": HOURS})
HOUR = "2026-01-02-11:00"
EVENTS = {"schema": "id string, at timestamp, n int", "event_time": "at", "format": "json", "intake": "push"}


def spec(partitions_def=BY_SOURCE, **more):
    return foreign_feed(FEED, partitions_def=partitions_def, **EVENTS, **more)


def feeds_of(*specs):
    return pushed_feeds(Graph(dg.Definitions([*specs]).resolve_asset_graph()))


def held(board, source: str) -> list[int]:
    """Return the numbers of a source's events in the hour, as readers see them."""
    reading = batch_set.latest(board, Partition(Feed.parse(FEED), f"{HOUR}/{source}"))
    texts = [board.get(file.key) or b"" for update in reading.updates for file in update.files]
    return numbers(json.loads(line) for text in texts for line in text.splitlines())


def test_each_source_pushes_to_its_own_partitions_by_its_own_key(local_board, ledger, tmp_path):
    door = door_of(local_board, ledger, tmp_path / "spool", feeds=feeds_of(spec()))
    key = authentication.add(ledger, "women", [WOMEN], NOW)
    with listening(door, scopes=(MEN,)) as men:
        women = Partner(men.url, key)
        assert men.post(lines(event(1), {"id": 7}), MEN).json()["accepted"] == 1
        assert women.post(lines(event(2)), WOMEN).json()["accepted"] == 1
        assert men.post(lines(event(3)), WOMEN).status_code == 403
        assert men.post(lines(event(3)), FEED).status_code == 403
    assert (held(local_board, "men"), held(local_board, "women")) == ([1], [2])
    with ledger.read() as connection:
        assert [source for source, _, _ in event_rejects.rejects(connection, 10)] == [MEN]


def test_an_idempotency_key_is_its_sources_own_also_after_a_kill(local_board, ledger, tmp_path):
    named = {**LINES, "Idempotency-Key": "monday"}
    feeds = feeds_of(spec())
    for is_first in (True, False):
        door = door_of(local_board, ledger, tmp_path / "spool", feeds=feeds)
        with listening(door, scopes=(MEN, WOMEN)) as partner:
            for number, source in enumerate((MEN, WOMEN)):
                said = partner.post(lines(event(number)), source, named)
                assert (said.status_code, "Idempotency-Replayed" in said.headers) == (200, not is_first)
            door.receiver.spool.seal = lambda **_: None  # Publish nothing at the end, as if killed.
    door = door_of(local_board, ledger, tmp_path / "spool", feeds=feeds)
    with listening(door):
        pass
    assert (held(local_board, "men"), held(local_board, "women")) == ([0], [1])


@pytest.mark.usefixtures("home")
def test_events_of_one_source_build_only_its_partition():
    raw = spec()
    world = harness(raw, sums_of(raw, partitions_def=BY_SOURCE), give=lambda _: Given([{"k": "a", "n": 1}]))
    batch = Partition(Feed.parse(FEED), f"{HOUR}/men").batch("a")
    publish(Services.of(settings()), BatchContent(batch, {"events.json": b"{}\n"}), "receiver a")
    assert outcomes(world.run_until_idle()) == [("sums", f"{HOUR}|men", True)]


@pytest.mark.usefixtures("home")
def test_windows_of_a_pushed_feed_are_complete_by_source():
    raw = spec(
        completeness=Completeness(grains=("hour",)), regions=Regions({"men": "UTC", "women": "UTC"}, name="source")
    )
    world, services = harness(raw), Services.of(settings())
    world.tick()
    hour = datetime(2026, 1, 2, 11, tzinfo=UTC)
    batch = Partition(Feed.parse(FEED), f"{HOUR}/men").batch("a")
    publish(services, BatchContent(batch, {"events.json": b"{}\n"}, ((hour, 1),)), "receiver a")
    world.tick()
    at = [WindowAddress(batch.feed, f"source={source}", "hour", HOUR) for source in ("men", "women")]
    with services.ledger.read() as connection:
        assert {
            each.sub_partition: row.records for each, row in window_queries.stored_windows(connection, at).items()
        } == {"source=men": 1}


@pytest.mark.usefixtures("home")
def test_the_source_is_a_partition_key_of_the_catalog_table():
    services = Services.of(settings())
    batch = Partition(Feed.parse(FEED), f"{HOUR}/men").batch("a")
    publish(services, BatchContent(batch, {"events.json": b"{}\n"}), "receiver a")
    catalog = Catalog(Graph(dg.Definitions([spec()]).resolve_asset_graph()), services.ledger, "s3://lake")
    (found,) = {each for _, each in catalog.after(0, 100) if each}
    assert (found.table.keys, found.values) == (
        ("date", "hour", "source", "batch"),
        ("2026-01-02", "11", "men", "a"),
    )


@each_case(
    "odd",
    [
        dg.MultiPartitionsDefinition({"source": SOURCES, "day": dg.DailyPartitionsDefinition("2026-01-01")}),
        dg.MultiPartitionsDefinition({"source": dg.DynamicPartitionsDefinition(name="sources"), "hour": HOURS}),
        SOURCES,
    ],
)
def test_sources_that_the_receiver_cannot_know_are_refused(odd):
    with pytest.raises(InvalidDefinition, match="alone or with a static dimension of sources"):
        spec(odd)
