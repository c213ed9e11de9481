"""Sweeps of leftovers, on every store, by an injected clock, interrupted anywhere; without Spark."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from obstore import exceptions

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import claims, runs, update_changes, updates
from feed_assets.runs.orphan_sweep import sweep, sweep_unclaimed
from feed_assets.runs.services import Services
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, RAW, REJECTS, Lake
from feed_assets_tests.support.counted_blackboards import Counting

OUTPUT = Partition(CLEAN, DAY)
OURS = [REJECTS, CLEAN]
DAY_LATER = NOW + timedelta(hours=24)


class Interrupted(BaseException):
    """Stands for a kill within this process."""


def no_spark():
    raise AssertionError("sweeping needs no Spark")


@pytest.fixture
def lake(board, ledger) -> Lake:
    """Return a lake on each kind of store, without Spark."""
    return Lake(Services(board, ledger, no_spark, lambda: NOW))


@pytest.fixture
def quiet(ledger) -> Lake:
    return Lake(Services(Blackboard.open("memory://"), ledger, no_spark, lambda: NOW))


def at(lake: Lake, now: datetime) -> Services:
    return replace(lake.services, now=lambda: now)


def attempt(lake: Lake, state: str, *, parts: int = 2, manifest: bytes | None = None, output=OUTPUT) -> str:
    """Make a claimed id with parts and a state in the ledger, all at `NOW`; return the id."""
    board, ledger = lake.services.board, lake.services.ledger
    run = runs.Run(f"run of {state} {output.path}", output, runs.RUNNING, "host:1:0.00", NOW)
    runs.start(ledger, run)
    update_id = write.claim(board, output, run.id.encode(), NOW)
    with ledger.change() as connection:
        claims.claim(connection, run.id, [(output, update_id)], (), "1", NOW)
    put(lake, output, update_id, parts, manifest)
    if state != runs.RUNNING:
        with ledger.change() as connection:
            update_changes.change(connection, output, update_id, state, NOW, reason=f"why {state}")
            runs.end(connection, run.id, state, NOW, f"why {state}")
    return update_id


def put(lake: Lake, output: Partition, update_id: str, parts: int, manifest: bytes | None = None) -> None:
    for number in range(parts):
        lake.services.board.put(f"{output.path}/{update_id}/part-{number}", b"rows")
    if manifest is not None:
        lake.services.board.put(f"{output.path}/{update_id}/_SUCCESS", manifest)


def claim_files(lake: Lake) -> list[str]:
    return [file.key for file in lake.services.board.files(write.CLAIMS)]


def said(done) -> list[tuple[str, str]]:
    return [(each.action, each.update_id) for each in done]


@pytest.mark.parametrize("state", [updates.REFUSED, updates.ABANDONED])
def test_parts_of_a_dead_or_refused_attempt_go_after_a_day_with_their_claim(lake, state):
    update_id = attempt(lake, state)
    before = sweep(at(lake, DAY_LATER - timedelta(seconds=1)), OURS)
    assert (before.done, before.claims, len(lake.objects()), len(claim_files(lake))) == ((), 0, 2, 1)
    after = sweep(at(lake, DAY_LATER), OURS)
    assert (said(after.done), after.claims) == ([("swept", update_id)], 1)
    assert after.done[0].why == f"2 objects without a valid manifest: why {state}"
    assert (lake.objects(), claim_files(lake), lake.states()) == ([], [], [state])


@pytest.mark.parametrize("state", [updates.PUBLISHED, updates.INVALIDATED, "pruned"])
def test_a_sweep_removes_only_the_claim_of_a_settled_update(lake, state):
    attempt(lake, state, manifest=b"2")
    swept = sweep(at(lake, DAY_LATER), OURS)
    assert (swept.done, swept.claims, len(lake.objects()), claim_files(lake)) == ((), 1, 3, [])


def test_a_sweep_keeps_everything_of_a_running_build(lake):
    attempt(lake, runs.RUNNING)
    swept = sweep(at(lake, NOW + timedelta(days=30)), OURS)
    unclaimed = sweep_unclaimed(at(lake, NOW + timedelta(days=30)), OURS, unknown=True)
    assert (swept.claims, swept.done, unclaimed, len(lake.objects()), len(claim_files(lake))) == (0, (), (), 2, 1)


def test_an_unrecorded_claim_is_recognized_by_its_run_id(lake):
    run = runs.Run("a run", OUTPUT, runs.RUNNING, "host:1:0.00", NOW)
    runs.start(lake.services.ledger, run)
    write.claim(lake.services.board, OUTPUT, run.id.encode(), NOW)
    assert sweep(at(lake, DAY_LATER), OURS).claims == 0
    with lake.services.ledger.change() as connection:
        runs.end(connection, run.id, runs.FAILED, NOW + timedelta(hours=1), "killed")
    assert sweep(at(lake, DAY_LATER), OURS).claims == 0
    assert sweep(at(lake, DAY_LATER + timedelta(hours=1)), OURS).claims == 1


def test_an_abandoned_id_is_forgotten_without_a_word(lake):
    write.claim(lake.services.board, OUTPUT, b"nobody", NOW)
    swept = sweep(at(lake, DAY_LATER), OURS)
    assert (swept.done, swept.claims, claim_files(lake)) == ((), 1, [])


def test_a_valid_update_of_an_abandoned_run_is_finished(lake):
    update_id = attempt(lake, updates.ABANDONED, manifest=b"2")
    swept = sweep(at(lake, DAY_LATER), OURS)
    assert (said(swept.done), claim_files(lake)) == ([("finished", update_id)], [])
    assert (lake.newest().id, lake.valid().id, len(lake.objects())) == (update_id, update_id, 3)


def test_parts_written_after_a_sweep_are_swept_later(lake):
    """Write parts late, as executors that outlive their driver do."""
    update_id = attempt(lake, updates.ABANDONED, parts=0)
    put(lake, OUTPUT, update_id, 1)
    assert said(sweep(at(lake, DAY_LATER), OURS).done) == [("swept", update_id)]
    assert lake.objects() == []


def test_foreign_feeds_keep_their_objects_and_claims(lake):
    foreign = Partition(RAW, DAY)
    update_id = write.claim(lake.services.board, foreign, b"its producer", NOW)
    put(lake, foreign, update_id, 2)
    services = at(lake, NOW + timedelta(days=30))
    assert (sweep(services, OURS).claims, sweep_unclaimed(services, OURS, unknown=True)) == (0, ())
    assert (len(lake.objects()), len(claim_files(lake))) == (2, 1)


def test_parts_that_the_ledger_does_not_know_are_left_to_a_person_and_swept_if_told(lake):
    update_id = write.claim(lake.services.board, OUTPUT, b"a run of a lost ledger", NOW)
    put(lake, OUTPUT, update_id, 2)
    services = at(lake, DAY_LATER)
    assert (sweep(services, OURS).done, len(claim_files(lake))) == ((), 1)
    assert said(sweep_unclaimed(services, OURS)) == [("left", update_id)]
    assert len(lake.objects()) == 2
    assert said(sweep_unclaimed(services, OURS, unknown=True)) == [("swept", update_id)]
    assert (lake.objects(), sweep(services, OURS).claims) == ([], 1)


def test_parts_without_a_claim_are_found_by_the_walk_and_young_ones_left(lake):
    update_id = attempt(lake, updates.REFUSED)
    lake.services.board.delete(claim_files(lake))
    assert sweep(at(lake, DAY_LATER), OURS).done == ()
    assert sweep_unclaimed(at(lake, DAY_LATER - timedelta(seconds=1)), OURS, unknown=True) == ()
    assert said(sweep_unclaimed(at(lake, DAY_LATER), OURS)) == [("swept", update_id)]
    assert lake.objects() == []


def test_the_walk_leaves_what_is_published_invalidated_or_has_a_manifest(lake):
    attempt(lake, updates.PUBLISHED, manifest=b"2")
    attempt(lake, updates.INVALIDATED, output=Partition(CLEAN, "2019-11-25"))
    put(lake, Partition(CLEAN, "2019-11-26"), "20191125.050000", 2, b"7")
    put(lake, Partition(CLEAN, "2019-11-27"), "20191125.050000", 2, b"2")
    assert sweep_unclaimed(at(lake, DAY_LATER), OURS, unknown=True) == ()
    assert len(lake.objects()) == 3 + 2 + 3 + 3


def test_a_half_written_claim_is_swept(local_board, ledger):
    lake = Lake(Services(local_board, ledger, no_spark, lambda: NOW))
    folder = local_board._root / write.CLAIMS / OUTPUT.path
    folder.mkdir(parents=True)
    (folder / "20191125.060000#1").write_bytes(b"")
    assert sweep(at(lake, DAY_LATER), OURS).claims == 1
    assert claim_files(lake) == []


def test_sweeping_again_does_nothing(lake):
    attempt(lake, updates.REFUSED)
    sweep(at(lake, DAY_LATER), OURS)
    again = sweep(at(lake, DAY_LATER), OURS)
    assert (again.done, again.claims, again.stopped) == ((), 0, "")


# Kills.


@dataclass
class Steps:
    """Counts the requests of a sweep, and interrupts it before one of them."""

    last: int
    done: int = 0

    def step(self) -> None:
        self.done += 1
        if self.done == self.last:
            raise Interrupted


def disturbed(lake: Lake, step: Callable[[], None]) -> Services:
    names = ("list", "children", "get", "put", "create", "delete")
    return replace(at(lake, DAY_LATER), board=Counting.around(lake.services.board, dict.fromkeys(names, step)).board)


STATES = [updates.REFUSED, updates.ABANDONED, updates.PUBLISHED, updates.INVALIDATED]


def attempts(lake: Lake) -> None:
    for number, state in enumerate(STATES):
        attempt(lake, state, manifest=b"2" if state == updates.PUBLISHED else None, output=_of(number))


def _of(number: int) -> Partition:
    return Partition(CLEAN, f"2019-11-{10 + number}")


def test_a_sweep_makes_exactly_the_listed_requests(quiet):
    attempts(quiet)
    steps = Steps(0)
    sweep(disturbed(quiet, steps.step), OURS)
    # Claims of both feeds; for each of the two that were given up listing, manifest, what was pruned, listing to sweep,
    # deletion; the claims.
    assert steps.done == 2 + 2 * 5 + 1


@pytest.mark.parametrize("last", range(1, 14))
def test_a_sweep_that_is_interrupted_anywhere_is_finished_by_the_next(quiet, last):
    attempts(quiet)
    with pytest.raises(Interrupted):
        sweep(disturbed(quiet, Steps(last).step), OURS)
    sweep(at(quiet, DAY_LATER), OURS)
    assert claim_files(quiet) == []
    assert len(quiet.objects()) == 3 + 2
    assert [quiet.states(key=_of(number).key) for number in range(4)] == [[state] for state in STATES]


def test_a_sweep_whose_time_is_over_goes_on_where_it_stopped(quiet):
    attempts(quiet)
    stopped, seen = "", []
    for _ in range(5):
        swept = sweep(at(quiet, DAY_LATER), OURS, lambda: True, stopped)
        stopped = swept.stopped
        seen.append((len(swept.done), swept.claims, stopped.split("/")[-2] if stopped else ""))
    days = [_of(number).key for number in range(4)]
    assert seen == [(1, 1, days[0]), (1, 1, days[1]), (0, 1, days[2]), (0, 1, days[3]), (0, 0, "")]


def test_a_short_sweep_resumes_after_kept_claims(quiet):
    attempt(quiet, runs.RUNNING, output=_of(0))
    update_id = attempt(quiet, updates.REFUSED, output=_of(1))
    first = sweep(at(quiet, DAY_LATER), OURS, lambda: True)
    second = sweep(at(quiet, DAY_LATER), OURS, lambda: True, first.stopped)
    assert (said(first.done), said(second.done)) == ([], [("swept", update_id)])


def test_young_claims_cost_one_listing_of_each_feed(quiet):
    attempts(quiet)
    counting = Counting.around(quiet.services.board)
    sweep(replace(quiet.services, board=counting.board), OURS)
    assert [name for name, _ in counting.requests] == ["list", "list"]


def test_orphan_sweep_goes_on_beside_an_unreadable_feed(quiet):
    update_id = attempt(quiet, updates.REFUSED)
    counting = Counting.around(quiet.services.board)

    def refuse_first() -> None:
        if len(counting.requests) == 1:
            raise exceptions.GenericError("connection refused")

    counting.before = {"list": refuse_first}
    services = replace(at(quiet, DAY_LATER), board=counting.board)
    assert said(sweep(services, [Feed.parse("ads/aaa/v1.0"), CLEAN]).done) == [("swept", update_id)]


def test_a_sweep_fails_if_no_feed_can_be_read(quiet):
    def refuse() -> None:
        raise exceptions.GenericError("connection refused")

    with pytest.raises(BlackboardUnavailable):
        sweep(disturbed(quiet, refuse), OURS)
