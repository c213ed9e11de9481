"""Two installations, each with a ledger of its own: A copies its datasets into a place, and B reads them there.

B has its own blackboard. The place is one of others for B, so nothing of B is ever written there.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset, foreign_feed
from feed_assets.cli.loaded_location import open_instance
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.compact import Compact
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.core.retention import Retention
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import alerts, event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.publishing import publish_events
from feed_assets.replication.comparison import compare, feeds_of
from feed_assets.replication.places import open_place
from feed_assets.replication.replicator import replicate
from feed_assets.runs.orphan_sweep import sweep, sweep_unclaimed
from feed_assets.runs.prune import prune_feed
from feed_assets.runs.services import Services
from feed_assets.runs.verify import verify_all
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker, rows_of
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.openlineage_receiver import endpoint, errors_of
from feed_assets_tests.support.sum_projects import DAY, DAYS, RAW, SCHEMA, SUMS, harness, raw_feed, rows, sums_of

SUMMED = Partition(Feed.parse(SUMS), DAY)
TOTALS, SEEN, WRITTEN = "b/totals/v1.0", "b/seen/v1.0", "b/of_source/v1.0"


class Killed(BaseException):
    """The end of a process in the middle of a copy."""


@dataclass
class Two:
    """Both installations, and the folder of the place that A copies into."""

    a: Harness
    b: Harness
    folders: dict[str, Path]
    monkeypatch: pytest.MonkeyPatch
    by_events: list[tuple[str, str]]
    """Dataset and update of each run of B that an event has caused."""

    @contextmanager
    def at(self, name: str) -> Iterator[Harness]:
        """Use the home and the settings of one installation."""
        _enter(self.monkeypatch, self.folders, name)
        yield self.a if name == "a" else self.b

    @property
    def place(self) -> Blackboard:
        return Blackboard.open(self.folders["place"].as_uri())

    def replicate(self, die_at: str = "") -> None:
        """Copy as A does, until nothing is due, or be killed after the step `die_at`."""

        def on_step(step: str) -> None:
            if step == die_at:
                raise Killed

        with self.at("a") as a:
            services = replace(_services(a), on_step=on_step)
            replicate(services, open_place(settings(), "b", *services.boards()))

    def totals(self) -> list[dict]:
        """Let B tick, and return the rows that B has made of the copy, with the update that they were made of."""
        with self.at("b") as b:
            b.run_until_idle()
            return b.rows(TOTALS, DAY)

    def publish(self, *numbers: int) -> str:
        """Let A publish sums of these numbers."""
        with self.at("a") as a:
            a.drop(RAW, DAY, rows(*numbers))
            a.run_until_idle()
            return a.newest(SUMS, DAY)


def _services(world: Harness) -> Services:
    graph = Graph(world.definitions.resolve_asset_graph())
    return Services.of(settings(), lambda: PlainMaker(_compacted), elsewhere=graph.elsewhere)


def _compacted(task) -> Given:
    (sources,) = task.updates.values()
    board = Blackboard.open(settings().blackboard)
    return Given([row for each in sources for row in rows_of(board, each)])


def _enter(monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path], name: str) -> None:
    for variable in [each for each in os.environ if each.startswith("FEED_ASSETS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("DAGSTER_HOME", str(folders[name]))
    sink = f"sqlite:///{folders['sink']}"
    if name == "a":
        center = {"url": folders["place"].as_uri(), "datasets": [SUMS]}
        monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps({"b": center}))
        monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", f"{sink}#events")
    else:
        place = {"copies": {"url": folders["place"].as_uri()}}
        monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", json.dumps(place))
        monkeypatch.setenv("FEED_ASSETS_A_EVENTS", sink)
    settings.cache_clear()


def _totals(place: Blackboard, runs: list[tuple[str, str]]) -> Harness:
    """Return B: totals of the copied sums, and the table of A's events."""
    copied = foreign_feed(SUMS, partitions_def=DAYS, schema=SCHEMA, format="json", blackboard="copies")
    source = EventSource("a", (SqlTable("env:FEED_ASSETS_A_EVENTS", "events", order_by="id"),))

    written = event_table("a/sums", source=source, table_name=SUMS, partitions_def=DAYS)

    @feed_asset(TOTALS, partitions_def=DAYS, inputs={"sums": copied})
    def totals(sums):
        """Return the sums."""
        return sums

    at_place = event_table("a/sums_at_b", source=source, table_name="t/sums@b/v1.0", partitions_def=DAYS)

    @feed_asset(SEEN, partitions_def=DAYS, inputs={"sums": at_place}, by_events=ByEvents())
    def seen(sums):
        """Return the updates of which an event says that they are published at b."""

    @feed_asset(WRITTEN, partitions_def=DAYS, inputs={"sums": written}, by_events=ByEvents())
    def of_source(sums):
        """Return the updates of which an event says that they are published at the source."""

    def give(task) -> Given:
        if "sums" in task.slices:
            newest = read.latest(place, SUMMED).update
            row = {"upto": update_id(task.slices["sums"][0].upto), "newest": newest.id if newest else ""}
            runs.append((task.output.feed.name, row["upto"]))
            return Given([row])
        (update,) = task.updates["sums"]
        return Given([{"of": update.id, "n": row["n"]} for row in rows_of(place, update)])

    return harness(copied, totals, written, at_place, seen, of_source, give=give)


@pytest.fixture
def two(tmp_path: Path, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    """Yield A and B, with nothing published yet."""
    folders = {name: tmp_path / name for name in ("a", "b", "place")}
    for folder in folders.values():
        folder.mkdir()
    for name in ("a", "b"):
        (folders[name] / "blackboard").mkdir()
        shutil.copyfile(empty_ledger, folders[name] / "ledger.db")
    folders["sink"] = tmp_path / "events.db"
    _enter(monkeypatch, folders, "a")
    monkeypatch.delenv("FEED_ASSETS_DATA_CENTERS")  # The test replicates, and not A's ticks: copies may be late.
    raw = raw_feed()
    a = harness(raw, sums_of(raw))
    _enter(monkeypatch, folders, "b")
    runs = list[tuple[str, str]]()
    b = _totals(Blackboard.open(folders["place"].as_uri()), runs)
    installations = Two(a, b, folders, monkeypatch, runs)
    yield installations
    with installations.at("a"):
        sum_projects.opened.close()
    settings.cache_clear()


def test_b_builds_of_each_copy_when_it_is_whole_and_not_before(two):
    first = two.publish(1)
    with two.at("b") as b:
        runs = b.run_until_idle()
        assert [each.assets for each in runs] == [("b/of_source",)]  # A's event is here already: the copy is not.
        with open_ledger(settings().ledger).read() as connection:
            assert f"a/sums {DAY}" in {str(each.partition) for each in event_store.newest(connection, 10, None)}
    two.replicate()
    assert two.totals() == [{"of": first, "n": 1}]
    second = two.publish(1, 2)
    with pytest.raises(Killed):
        two.replicate(die_at="task done")  # The files and the manifest are there; A's ledger does not have all of it.
    assert two.totals()[0]["of"] in (first, second)
    two.replicate()
    assert two.totals() == [{"of": second, "n": 3}]


def test_an_event_of_a_copy_starts_b_when_the_copy_is_there_and_is_no_update_of_the_source(two):
    for numbers in ((1,), (1, 2)):
        update = two.publish(*numbers)
        two.by_events.clear()
        with two.at("b") as b:
            b.run_until_idle()
        assert two.by_events == [("b/of_source", update)]

        two.by_events.clear()
        two.replicate()
        with two.at("a") as a:
            assert a.run_until_idle() == [], "an event of a copy makes no work at the source"
        with two.at("b") as b:
            b.run_until_idle()
            assert two.by_events == [("b/seen", update)]
            assert b.rows(SEEN, DAY) == [{"upto": update, "newest": update}]


def test_lineage_says_what_a_copy_is_a_replica_of(two):
    update = two.publish(1, 2)
    with endpoint() as received:
        for is_copied in (False, True):
            if is_copied:
                two.replicate()
            with two.at("a") as a:
                two.monkeypatch.setenv("FEED_ASSETS_EVENTS_TO", received.url)
                settings.cache_clear()
                graph = Graph(a.definitions.resolve_asset_graph())
                with open_instance() as instance:
                    assert publish_events(_services(a), graph, instance, lambda: False, now=a.now()) == {}
    (event,) = [each for each in received.events if each["job"]["name"] == "replicate/t/sums@b/v1.0"]
    (source,), (copy,) = event["inputs"], event["outputs"]
    tags = {each["key"]: each["value"] for each in copy["facets"].pop("tags")["tags"]}
    assert errors_of(event) == []
    assert event["eventType"] == "COMPLETE"
    names = [f"{two.folders['a']}/blackboard/{SUMS}", f"{two.folders['place']}/{SUMS}"]
    assert [source["name"], copy["name"]] == names
    assert tags == {"data_center": "b", "replica_of": f"file/{names[0]}"}
    for each in (source, copy):
        assert each["facets"]["version"]["datasetVersion"] == f"{DAY}/{update}"
    assert source["inputFacets"]["inputStatistics"]["fileCount"] == 1
    assert copy["outputFacets"]["outputStatistics"]["fileCount"] == 1


def test_b_sweeps_and_prunes_nothing_in_the_place_and_a_finds_nothing_of_b(two):
    two.publish(1)
    two.replicate()
    two.totals()
    half = two.folders["place"] / SUMS / DAY / "20991231.000000"  # as a copy in progress leaves it
    half.mkdir()
    (half / "part-0").write_text("x")
    before = {file.key for file in two.place.files("")}
    with two.at("b") as b:
        services, graph = _services(b), Graph(b.definitions.resolve_asset_graph())
        sweep(services, graph.claiming())
        sweep_unclaimed(services, graph.claiming(), unknown=True)
        assert [*prune_feed(services, Feed.parse(TOTALS), Retention(keep=1), apply=True)]
    assert {file.key for file in two.place.files("")} == before
    with two.at("a") as a:
        services = _services(a)
        place = open_place(settings(), "b", *services.boards())
        assert [*compare(services, place, feeds_of(services, place))] == []


def test_an_invalidated_update_leaves_b_and_a_compacted_one_is_another_update_there(two):
    first = two.publish(1)
    second = two.publish(1, 2)
    two.replicate()
    assert two.totals()[0]["of"] == second
    with two.at("a") as a:
        compacted = compact_partition(_services(a), SUMMED, Compact(sort_by=("k",), files=1))
        assert compacted
    two.replicate()
    assert two.totals() == [{"of": compacted.after, "n": 3}]
    with two.at("a") as a:
        for each in (compacted.after, second):
            a.invalidate(SUMS, DAY, each)
        graph = Graph(a.definitions.resolve_asset_graph())
        verify_all(_services(a), graph.own(), graph.by_feed)
    two.replicate()
    assert read.latest(two.place, SUMMED).update.id == first
    assert two.totals() == [{"of": first, "n": 1}]


def test_b_goes_on_while_the_place_is_out_of_reach_and_follows_after(two):
    first = two.publish(1)
    two.replicate()
    assert two.totals()[0]["of"] == first
    second = two.publish(2)
    folder = two.folders["place"]
    folder.rename(folder.with_name("gone"))
    assert two.totals()[0]["of"] == first
    with two.at("b"), open_ledger(settings().ledger).read() as connection:
        assert f"failing:feeds:{SUMS}" in {each.name for each in alerts.open_alerts(connection)}
    folder.with_name("gone").rename(folder)
    two.replicate()
    assert two.totals()[0]["of"] == second
