"""Two versions of a dataset side by side: the older keeps its asset key, and is retired once nobody reads it."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import Cadence, event_table, feed_asset, foreign_feed, state_table, with_automation
from feed_assets.cli import app
from feed_assets.core.errors import InvalidDefinition, PartitionClosed
from feed_assets.core.feeds import Feed, Partition, newer_versions
from feed_assets.ledger import alerts, closures, due
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.pipeline_tables import published
from feed_assets.orchestration.declare.versions import NEWER, READ_BY
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.public_declarations import HOURS, SHOP
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SCHEMA,
    SUMS,
    harness,
    outcomes,
    picked_of,
    raw_feed,
    rows,
    sums_of,
)

NEWER_SUMS = "t/sums/v2.0"


def newer_of(read, **options) -> dg.AssetsDefinition:
    @feed_asset(NEWER_SUMS, partitions_def=DAYS, inputs={"raw": read}, version_in_key=True, **options)
    def sums(raw):
        """Sum numbers otherwise."""
        return raw

    return sums


def side_by_side() -> Harness:
    """Build raw -> sums v1.0 -> picked, and sums v2.0 from the same raw feed."""
    raw = raw_feed()
    sums = sums_of(raw)
    return harness(raw, sums, newer_of(raw), picked_of(sums))


def command(monkeypatch: pytest.MonkeyPatch, loop: Harness, *arguments: str):
    """Run a command line whose module has the definitions of a harness."""
    monkeypatch.setattr("feed_assets.cli.loaded_location.load", lambda _=None: loop.definitions)
    return CliRunner().invoke(app, [*arguments])


def test_the_older_version_keeps_its_asset_key_and_the_newer_has_a_versioned_one():
    loop = side_by_side()
    keys = {key.to_user_string() for key in loop.definitions.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {
        "t/raw", "t/sums", "t/sums_rejects", "t/sums/v2.0", "t/sums_rejects/v2.0", "t/picked",
    }  # fmt: skip


@pytest.mark.parametrize(
    "declared",
    [
        foreign_feed("a/b/v2.0", schema=SCHEMA, version_in_key=True),
        event_table("a/b/v2.0", source=SHOP, version_in_key=True),
        state_table("a/b/v2.0", partitions_def=HOURS, version_in_key=True),
    ],
)
def test_feeds_and_tables_of_others_may_have_the_version_in_the_key(declared):
    assert declared.key.to_user_string() == "a/b/v2.0"


def test_both_versions_are_built_and_reported_under_their_own_keys():
    loop = side_by_side()
    loop.drop(RAW, DAY, rows(1, 2))
    runs = loop.run_until_idle()
    assert sorted(outcomes(runs)) == [("picked", DAY, True), ("sums", DAY, True), ("sums/v2.0", DAY, True)]
    (told,) = loop.reported("t/sums/v2.0", DAY)
    assert told.update_id == loop.newest(NEWER_SUMS, DAY)
    assert len(loop.reported("t/sums", DAY)) == 1


def test_the_newer_version_may_read_the_older_one():
    raw = raw_feed()
    sums = sums_of(raw)
    loop = harness(raw, sums, newer_of(sums))
    loop.drop(RAW, DAY, rows(1, 2))
    assert outcomes(loop.run_until_idle()) == [("sums", DAY, True), ("sums/v2.0", DAY, True)]


def test_two_versions_with_one_asset_key_are_refused_with_the_remedy():
    found = r"t/sums_rejects/v1.0 and t/sums_rejects/v2.0 have the same asset key, .* version_in_key=True for the newer"
    raw = raw_feed()
    for assets in ([sums_of(raw), sums_of(raw, name=NEWER_SUMS)], [sums_of(raw, name=NEWER_SUMS), sums_of(raw)]):
        with pytest.raises(InvalidDefinition, match=found):
            with_automation(dg.Definitions(assets=[raw, *assets]))
    with pytest.raises(InvalidDefinition, match=r"t/raw/v1.0 and t/raw/v1.1 have the same asset key"):
        with_automation(dg.Definitions(assets=[raw, raw_feed("t/raw/v1.1")]))


def test_metadata_of_the_older_version_name_its_readers_and_the_newest():
    graph = side_by_side().definitions.resolve_asset_graph()
    said = graph.get(dg.AssetKey(["t", "sums"])).metadata
    assert said[NEWER] == dg.MetadataValue.asset(dg.AssetKey(["t", "sums", "v2.0"]))
    assert said[READ_BY].value == "- [t/picked](/assets/t/picked)"
    assert NEWER not in graph.get(dg.AssetKey(["t", "sums", "v2.0"])).metadata


def test_explain_names_readers_of_the_older_version_and_the_newer_one(monkeypatch):
    loop = side_by_side()
    loop.drop(RAW, DAY, rows(1, 2))
    loop.run_until_idle()
    still = "t/sums/v2.0 is newer, and t/sums/v1.0 is still read by t/picked/v1.0"
    assert still in command(monkeypatch, loop, "explain", SUMS, DAY, "--json").stdout
    assert still in command(monkeypatch, loop, "explain", SUMS, "--json").stdout
    assert (
        "it reads t/sums/v1.0, but t/sums/v2.0 exists"
        in command(monkeypatch, loop, "explain", "t/picked/v1.0", DAY, "--json").stdout
    )
    assert "is newer" not in command(monkeypatch, loop, "explain", NEWER_SUMS, DAY, "--json").stdout


def test_a_version_with_readers_cannot_be_retired(monkeypatch):
    loop = side_by_side()
    result = command(monkeypatch, loop, "feed", "retire", SUMS, "--why", "v2.0 is there")
    assert "t/sums/v1.0 is still read by t/picked/v1.0: expected no reader" in str(result.exception)
    loop.drop(RAW, DAY, rows(1))
    assert len(loop.run_until_idle()) == 3


def test_a_chain_is_retired_from_its_last_dataset_upwards(monkeypatch):
    loop = side_by_side()
    assert command(monkeypatch, loop, "feed", "retire", "t/picked/v1.0", "--why", "nobody reads it").exit_code == 0
    assert command(monkeypatch, loop, "feed", "retire", SUMS, "--why", "nor this").exit_code == 0


def test_a_retired_version_is_in_no_published_pipeline():
    loop = alone()
    graph = Graph(loop.definitions.resolve_asset_graph())
    assert SUMS in {each.table_name for each in published(graph)}
    assert SUMS not in {each.table_name for each in published(graph, {Feed.parse(SUMS)})}


def test_a_lateness_alert_returns_when_a_retired_version_is_brought_back(monkeypatch):
    raw = raw_feed()
    sums = feed_asset(SUMS, partitions_def=DAYS, inputs={"raw": raw}, cadence=Cadence("0 6 * * *", timedelta(0)))(
        lambda raw: raw
    )
    loop = harness(raw, sums, newer_of(raw))
    loop.now = lambda: datetime(2020, 1, 1, tzinfo=UTC)
    loop.ask(name="watch")
    loop.now = lambda: datetime(2020, 1, 3, 7, tzinfo=UTC)

    def missing():
        loop.ask(name="watch")
        with open_ledger(settings().ledger).read() as connection:
            return [each.reason for each in alerts.open_alerts(connection) if SUMS in each.name]

    before = missing()
    assert DAY in before[0]
    command(monkeypatch, loop, "feed", "retire", SUMS, "--why", "v2.0 is there")
    assert missing() == []
    command(monkeypatch, loop, "feed", "retire", SUMS, "--undo", "--why", "not yet")
    assert missing() == before


def alone() -> Harness:
    """Build raw -> sums v1.0 and sums v2.0; the older one has no reader."""
    raw = raw_feed()
    return harness(raw, sums_of(raw), newer_of(raw))


def test_a_retired_version_is_not_built_until_it_is_brought_back(monkeypatch):
    loop = alone()
    loop.drop(RAW, DAY, rows(1))
    loop.run_until_idle()
    assert command(monkeypatch, loop, "feed", "retire", SUMS, "--why", "v2.0 is there", "--json").exit_code == 0
    loop.drop(RAW, NEXT_DAY, rows(2))
    loop.drop(RAW, DAY, rows(3))
    assert sorted(outcomes(loop.run_until_idle())) == [("sums/v2.0", DAY, True), ("sums/v2.0", NEXT_DAY, True)]
    said = command(monkeypatch, loop, "explain", SUMS, NEXT_DAY, "--json").stdout
    assert '"state": "closed"' in said
    assert "retired by" in said
    assert command(monkeypatch, loop, "feed", "retire", SUMS, "--undo", "--why", "one is left").exit_code == 0
    assert sorted(outcomes(loop.run_until_idle())) == [("sums", DAY, True), ("sums", NEXT_DAY, True)]


def test_building_a_retired_version_by_hand_is_refused_with_the_undo_command(monkeypatch):
    loop = alone()
    loop.drop(RAW, DAY, rows(1))
    command(monkeypatch, loop, "feed", "retire", SUMS, "--why", "v2.0 is there")
    with pytest.raises(PartitionClosed, match=r"is retired by .* `feed-assets feed retire t/sums/v1.0 --undo --why …`"):
        dg.materialize([*loop.definitions.assets], partition_key=DAY, instance=loop.instance, selection="t/sums")


def test_a_reader_in_another_code_location_prevents_retiring(monkeypatch):
    loop = alone()
    theirs = harness(raw_feed(SUMS), sums_of(raw_feed(SUMS), name="u/made/v1.0"))
    loop.run_until_idle()
    theirs.run_until_idle()
    result = command(monkeypatch, loop, "feed", "retire", SUMS, "--why", "v2.0 is there")
    assert "t/sums/v1.0 is still read by u/made/v1.0" in str(result.exception)


def test_explain_names_readers_in_other_code_locations(monkeypatch):
    loop = alone()
    theirs = harness(raw_feed(SUMS), sums_of(raw_feed(SUMS), name="u/made/v1.0"))
    loop.drop(RAW, DAY, rows(1))
    loop.run_until_idle()
    theirs.run_until_idle()
    said = command(monkeypatch, loop, "explain", SUMS, DAY, "--json").stdout
    assert "t/sums/v1.0 is still read by u/made/v1.0" in said


def test_a_reader_of_the_rejects_alone_counts_as_a_reader():
    raw = raw_feed()
    sums = sums_of(raw)
    rejects = next(spec for spec in sums.specs if spec.key.path[-1] == "sums_rejects")

    @feed_asset("t/looked/v1.0", partitions_def=DAYS, inputs={"turned_away": rejects})
    def looked(turned_away):
        """Return the rejects."""
        return turned_away

    graph = harness(raw, sums, newer_of(raw), looked).definitions.resolve_asset_graph()
    assert "[t/looked]" in graph.get(dg.AssetKey(["t", "sums"])).metadata[READ_BY].value


def test_waiting_partitions_of_a_retired_version_leave_the_list(monkeypatch):
    loop = alone()
    loop.drop(RAW, DAY, rows(1000))
    loop.run_until_idle()
    command(monkeypatch, loop, "feed", "retire", SUMS, "--why", "v2.0 is there")
    loop.ask()
    with open_ledger(settings().ledger).read() as connection:
        assert due.listed(connection, Feed.parse(SUMS)) == ()


def test_retiring_twice_changes_nothing_and_keeps_single_closures(home):
    ledger, now = open_ledger(settings().ledger), alone().now()
    feed, at = Feed.parse(SUMS), Partition(Feed.parse(SUMS), DAY)
    closures.close(ledger, [at], "final", "me", now)
    nobody = closures.Readers(frozenset(), frozenset(), now - timedelta(hours=1))
    assert closures.retire(ledger, (feed,), nobody, "old", "me", now)
    assert not closures.retire(ledger, (feed,), nobody, "again", "me", now)
    assert closures.reopen(ledger, [Partition(feed, NEXT_DAY)], "why", "me", now) == 0
    with ledger.read() as connection:
        found = closures.closed(connection, [at, Partition(feed, NEXT_DAY), Partition(Feed.parse(NEWER_SUMS), DAY)])
    assert {key.key: (each.why, each.is_whole) for key, each in found.items()} == {
        DAY: ("final", False),
        NEXT_DAY: ("old", True),
    }
    assert closures.bring_back(ledger, feed, [], "why", "me", now)
    assert not closures.bring_back(ledger, feed, [], "why", "me", now)
    with ledger.read() as connection:
        assert [*closures.closed(connection, [at, Partition(feed, NEXT_DAY)])] == [at]


def test_newer_versions_maps_each_version_to_the_newest():
    feeds = [Feed.parse(each) for each in ("a/b/v1.2", "a/b/v1.10", "a/b", "a/c/v1.0")]
    assert newer_versions(feeds) == {feeds[0]: feeds[1], feeds[2]: feeds[1]}
