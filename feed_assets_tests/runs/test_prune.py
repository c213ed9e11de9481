"""Pruning with the ledger: who reads, who writes, what a kill leaves."""

from dataclasses import replace
from datetime import timedelta

import pytest

from feed_assets.core.errors import NotRevalidated, UpdateChanged
from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.positions import Pin
from feed_assets.core.retention import Retention
from feed_assets.feeds.read import latest
from feed_assets.feeds.write import CLAIMS, invalidate
from feed_assets.ledger import claims, log, pruning, runs, updates
from feed_assets.runs.observe import observe
from feed_assets.runs.orphans import sweep
from feed_assets.runs.prune import prune, prune_feed
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.workbench import Workbench, utc_now
from feed_assets_tests.feeds.stores import MEN, NEW, OLD, write
from feed_assets_tests.ledger.records import EFFECT, claim, new_run, row
from feed_assets_tests.ledger.records import publish as published

OLDEST, NEWEST = "20191124.060000", "20191127.060000"
LAST = Retention(keep=1)


class Killed(Exception):
    """The process ends here."""


def no_spark():
    raise AssertionError("no Spark is needed")


@pytest.fixture
def bench(board, ledger):
    """Three updates of a foreign feed, as the ledger saw them come; a day and an hour later."""
    made = Workbench(board, ledger, no_spark, lambda: utc_now() + timedelta(hours=25))
    for update_id in (OLDEST, OLD, NEW):
        write(board, update_id)
        observe(board, ledger, MEN, utc_now())
    return made


def states(bench, *update_ids):
    return [row(bench.ledger, MEN, update_id).state for update_id in update_ids or (OLDEST, OLD, NEW)]


def left(bench):
    return sorted({file.key.split("/")[-2] for file in bench.board.files(MEN.path)})


def pin(update_id):
    return Pin(MEN, update_id, "v")


def test_a_dry_run_says_what_would_go_and_changes_nothing(bench):
    before = bench.board.files("")
    found = prune(bench, MEN, LAST)
    assert found.lines == (
        f"{MEN} {OLD} would go: 1 newer valid, the first of 2019-11-26 06:00 UTC",
        f"{MEN} {OLDEST} would go: 2 newer valid, the first of 2019-11-25 06:00 UTC",
    )
    assert (bench.board.files(""), states(bench)) == (before, ["published"] * 3)


def test_what_goes_is_gone_and_the_ledger_tells_why(bench):
    found = prune(bench, MEN, LAST, apply=True)
    assert [each.id for each in found.gone] == [OLD, OLDEST]
    assert found.lines[0] == f"{MEN} {OLD} pruned: 1 newer valid, the first of 2019-11-26 06:00 UTC"
    assert (left(bench), states(bench)) == ([NEW], ["pruned", "pruned", "published"])
    assert row(bench.ledger, MEN, OLD).reason == "1 newer valid, the first of 2019-11-26 06:00 UTC"
    assert prune(bench, MEN, LAST, apply=True).gone == ()


def test_what_the_ledger_never_heard_of_is_recorded_when_it_goes(bench):
    write(bench.board, "20191123.060000")
    prune(bench, MEN, LAST, apply=True)
    assert states(bench, "20191123.060000") == ["pruned"]


def test_a_prune_is_in_the_log_with_its_reason(bench):
    prune(bench, MEN, LAST, apply=True)
    with bench.ledger.read() as connection:
        found = [each for each in log.after(connection, 0, 10**9, 100, [MEN.feed]) if each.after == updates.PRUNED]
    assert {each.partition for each in found} == {MEN}


def test_every_partition_of_a_feed_is_pruned(bench):
    women = Partition(MEN.feed, "2019-11-24/women")
    for update_id in (OLD, NEW):
        write(bench.board, update_id, partition=women)
    found = [*prune_feed(bench, MEN.feed, LAST, apply=True)]
    assert [(each.partition, len(each.gone)) for each in found] == [(MEN, 2), (women, 1)]


def test_what_a_run_in_progress_has_pinned_stays_until_it_ends(bench):
    runs.start(bench.ledger, new_run("r1"))
    claim(bench.ledger, "r1", (EFFECT, NEW), pins=(pin(OLD),))
    stays = f"{MEN} {OLD} stays: run r1 reads it"
    assert stays in prune(bench, MEN, LAST).lines
    assert stays in prune(bench, MEN, LAST, apply=True).lines
    assert left(bench) == [OLD, NEW]
    published(bench.ledger, "r1", EFFECT, NEW)
    with bench.ledger.write() as connection:
        runs.end(connection, "r1", updates.PUBLISHED, utc_now(), None)
    prune(bench, MEN, LAST, apply=True)
    assert left(bench) == [NEW]


def test_what_is_pinned_between_the_look_and_the_removal_stays(bench):
    """The step 'given up' of a first update is when a run claims a second: each is decided under the ledger's lock."""
    runs.start(bench.ledger, new_run("r1"))
    claim(bench.ledger, "r1", (EFFECT, NEW), pins=(pin(OLD),))
    assert pruning.give_up(bench.ledger, MEN, {OLD: "why", OLDEST: "why"}, utc_now()) == {OLD: "r1"}
    assert states(bench) == ["pruned", "published", "published"]


def test_a_run_that_claims_after_its_pin_was_given_up_is_told(bench):
    runs.start(bench.ledger, new_run("r1"))
    prune(bench, MEN, LAST, apply=True)
    with pytest.raises(UpdateChanged, match=f"{OLD} was pruned since it was pinned: 1 newer valid"):
        claim(bench.ledger, "r1", (EFFECT, NEW), pins=(pin(OLD),))
    with bench.ledger.read() as connection:
        assert claims.claimed_by(connection, "r1") == ()


@pytest.mark.parametrize("manifest", [None, b"5"])
def test_what_a_run_has_claimed_stays_until_it_is_settled(bench, manifest):
    runs.start(bench.ledger, new_run("r1", MEN))
    claim(bench.ledger, "r1", (MEN, "20191125.070000"))
    write(bench.board, "20191125.070000", manifest)
    found = prune(bench, MEN, LAST, apply=True)
    assert left(bench) == ["20191125.070000", NEW]
    assert "writes it, or was killed" in "".join(found.lines)


def test_what_may_be_unfinished_stays_for_a_day(bench):
    write(bench.board, "20191125.070000", None)
    prune(replace(bench, now=lambda: utc_now() + timedelta(hours=23)), MEN, LAST, apply=True)
    assert left(bench) == ["20191125.070000", NEW]
    prune(bench, MEN, LAST, apply=True)
    assert left(bench) == [NEW]


def test_what_was_refused_goes_with_its_time_and_stays_refused_in_the_ledger(bench):
    runs.start(bench.ledger, new_run("r1", MEN))
    claim(bench.ledger, "r1", (MEN, "20191125.070000"))
    with bench.ledger.change() as connection:
        updates.change(connection, MEN, "20191125.070000", updates.REFUSED, utc_now(), reason="not_empty: found 0")
        runs.end(connection, "r1", updates.REFUSED, utc_now(), "not_empty: found 0")
    write(bench.board, "20191125.070000", None)
    prune(bench, MEN, LAST, apply=True)
    found = row(bench.ledger, MEN, "20191125.070000")
    assert (found.state, found.reason) == ("refused", "not_empty: found 0; its files were pruned")


def refused(bench, update_id, parts=2):
    """A claimed update of ours that its audit refused, with parts and its claim; no newer valid one has replaced it."""
    runs.start(bench.ledger, new_run("r1", MEN))
    bench.board.put(f"{CLAIMS}/{MEN.path}/{update_id}", b"r1")
    claim(bench.ledger, "r1", (MEN, update_id))
    with bench.ledger.write() as connection:
        updates.change(connection, MEN, update_id, updates.REFUSED, utc_now(), reason="not_empty: found 0")
        runs.end(connection, "r1", updates.REFUSED, utc_now(), "not_empty: found 0")
    for number in range(parts):
        bench.board.put(f"{MEN.path}/{update_id}/part-{number}", b"rows")


def test_what_a_prune_leaves_of_a_refused_update_is_still_found_by_its_claim(bench):
    refused(bench, NEWEST)
    prune(bench, MEN, LAST, apply=True)
    assert left(bench) == [NEW, NEWEST]
    (swept,) = sweep(bench, [MEN.feed]).done
    assert (swept.what, swept.update_id, left(bench)) == ("swept", NEWEST, [NEW])
    assert bench.board.files(CLAIMS) == ()


def test_claims_stay_for_a_day_after_their_ids_time(bench):
    bench.board.put(f"{CLAIMS}/{MEN.path}/{NEW}", b"its producer")
    moment = parse_update_id(NEW)
    for hours, count in ((23.9, 1), (24, 0)):
        prune(replace(bench, now=lambda at=moment + timedelta(hours=hours): at), MEN, LAST, apply=True)
        assert len(bench.board.files(CLAIMS)) == count


def test_claims_that_lead_to_nothing_more_go_with_a_prune(bench):
    """Of a published update, of a refused one whose parts it has removed, and of an id that was never used."""
    for update_id in (OLD, NEW, "20191126.070000"):
        bench.board.put(f"{CLAIMS}/{MEN.path}/{update_id}", b"its producer")
    refused(bench, "20191125.070000")
    prune(bench, MEN, LAST, apply=True)
    assert (left(bench), bench.board.files(CLAIMS)) == ([NEW], ())


STEPS = ["given up in the ledger", f"promised from {NEW}", f"removed {OLDEST}", f"removed {OLD}"]


@pytest.mark.parametrize("step", STEPS)
def test_a_prune_that_was_killed_is_finished_by_the_next_whatever_its_policy(bench, step):
    def die(done):
        if done == step:
            raise Killed

    with pytest.raises(Killed):
        prune(replace(bench, on_step=die), MEN, LAST, apply=True)
    assert latest(bench.board, MEN).update.id == NEW
    prune(bench, MEN, Retention(keep=100), apply=True)
    assert (left(bench), states(bench)) == ([NEW], ["pruned", "pruned", "published"])


def test_a_prune_whose_newest_update_is_invalidated_on_the_way_stops_there(bench):
    def interfere(done):
        if done == f"removed {OLDEST}":
            invalidate(bench.board, MEN, NEW)

    found = prune(replace(bench, on_step=interfere), MEN, LAST, apply=True)
    assert f"{MEN} {OLD} stays: the newer ones were invalidated meanwhile" in found.lines
    assert (latest(bench.board, MEN).update.id, states(bench)) == (OLD, ["pruned", "published", "invalidated"])


@pytest.mark.parametrize("how", ["manifest", "file"])
@pytest.mark.parametrize("observed", [True, False])
def test_an_invalidated_update_is_published_again_in_the_ledger_too(bench, how, observed):
    known = row(bench.ledger, MEN, NEW).version
    invalidate(bench.board, MEN, NEW, how=how)
    if observed:
        observe(bench.board, bench.ledger, MEN, utc_now())
        assert states(bench) == ["published", "published", "invalidated"]
    assert revalidate(bench, MEN, NEW).id == NEW
    assert (states(bench), row(bench.ledger, MEN, NEW).version) == (["published"] * 3, known)


def test_a_revalidation_killed_before_the_ledger_is_finished_by_the_next(bench):
    def die(_step):
        raise Killed

    invalidate(bench.board, MEN, NEW)
    observe(bench.board, bench.ledger, MEN, utc_now())
    with pytest.raises(Killed):
        revalidate(replace(bench, on_step=die), MEN, NEW)
    revalidate(bench, MEN, NEW)
    assert states(bench) == ["published"] * 3


def test_an_altered_update_stays_invalid(bench):
    invalidate(bench.board, MEN, NEW)
    bench.board.put(f"{MEN.path}/{NEW}/part-1.csv", b"other, of another size")
    with pytest.raises(NotRevalidated, match=r"etag: .*part-1.csv\. Publish the data again"):
        revalidate(bench, MEN, NEW)
    assert latest(bench.board, MEN).update.id == OLD


@pytest.mark.parametrize(
    ("state", "update_id", "message"),
    [
        (None, NEWEST, "is not in the ledger"),
        ("refused", NEW, r"is refused \(because\): expected one that was published"),
        ("abandoned", NEW, r"is abandoned \(because\)"),
        ("claimed", NEW, r"is claimed \(because\)"),
        ("pruned", NEW, r"is pruned \(because\)"),
    ],
)
def test_only_what_was_published_can_be_valid_again(bench, state, update_id, message):
    if state:
        with bench.ledger.change() as connection:
            updates.change(connection, MEN, update_id, state, utc_now(), reason="because")
    with pytest.raises(NotRevalidated, match=message):
        revalidate(bench, MEN, update_id)


def test_what_was_recorded_without_its_files_cannot_be_compared(bench):
    with bench.ledger.change() as connection:
        updates.change(connection, MEN, NEW, updates.PUBLISHED, utc_now(), listing=None)
    with pytest.raises(NotRevalidated, match="without a list of its files"):
        revalidate(bench, MEN, NEW)


def test_a_feed_is_ours_once_a_run_has_written_to_it(bench):
    claim(bench.ledger, "r1", (EFFECT, NEW))
    with bench.ledger.read() as connection:
        ours = [pruning.is_ours(connection, feed) for feed in (EFFECT.feed, MEN.feed, Feed.parse("no/such/v1.0"))]
    assert ours == [True, False, False]
