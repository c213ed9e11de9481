"""One team publishes its events and pipelines, another one waits by them: both sides, in databases and files."""

import json
import shutil

import pytest
import sqlalchemy as sa

from feed_assets import ByEvents, EventSource, event_table, feed_asset, foreign_feed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import alerts, due
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.pipeline_tables import consumer_of, published
from feed_assets.settings import settings
from feed_assets.sources.pipeline_sink import pipelines_beside
from feed_assets.sources.sinks import open_sink
from feed_assets.testing import Given
from feed_assets_tests.orchestration.two_teams import PIPELINES, Team, place_in_database, place_on_blackboard
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    PICKED,
    RAW,
    SCHEMA,
    SUMS,
    harness,
    picked_of,
    raw_feed,
    rows,
    sums_of,
)

REPORT = "gamma/report/v1.0"
WAITS = "has not reached theirs/picked (pipeline t/raw/v1.0)"


def ALL(raw, other, sums, picked, both, whole, sold): ...  # noqa: N802


@pytest.fixture(params=["sqlite", "postgresql", "local", "s3"])
def place(request, tmp_path, home, monkeypatch):
    if request.param in ("sqlite", "postgresql"):
        is_file = request.param == "sqlite"
        url = f"sqlite:///{tmp_path / 'shared.db'}" if is_file else request.getfixturevalue("postgresql").database()
        monkeypatch.setenv("THEIR_URL", url)
        return place_in_database(url, "THEIR_URL")
    if request.param == "local":
        return place_on_blackboard({"url": (home / "blackboard").as_uri()})
    endpoint = request.getfixturevalue("s3_env").endpoint
    return place_on_blackboard({"url": request.getfixturevalue("s3_url"), "endpoint": endpoint})


@pytest.fixture
def beta(home, place):
    """Return the team that publishes."""
    on_s3 = {"blackboard": "url", "s3_endpoint": "endpoint"} if "endpoint" in place.others else {}
    return Team(home, {"events_to": place.setting, **{name: place.others[each] for name, each in on_s3.items()}})


@pytest.fixture
def gamma(tmp_path, empty_ledger, place):
    """Return the team that reads."""
    (tmp_path / "gamma" / "blackboard").mkdir(parents=True)
    shutil.copyfile(empty_ledger, tmp_path / "gamma" / "ledger.db")
    return Team(tmp_path / "gamma", {"blackboards": json.dumps({"theirs": place.others})} if place.others else {})


@pytest.fixture
def consumer(gamma, place):
    """Build gamma/report of beta's sums and picked."""
    with gamma.at_work():
        return report_of(place.source, pipelines=place.lineage)


def report_of(source, **options):
    tables = {
        name: event_table(f"theirs/{name}", source=source, table_name=f"t/{name}/v1.0", partitions_def=DAYS)
        for name in ("sums", "picked")
    }
    by_events = ByEvents(**options)
    report = feed_asset(REPORT, inputs=tables, partitions_def=DAYS, by_events=by_events)(lambda sums, picked: None)
    return harness(*tables.values(), report, give=lambda _: Given([{"k": "a"}]))


def makes(*names, code_version="1"):
    """Build a version of beta's code: raw -> sums, and picked if named."""
    raw = raw_feed()
    sums = sums_of(raw, code_version=code_version)
    return harness(raw, sums, *[picked_of(sums) for name in names if name == "picked"])


def waits(gamma, day):
    """Return the reasons for which the report waits."""
    with gamma.at_work(), open_ledger(settings().ledger).read() as connection:
        found = due.listed(connection, Feed.parse(REPORT))
    return [each.reason for each in found if each.partition == Partition(Feed.parse(REPORT), day)]


def opened(team):
    with team.at_work(), open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def half_way(beta, world, day, data):
    """Build one update up to sums, and publish its events."""
    beta.drop(world, RAW, day, data)
    with beta.at_work():
        assert [run.assets[0] for run in world.tick()] == ["t/sums"]
        world.ask(name="watch")


def test_a_foreign_consumer_waits_until_an_update_has_reached_all_its_inputs(beta, gamma, consumer, place):
    world = makes("picked")
    half_way(beta, world, DAY, rows(1))
    assert gamma.run(consumer) == []
    (said,) = waits(gamma, DAY)
    assert said.endswith(f"of {DAY} {WAITS}")
    assert beta.run(world) == [f"t/picked {DAY}"]
    assert gamma.run(consumer) == [f"gamma/report {DAY}"]
    assert place.versions() == [{RAW: {RAW, SUMS, "t/sums_rejects/v1.0", PICKED}}]
    assert (opened(beta), opened(gamma)) == ({}, {})


def test_a_table_added_to_a_pipeline_is_waited_for_without_losing_updates(beta, gamma, consumer, place):
    beta.run(before := makes())
    beta.drop(before, RAW, DAY, rows(1))
    beta.run(before)
    assert gamma.run(consumer) == [f"gamma/report {DAY}"]
    half_way(beta, before, NEXT_DAY, rows(2))
    after = makes("picked")
    with beta.at_work():
        after.ask(name="watch")
    assert gamma.run(consumer) == []
    (said,) = waits(gamma, NEXT_DAY)
    assert said.endswith(f"of {NEXT_DAY} {WAITS}")
    beta.run(after)
    assert sorted(gamma.run(consumer)) == [f"gamma/report {day}" for day in (DAY, NEXT_DAY)]
    assert [version[RAW] - {"t/sums_rejects/v1.0"} for version in place.versions()] == [
        {RAW, SUMS},
        {RAW, SUMS, PICKED},
    ]


def test_a_table_removed_from_a_pipeline_is_not_waited_for_any_more(beta, gamma, consumer, place):
    before = makes("picked")
    half_way(beta, before, DAY, rows(1))
    assert gamma.run(consumer) == []
    beta.run(makes())
    assert gamma.run(consumer) == [f"gamma/report {DAY}"]
    assert [PICKED in version[RAW] for version in place.versions()] == [True, False]


def test_pipelines_are_published_on_a_change_and_not_at_each_tick(beta, place):
    for world in (makes("picked"), makes("picked"), makes("picked", code_version="2"), makes("picked")):
        for _ in range(3):
            beta.run(world)
    assert len(place.versions()) == 3
    assert len({json.dumps(sorted(map(str, version.items()))) for version in place.versions()}) == 3 - 2


def test_a_kill_between_pipelines_and_events_misleads_no_reader(beta, gamma, consumer, place):
    beta.run(before := makes())
    after = makes("picked")
    with beta.at_work():
        sink = open_sink(place.setting, before.board)
        graph = Graph(after.definitions.resolve_asset_graph())
        assert pipelines_beside(sink).publish(published(graph), after.now())
    half_way(beta, after, DAY, rows(1))
    assert gamma.run(consumer) == []
    beta.run(after)
    assert gamma.run(consumer) == [f"gamma/report {DAY}"]
    assert len(place.versions()) == 2


def test_unpublishable_pipelines_are_an_alert_and_no_event_is_lost(beta, gamma, consumer, place):
    heal = in_the_way(place, beta)
    world = makes("picked")
    beta.drop(world, RAW, DAY, rows(1))
    beta.run(world)
    if not place.others:  # A file of somebody else is replaced by ours at once.
        (alert,) = opened(beta)
        assert alert.startswith("failing:watch:")
        heal()
        beta.run(world)
    assert opened(beta) == {}
    assert gamma.run(consumer) == [f"gamma/report {DAY}"]


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_pipelines_are_published_before_their_events(beta, place):
    with sa.create_engine(place.url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE shared (number integer)")
    world = makes("picked")
    beta.drop(world, RAW, DAY, rows(1))
    beta.run(world)
    assert "shared" in next(iter(opened(beta).values()))
    assert len(place.versions()) == 1


def in_the_way(place, beta):
    """Put a foreign object in the place of the pipelines, and return a function that removes it."""
    if place.others:
        with beta.at_work():
            place.board.put(key := f"{PIPELINES}/newest.jsonl", b"no JSON\n")
        return lambda: place.board.delete([key])
    engine = sa.create_engine(place.url, poolclass=sa.NullPool)

    def execute(statement):
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)

    execute(f"CREATE TABLE {PIPELINES} (number integer)")
    return lambda: execute(f"DROP TABLE {PIPELINES}")


def test_published_pipelines_give_the_same_needs_as_the_asset_graph(beta, gamma, place):
    """Compare both sides for pipelines of two origins, of a whole feed and of an event table."""
    raw, other = raw_feed(), foreign_feed("t/other/v1.0", partitions_def=DAYS, schema=SCHEMA)
    told = event_table("shop/orders", source=EventSource("shop", ()), table_name="ORDERS", partitions_def=DAYS)
    sums = sums_of(raw)
    picked = picked_of(sums)
    both = feed_asset("t/both/v1.0", inputs={"a": sums, "b": other}, partitions_def=DAYS)(lambda a, b: None)
    whole = feed_asset("t/whole/v1.0", inputs={"a": picked})(lambda a: None)
    sold = feed_asset("t/sold/v1.0", inputs={"a": told}, partitions_def=DAYS, by_events=ByEvents())(lambda a: None)
    inputs = {"raw": raw, "other": other, "sums": sums, "picked": picked, "both": both, "whole": whole, "sold": sold}
    theirs = feed_asset("t/all/v1.0", inputs=inputs, by_events=ByEvents())(ALL)
    world = harness(raw, other, told, sums, picked, both, whole, sold, theirs)
    beta.run(world)
    with gamma.at_work():
        tables = {
            name: event_table(f"theirs/{name}", source=place.source, table_name=f"t/{name}/v1.0") for name in inputs
        }
        by_events = ByEvents(pipelines=place.lineage)
        ours = feed_asset("gamma/all/v1.0", inputs=tables, by_events=by_events)(ALL)
        read = needed(harness(*tables.values(), ours), "gamma/all/v1.0")
    derived = needed(world, "t/all/v1.0")
    assert read == derived
    assert len(derived) == 5
    assert told.key.to_user_string() not in set().union(*place.versions()[-1].values())


def needed(world, feed):
    """Return the tables that a consumer needs for each pipeline, by the last part of their names."""
    graph = Graph(world.definitions.resolve_asset_graph())
    consumer = consumer_of(graph, graph.node(Feed.parse(feed)))
    return {name: {each.name.rpartition("/")[2] for each in tables} for name, tables in consumer.needed.items()}


def test_two_code_locations_publish_pipelines_and_remove_only_their_own(beta, place):
    raw = raw_feed()
    ours, theirs = makes("picked"), harness(raw, sums_of(raw, name="u/made/v1.0"))
    for world in (ours, theirs, ours, theirs):
        beta.run(world)
    assert len(place.versions()) == 2
    assert {SUMS, PICKED, "u/made/v1.0"} < place.versions()[-1][RAW]
    beta.run(makes())
    beta.run(theirs)
    assert place.versions()[-1][RAW] - {"t/sums_rejects/v1.0", "u/made_rejects/v1.0"} == {RAW, SUMS, "u/made/v1.0"}
    assert len(place.versions()) == 3


def test_readers_of_the_sink_find_only_events(beta, gamma, place):
    """This also holds for an older reader that knows no pipelines: by their names it reads none of their files."""
    world = makes("picked")
    beta.drop(world, RAW, DAY, rows(1))
    beta.run(world)
    with gamma.at_work():
        boards = {"theirs": place.board} if place.others else {}
        (part,) = place.source.parts
        batch = part.reader(lambda name: boards[name]).read(None, 100)
    assert {each.table_name for each in batch.events} >= {RAW, SUMS, PICKED}
    assert batch.rejected == ()
    assert place.versions()
