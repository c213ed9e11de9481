"""Datasets on a blackboard of ours that is not the default one: all that happens to them happens there."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import Compact, Retention, with_automation
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.errors import InvalidDefinition, SourceNotGiven
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.undeclared import unread
from feed_assets.replication.comparison import compare, feeds_of
from feed_assets.replication.places import open_place
from feed_assets.replication.replicator import replicate
from feed_assets.runs.bit_rot import look_in_turn
from feed_assets.runs.orphan_sweep import sweep, sweep_unclaimed
from feed_assets.runs.prune import prune_feed
from feed_assets.runs.rebuild import rebuild
from feed_assets.runs.services import Services, elsewhere_of, utc_now
from feed_assets.runs.verify import verify_all
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker, rows_of
from feed_assets_tests.support.main_call import exit_and_errors
from feed_assets_tests.support.servers import partner_settings
from feed_assets_tests.support.sum_projects import (
    DAY,
    PICKED,
    RAW,
    SUMS,
    chain,
    harness,
    outcomes,
    raw_feed,
    rows,
    sums_of,
)

REJECTS = "t/sums_rejects/v1.0"
OUTPUT = Partition(Feed.parse(SUMS), DAY)
OURS = (SUMS, REJECTS)
Archive = Callable[[], Blackboard]


@pytest.fixture(params=["local", "s3"])
def archive(world: Path, setting, request: pytest.FixtureRequest) -> Archive:
    """Return a function that opens our second blackboard: a folder, or a bucket with other keys."""
    (folder := world / "archive").mkdir()
    place = {"url": folder.as_uri()}
    if request.param == "s3":
        place = partner_settings(request.getfixturevalue("s3_env"), request.getfixturevalue("partner_url"))
    setting(blackboards=json.dumps({"archive": {**place, "writable": True}}))
    return lambda: open_board(settings(), name="archive")


@pytest.fixture
def shop(archive: Archive) -> Harness:
    """Return raw -> sums -> picked, of which the sums and their rejects are in the archive, with one built day."""
    started = chain(blackboard="archive", retention=Retention(keep=1))
    started.drop(RAW, DAY, rows(1, 2) + "a,x\n")
    assert outcomes(started.run_until_idle()) == [("sums", DAY, True), ("picked", DAY, True)]
    return started


def services_of(shop: Harness, days: int = 0) -> Services:
    """Return the services of the definitions, some days later. They make rows by copying them."""
    graph = Graph(shop.definitions.resolve_asset_graph())
    services = Services.of(settings(), lambda: PlainMaker(copied), elsewhere=graph.elsewhere)
    return replace(services, now=lambda: utc_now() + timedelta(days=days))


def copied(task) -> Given:
    """Return the rows of the updates that a compaction reads in the archive."""
    (updates_read,) = task.updates.values()
    return Given([row for each in updates_read for row in rows_of(open_board(settings(), name="archive"), each)])


def keys_in(board: Blackboard) -> set[str]:
    return {file.key for file in board.files("")}


def folders_in(board: Blackboard) -> set[str]:
    """Return the feeds that have an object or a claim on a blackboard."""
    names = {key.removeprefix("_feed_assets/claims/") for key in keys_in(board)}
    return {"/".join(name.split("/")[:3]) for name in names}


def state_of(update_id: str) -> str:
    with open_ledger(settings().ledger).read() as connection:
        row = updates.find(connection, OUTPUT, update_id)
    assert row
    return row.state


def test_a_dataset_and_its_rejects_are_published_where_it_is_declared(shop, archive):
    assert folders_in(archive()) == {SUMS, REJECTS}
    assert folders_in(open_board(settings())) == {RAW, PICKED}
    assert shop.rows(SUMS, DAY) == shop.rows(PICKED, DAY) == [{"k": "a", "n": 3}]
    (reported,) = shop.reported("t/sums", DAY)
    assert reported.metadata["path"] == f"{archive().url}/{SUMS}/{DAY}/{shop.newest(SUMS, DAY)}"


def test_a_lost_update_is_noticed_and_built_again_and_another_blackboard_is_not_an_empty_one(shop, world, setting):
    first = shop.newest(SUMS, DAY)
    shop.invalidate(SUMS, DAY, first)
    services, graph = services_of(shop), Graph(shop.definitions.resolve_asset_graph())
    assert [each.update_id for each in verify_all(services, graph.own(), graph.by_feed).gone] == [first]
    shop.revalidate(SUMS, DAY, first)
    assert (shop.newest(SUMS, DAY), state_of(first)) == (first, updates.PUBLISHED)
    (world / "empty").mkdir()
    setting(blackboards=json.dumps({"archive": {"url": (world / "empty").as_uri(), "writable": True}}))
    assert verify_all(services_of(shop), graph.own(), graph.by_feed).is_other_blackboard
    assert state_of(first) == updates.PUBLISHED


def test_old_updates_are_pruned_and_what_attempts_leave_is_swept(shop, archive):
    shop.drop(RAW, DAY, rows(5))
    shop.run_until_idle()
    services, board = services_of(shop, days=9), archive()
    first, second = (each for each in board.children(OUTPUT.path))
    pruned = [each for one in prune_feed(services, OUTPUT.feed, Retention(keep=1), apply=True) for each in one.gone]
    assert [each.id for each in pruned] == [first]
    assert {file.key.split("/")[4] for file in board.files(OUTPUT.path)} == {second}
    killed = write.claim(board, OUTPUT, b"a run that never was", utc_now())
    board.put(f"{OUTPUT.path}/{killed}/part-0", b"x")
    assert [each.update_id for each in sweep_unclaimed(services, [OUTPUT.feed], unknown=True)] == [killed]
    sweep(services, [*map(Feed.parse, OURS)])
    assert not [key for key in keys_in(board) if key.startswith("_feed_assets/claims/")]


def test_a_compaction_is_published_beside_what_it_replaces(shop, archive):
    compacted = compact_partition(services_of(shop), OUTPUT, Compact(sort_by=("k",), files=1))
    assert compacted
    assert read.latest(archive(), OUTPUT).update.id == compacted.after == shop.newest(SUMS, DAY)
    assert folders_in(open_board(settings())) == {RAW, PICKED}


def test_a_lost_ledger_is_rebuilt_and_bit_rot_is_looked_for(shop, archive, world):
    update_id, graph = shop.newest(SUMS, DAY), Graph(shop.definitions.resolve_asset_graph())
    assert look_in_turn(services_of(shop), graph.own(), {}, utc_now() + timedelta(days=2), lambda: False).damaged == {}
    fresh = open_ledger(f"sqlite:///{world / 'fresh.db'}")
    rebuilt = rebuild(replace(services_of(shop), ledger=fresh), graph.own(), lambda _: None)
    assert {(str(each.update.partition.feed), each.update.id) for each in rebuilt.added} >= {(SUMS, update_id)}
    assert {str(each.update.partition.feed) for each in rebuilt.added} == {SUMS, REJECTS, PICKED}
    fresh.engine.dispose()


def test_commands_without_a_project_find_a_dataset_where_it_is(shop, archive, monkeypatch, capsys):
    first = shop.newest(SUMS, DAY)
    assert elsewhere_of(settings()) == dict.fromkeys(map(Feed.parse, OURS), "archive")
    write.publish(open_board(settings()), OUTPUT, {"stray": b"x"}, utc_now())
    assert elsewhere_of(settings()) == {Feed.parse(REJECTS): "archive"}  # The default one has a folder of it, too.
    open_board(settings()).sweep(SUMS)
    code, _ = exit_and_errors(monkeypatch, capsys, "feed", "invalidate", SUMS, DAY, first, "--blackboard", "archive")
    assert (code, shop.newest(SUMS, DAY), state_of(first)) == (0, None, updates.INVALIDATED)
    code, _ = exit_and_errors(monkeypatch, capsys, "feed", "revalidate", SUMS, DAY, first)
    assert (code, shop.newest(SUMS, DAY), state_of(first)) == (0, first, updates.PUBLISHED)


def test_a_feed_that_nobody_declares_is_noticed_there(shop, archive):
    write.publish(archive(), Partition(Feed.parse("t/sum/v1.0"), DAY), {"x": b"1"}, utc_now())
    graph = Graph(shop.definitions.resolve_asset_graph())
    assert unread(graph, services_of(shop), utc_now()) == {
        "t/sum/v1.0": f"t/sum/v1.0: nobody declares this feed: is {SUMS} meant?"
    }


def test_a_data_center_gets_datasets_from_where_they_are(shop, archive, world, setting, monkeypatch, capsys):
    (world / "b").mkdir()
    setting(data_centers=json.dumps({"b": {"url": (world / "b").as_uri(), "datasets": [SUMS, PICKED]}}))
    shop.drop(RAW, DAY, rows(5))
    shop.run_until_idle()  # Without compute targets, no run waits for a place.
    services = services_of(shop)
    place = open_place(settings(), "b", *services.boards())
    assert replicate(services, place).failed == 0
    sources = {SUMS: archive(), REJECTS: archive(), PICKED: open_board(settings())}
    for feed, source in sources.items():
        at = Partition(Feed.parse(feed), DAY)
        assert read.latest(place.board, at).update.id == read.latest(source, at).update.id
    assert [*compare(services, place, feeds_of(services, place))] == []
    assert {str(each) for each in feeds_of(services, place)} == {*sources}
    (world / "another_location.py").write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    monkeypatch.syspath_prepend(str(world))
    code, lines = exit_and_errors(monkeypatch, capsys, "replicate", "verify", "b", "-m", "another_location")
    assert code == 0, lines


def test_a_blackboard_of_others_is_refused_when_definitions_load(setting):
    raw = raw_feed()
    definitions = dg.Definitions(assets=[raw, sums_of(raw, blackboard="archive")])
    with_automation(definitions)  # As in a test, without blackboards in the settings.
    setting(blackboards='{"archive": {"url": "memory://"}}')
    with pytest.raises(InvalidDefinition, match=rf"{SUMS} is published on the blackboard 'archive', which belongs to"):
        with_automation(definitions)


def test_a_harness_takes_the_folder_of_an_own_blackboard(tmp_path):
    raw = raw_feed()
    assets = raw, sums_of(raw, blackboard="archive")
    with pytest.raises(SourceNotGiven, match="archive"):
        harness(*assets)
    (tmp_path / "archive").mkdir()
    world = harness(*assets, sources={"archive": tmp_path / "archive"})
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert world.rows(SUMS, DAY) == [{"k": "a", "n": 1}]
    assert (tmp_path / "archive" / SUMS / DAY).is_dir()
