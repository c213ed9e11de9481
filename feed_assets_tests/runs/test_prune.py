"""Pruning with the ledger: readers, writers, and leftovers of kills."""

from dataclasses import replace
from datetime import timedelta

import pytest

from feed_assets.core.errors import NotRevalidated, UpdateChanged
from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.pins import Pin
from feed_assets.core.retention import Retention
from feed_assets.feeds.read import latest
from feed_assets.feeds.write import CLAIMS, invalidate
from feed_assets.ledger import claims, log, pruned_updates, runs, update_changes, updates
from feed_assets.runs.orphan_sweep import sweep
from feed_assets.runs.prune import prune, prune_feed
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.services import Services, utc_now
from feed_assets.runs.sync import sync
from feed_assets_tests.support.counted_blackboards import MEN, NEW, OLD, write
from feed_assets_tests.support.ledger_records import EFFECT, claim, new_run, row
from feed_assets_tests.support.ledger_records import publish as published

OLDEST, NEWEST = "20191124.060000", "20191127.060000"
LAST = Retention(keep=1)


class Killed(Exception):
    """Stands for the end of the process."""


def no_spark():
    raise AssertionError("no Spark is needed")


@pytest.fixture
def services(board, ledger):
    """Provide three updates of a foreign feed that the ledger recorded; the clock is a day and an hour later."""
    made = Services(board, ledger, no_spark, lambda: utc_now() + timedelta(hours=25))
    for update_id in (OLDEST, OLD, NEW):
        write(board, update_id)
        sync(board, ledger, MEN, utc_now())
    return made


def states(services, *update_ids):
    return [row(services.ledger, MEN, update_id).state for update_id in update_ids or (OLDEST, OLD, NEW)]


def left(services):
    return sorted({file.key.split("/")[-2] for file in services.board.files(MEN.path)})


def pin(update_id):
    return Pin(MEN, update_id, "v")


def test_a_dry_prune_lists_updates_and_changes_nothing(services):
    before = services.board.files("")
    found = prune(services, MEN, LAST)
    assert found.lines == (
        f"{MEN} {OLD} would be pruned: newer valid updates: 1, the first of 2019-11-26 06:00 UTC",
        f"{MEN} {OLDEST} would be pruned: newer valid updates: 2, the first of 2019-11-25 06:00 UTC",
    )
    assert (services.board.files(""), states(services)) == (before, ["published"] * 3)


def test_pruned_updates_are_removed_and_recorded_with_the_reason(services):
    found = prune(services, MEN, LAST, apply=True)
    assert [each.id for each in found.gone] == [OLD, OLDEST]
    assert found.lines[0] == f"{MEN} {OLD} pruned: newer valid updates: 1, the first of 2019-11-26 06:00 UTC"
    assert (left(services), states(services)) == ([NEW], ["pruned", "pruned", "published"])
    assert row(services.ledger, MEN, OLD).reason == "newer valid updates: 1, the first of 2019-11-26 06:00 UTC"
    assert prune(services, MEN, LAST, apply=True).gone == ()


def test_pruning_an_unrecorded_update_records_it(services):
    write(services.board, "20191123.060000")
    prune(services, MEN, LAST, apply=True)
    assert states(services, "20191123.060000") == ["pruned"]


def test_a_prune_is_in_the_log_with_its_reason(services):
    prune(services, MEN, LAST, apply=True)
    with services.ledger.read() as connection:
        found = [each for each in log.after(connection, 0, 10**9, 100, [MEN.feed]) if each.after == updates.PRUNED]
    assert {each.partition for each in found} == {MEN}


def test_every_partition_of_a_feed_is_pruned(services):
    women = Partition(MEN.feed, "2019-11-24/women")
    for update_id in (OLD, NEW):
        write(services.board, update_id, partition=women)
    found = [*prune_feed(services, MEN.feed, LAST, apply=True)]
    assert [(each.partition, len(each.gone)) for each in found] == [(MEN, 2), (women, 1)]


def test_prune_keeps_updates_pinned_by_a_running_run(services):
    runs.start(services.ledger, new_run("r1"))
    claim(services.ledger, "r1", (EFFECT, NEW), pins=(pin(OLD),))
    stays = f"{MEN} {OLD} stays: run r1 reads it"
    assert stays in prune(services, MEN, LAST).lines
    assert stays in prune(services, MEN, LAST, apply=True).lines
    assert left(services) == [OLD, NEW]
    published(services.ledger, "r1", EFFECT, NEW)
    with services.ledger.change() as connection:
        runs.end(connection, "r1", updates.PUBLISHED, utc_now(), None)
    prune(services, MEN, LAST, apply=True)
    assert left(services) == [NEW]


def test_prune_keeps_an_update_pinned_just_before_its_removal(services):
    """Let a run claim the second update at the step 'given up' of the first: the ledger's lock decides about each."""
    runs.start(services.ledger, new_run("r1"))
    claim(services.ledger, "r1", (EFFECT, NEW), pins=(pin(OLD),))
    assert pruned_updates.give_up(services.ledger, MEN, {OLD: "why", OLDEST: "why"}, utc_now()) == {OLD: "r1"}
    assert states(services) == ["pruned", "published", "published"]


def test_a_claim_with_a_pruned_pin_is_refused(services):
    runs.start(services.ledger, new_run("r1"))
    prune(services, MEN, LAST, apply=True)
    with pytest.raises(UpdateChanged, match=f"{OLD} was pruned since it was pinned: newer valid updates: 1"):
        claim(services.ledger, "r1", (EFFECT, NEW), pins=(pin(OLD),))
    with services.ledger.read() as connection:
        assert claims.claimed_by(connection, "r1") == ()


@pytest.mark.parametrize("manifest", [None, b"5"])
def test_prune_keeps_claimed_updates_until_their_run_is_settled(services, manifest):
    runs.start(services.ledger, new_run("r1", MEN))
    claim(services.ledger, "r1", (MEN, "20191125.070000"))
    write(services.board, "20191125.070000", manifest)
    found = prune(services, MEN, LAST, apply=True)
    assert left(services) == ["20191125.070000", NEW]
    assert "writes it, or was killed" in "".join(found.lines)


def test_prune_keeps_possibly_unfinished_updates_for_a_day(services):
    write(services.board, "20191125.070000", None)
    prune(replace(services, now=lambda: utc_now() + timedelta(hours=23)), MEN, LAST, apply=True)
    assert left(services) == ["20191125.070000", NEW]
    prune(services, MEN, LAST, apply=True)
    assert left(services) == [NEW]


def test_pruned_refused_updates_stay_refused_in_the_ledger(services):
    runs.start(services.ledger, new_run("r1", MEN))
    claim(services.ledger, "r1", (MEN, "20191125.070000"))
    with services.ledger.change() as connection:
        update_changes.change(
            connection, MEN, "20191125.070000", updates.REFUSED, utc_now(), reason="not_empty: found 0"
        )
        runs.end(connection, "r1", updates.REFUSED, utc_now(), "not_empty: found 0")
    write(services.board, "20191125.070000", None)
    prune(services, MEN, LAST, apply=True)
    found = row(services.ledger, MEN, "20191125.070000")
    assert (found.state, found.reason) == ("refused", "not_empty: found 0; its files were pruned")


def refused(services, update_id, parts=2):
    """Leave an update of ours that its audit refused, with parts and claim, before any newer valid update."""
    runs.start(services.ledger, new_run("r1", MEN))
    services.board.put(f"{CLAIMS}/{MEN.path}/{update_id}", b"r1")
    claim(services.ledger, "r1", (MEN, update_id))
    with services.ledger.change() as connection:
        update_changes.change(connection, MEN, update_id, updates.REFUSED, utc_now(), reason="not_empty: found 0")
        runs.end(connection, "r1", updates.REFUSED, utc_now(), "not_empty: found 0")
    for number in range(parts):
        services.board.put(f"{MEN.path}/{update_id}/part-{number}", b"rows")


def test_a_sweep_finds_refused_updates_that_a_prune_left(services):
    refused(services, NEWEST)
    prune(services, MEN, LAST, apply=True)
    assert left(services) == [NEW, NEWEST]
    (swept,) = sweep(services, [MEN.feed]).done
    assert (swept.action, swept.update_id, left(services)) == ("swept", NEWEST, [NEW])
    assert services.board.files(CLAIMS) == ()


def test_claims_stay_for_a_day_after_their_ids_time(services):
    services.board.put(f"{CLAIMS}/{MEN.path}/{NEW}", b"its producer")
    moment = parse_update_id(NEW)
    for hours, count in ((23.9, 1), (24, 0)):
        prune(replace(services, now=lambda at=moment + timedelta(hours=hours): at), MEN, LAST, apply=True)
        assert len(services.board.files(CLAIMS)) == count


def test_claims_that_lead_to_nothing_more_go_with_a_prune(services):
    """Test claims of a published update, of a refused one whose parts are removed, and of an id without an update."""
    for update_id in (OLD, NEW, "20191126.070000"):
        services.board.put(f"{CLAIMS}/{MEN.path}/{update_id}", b"its producer")
    refused(services, "20191125.070000")
    prune(services, MEN, LAST, apply=True)
    assert (left(services), services.board.files(CLAIMS)) == ([NEW], ())


STEPS = ["given up in the ledger", f"promised from {NEW}", f"removed {OLDEST}", f"removed {OLD}"]


@pytest.mark.parametrize("step", STEPS)
def test_a_prune_that_was_killed_is_finished_by_the_next_whatever_its_policy(services, step):
    def die(done):
        if done == step:
            raise Killed

    with pytest.raises(Killed):
        prune(replace(services, on_step=die), MEN, LAST, apply=True)
    assert latest(services.board, MEN).update.id == NEW
    prune(services, MEN, Retention(keep=100), apply=True)
    assert (left(services), states(services)) == ([NEW], ["pruned", "pruned", "published"])


def test_a_prune_whose_newest_update_is_invalidated_on_the_way_stops_there(services):
    def interfere(done):
        if done == f"removed {OLDEST}":
            invalidate(services.board, MEN, NEW)

    found = prune(replace(services, on_step=interfere), MEN, LAST, apply=True)
    assert f"{MEN} {OLD} stays: the newer updates were invalidated meanwhile" in found.lines
    assert (latest(services.board, MEN).update.id, states(services)) == (OLD, ["pruned", "published", "invalidated"])


@pytest.mark.parametrize("how", ["manifest", "file"])
@pytest.mark.parametrize("observed", [True, False])
def test_revalidation_publishes_the_update_in_the_ledger(services, how, observed):
    known = row(services.ledger, MEN, NEW).version
    invalidate(services.board, MEN, NEW, how=how)
    if observed:
        sync(services.board, services.ledger, MEN, utc_now())
        assert states(services) == ["published", "published", "invalidated"]
    assert revalidate(services, MEN, NEW).id == NEW
    assert (states(services), row(services.ledger, MEN, NEW).version) == (["published"] * 3, known)


def test_a_revalidation_killed_before_the_ledger_is_finished_by_the_next(services):
    def die(_step):
        raise Killed

    invalidate(services.board, MEN, NEW)
    sync(services.board, services.ledger, MEN, utc_now())
    with pytest.raises(Killed):
        revalidate(replace(services, on_step=die), MEN, NEW)
    revalidate(services, MEN, NEW)
    assert states(services) == ["published"] * 3


def test_an_altered_update_stays_invalid(services):
    invalidate(services.board, MEN, NEW)
    services.board.put(f"{MEN.path}/{NEW}/part-1.csv", b"other, of another size")
    with pytest.raises(NotRevalidated, match=r"etag: .*part-1.csv\. Publish the data again"):
        revalidate(services, MEN, NEW)
    assert latest(services.board, MEN).update.id == OLD


@pytest.mark.parametrize(
    ("state", "update_id", "message"),
    [
        (None, NEWEST, "is not in the ledger"),
        ("refused", NEW, r"is refused \(because\): expected an update that was published"),
        ("abandoned", NEW, r"is abandoned \(because\)"),
        ("claimed", NEW, r"is claimed \(because\)"),
        ("pruned", NEW, r"is pruned \(because\)"),
    ],
)
def test_only_published_updates_can_be_revalidated(services, state, update_id, message):
    if state:
        with services.ledger.change() as connection:
            update_changes.change(connection, MEN, update_id, state, utc_now(), reason="because")
    with pytest.raises(NotRevalidated, match=message):
        revalidate(services, MEN, update_id)


def test_an_update_recorded_without_files_is_not_revalidated(services):
    with services.ledger.change() as connection:
        update_changes.change(connection, MEN, NEW, updates.PUBLISHED, utc_now(), listing=None)
    with pytest.raises(NotRevalidated, match="without a list of its files"):
        revalidate(services, MEN, NEW)


def test_a_feed_is_ours_once_a_run_has_written_to_it(services):
    claim(services.ledger, "r1", (EFFECT, NEW))
    with services.ledger.read() as connection:
        ours = [
            pruned_updates.is_ours(connection, feed) for feed in (EFFECT.feed, MEN.feed, Feed.parse("no/such/v1.0"))
        ]
    assert ours == [True, False, False]
