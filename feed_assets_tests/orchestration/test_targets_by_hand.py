"""Runs that take a compute target when they start: by hand, from a backfill, again, or with resources taken back."""

import json

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import Resources
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.launching import LONGEST_WAIT
from feed_assets.ledger import allocations, resource_queue, runs
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.resource_queue import LOOK_AGAIN
from feed_assets.ledger.tables import allocation
from feed_assets.orchestration.decide.resource_requests import ALLOCATION, TARGET, TARGET_WHY
from feed_assets.orchestration.execute import patience as patience_module
from feed_assets.orchestration.run_outcomes import why_failed
from feed_assets.runs.services import this_process, utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, SUMS, harness, raw_feed, rows, sums_of

pytestmark = pytest.mark.usefixtures("home")

HERE = {"kind": "local", "cores": 2, "memory": "2g"}
SUMS_KEY = dg.AssetKey(["t", "sums"])


@pytest.fixture
def lake(setting):
    setting(targets=json.dumps({"here": HERE}), partitions_per_run=1)
    feed = raw_feed()
    made = harness(feed, sums_of(feed))
    made.drop(RAW, DAY, rows(1))
    return made


@pytest.fixture
def full(lake):
    """Return the id of the resources that a requested run has. It leaves no room for the next day."""
    (request,) = lake.ask().requests
    lake.drop(RAW, NEXT_DAY, rows(1))
    return request.tags[ALLOCATION]


@pytest.fixture
def in_pauses(monkeypatch):
    """Return a function that sets what happens in each second in which a run waits."""

    def set_to(action):
        monkeypatch.setattr(patience_module, "_pause", lambda _interrupted, _seconds: action())

    return set_to


def by_hand(day, **tags):
    return dg.RunRequest(asset_selection=[SUMS_KEY], partition_key=day, tags=tags)


def ledger():
    return open_ledger(settings().ledger)


def allocated():
    with ledger().read() as connection:
        return [*connection.execute(sa.select(allocation).order_by(allocation.c.output))]


def end(allocation_id):
    with ledger().write() as connection:
        allocations.end(connection, [allocation_id])
        resource_queue.wake_first(connection, utc_now())


def test_a_run_by_hand_holds_no_target_while_another_run_builds_its_partition(lake, in_pauses):
    output = Partition(Feed.parse(SUMS), DAY)
    other = runs.Run("other", output, runs.RUNNING, process=this_process(), started=utc_now())
    runs.start(ledger(), other)
    had = []

    def second():
        had.append(allocated())
        if len(had) == 3:
            with ledger().change() as connection:
                runs.end(connection, "other", "abandoned", utc_now(), "stopped")

    in_pauses(second)
    assert why_failed(lake.runner.execute(by_hand(DAY))) is None
    assert had == [[], [], []]
    assert allocated() == []


def test_a_target_is_given_back_if_another_run_was_faster(lake, in_pauses, full):
    output, seen = Partition(Feed.parse(SUMS), NEXT_DAY), []

    def second():
        seen.append([row.target for row in allocated()])
        if len(seen) == 1:  # It waits for room. Another run begins with its partition, and then there is room.
            other = runs.Run("other", output, runs.RUNNING, process=this_process(), started=utc_now())
            runs.start(ledger(), other)
            end(full)
        elif len(seen) == 3:
            with ledger().change() as connection:
                runs.end(connection, "other", "abandoned", utc_now(), "stopped")

    in_pauses(second)
    assert why_failed(lake.runner.execute(by_hand(NEXT_DAY))) is None
    assert (seen[0], seen[1:]) == (["here", None], [[], []])


def test_a_run_by_hand_takes_what_a_requested_run_never_took(lake, full, setting):
    """Without a daemon, no tick would take it back."""
    setting(run_wait_seconds=0)
    with ledger().write() as connection:
        long_ago = utc_now() - 2 * LONGEST_WAIT
        connection.execute(sa.update(allocation).where(allocation.c.id == full).values(at=long_ago))
    assert why_failed(lake.runner.execute(by_hand(NEXT_DAY))) is None
    assert allocated() == []


def test_a_waiting_run_asks_when_it_is_woken_or_answers_are_old_and_not_each_second(lake, in_pauses, full, monkeypatch):
    asked, seconds, ask = [], [], resource_queue.ask

    def counted(*given):
        asked.append(len(seconds))
        return ask(*given)

    def second():
        seconds.append(utc_now())
        if len(seconds) == LOOK_AGAIN.total_seconds() + 4:
            end(full)

    monkeypatch.setattr(resource_queue, "ask", counted)
    in_pauses(second)
    result = lake.runner.execute(by_hand(NEXT_DAY))
    assert why_failed(result) is None
    assert asked == [0, 10, 14]


def test_tags_say_the_target_that_a_run_has_whatever_they_said_before(lake):
    old = {TARGET: "there", TARGET_WHY: "it was free", ALLOCATION: "gone"}
    for tags in ({}, old):
        lake.invalidate(SUMS, DAY, lake.newest(SUMS, DAY)) if tags else None
        result = lake.runner.execute(by_hand(DAY, **tags))
        assert result.success
        shown = lake.instance.get_run_by_id(result.run_id).tags
        assert (shown[TARGET], shown[TARGET_WHY].partition(":")[0]) == ("here", "here is the only target that fits")
        assert shown[ALLOCATION].startswith(f"run {result.run_id} ")


def test_steps_of_one_run_have_resources_of_their_own_and_old_partitions_stand_behind_new_ones(
    lake, in_pauses, full, setting
):
    setting(history_days=1)
    waited = []

    def second():
        waited.extend(row for row in allocated() if row.target is None)
        end(full)

    in_pauses(second)
    result = lake.runner.execute(by_hand(NEXT_DAY))
    assert why_failed(result) is None
    (row, *_) = waited
    assert (row.id, row.output) == (f"run {result.run_id} t__sums", f"{SUMS}/{NEXT_DAY}")
    assert row.history


def test_a_run_that_no_target_will_ever_hold_does_not_wait(setting, in_pauses):
    setting(targets=json.dumps({"here": HERE}))
    feed = raw_feed()
    lake = harness(feed, sums_of(feed, resources=Resources(labels=["gpu"])))
    lake.drop(RAW, DAY, rows(1))
    in_pauses(lambda: pytest.fail("the run waits"))
    result = lake.runner.execute(by_hand(DAY))
    assert "no target has the labels gpu" in str(why_failed(result))
    assert "No wait can change that" in str(why_failed(result))
    assert allocated() == []
