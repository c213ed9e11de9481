"""Old rows are removed without a visible difference: a world that is pruned, beside one that is not."""

import os
import shutil
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
import sqlalchemy as sa

from feed_assets.core.events import PARENTS, Operation, Rejected, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.slices import Slice
from feed_assets.ledger import (
    announce,
    awaited,
    claims,
    event_rejects,
    event_store,
    old_rows,
    subscriptions,
    update_changes,
    update_durations,
    updates,
)
from feed_assets.ledger.awaited import Awaited
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.old_rows import prune_log
from feed_assets.ledger.tables import change, event, inbox, taken_event
from feed_assets_tests.ledger.retention_world import DAYS, START, World, acts
from feed_assets_tests.support.ledger_records import deliver, scanned, statements, waiting


@pytest.fixture
def worlds(tmp_path, empty_ledger, monkeypatch):
    """Yield two worlds on disk that do not sync after each of their many transactions."""
    monkeypatch.setattr(update_durations, "SHOWN", 2)
    opened = []
    for name in ("pruned", "whole"):
        shutil.copyfile(empty_ledger, tmp_path / f"{name}.db")
        ledger = open_ledger(f"sqlite:///{tmp_path / name}.db")
        ledger.engine.dispose()
        sa.event.listen(ledger.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        opened.append(ledger)
    yield tuple(World(each) for each in opened)
    for each in opened:
        each.engine.dispose()


SAID_EVERY = 10
"""Number of acts after which everything visible is compared.

It is also compared after each prune; results of acts always.
"""


def live(pruned, whole, seed, number):
    random, removed = Random(seed), 0  # noqa: S311
    for at, act in enumerate(acts(random, number)):
        assert pruned.do(act) == whole.do(act), (seed, at, act)
        if random.random() < (0.5 if act[0] == "wait" and act[1] > 400 else 0.02):
            would = pruned.prune(apply=False)
            went = pruned.prune(apply=True)
            assert (would.total, would.events, would.changes) == (went.total, went.events, went.changes)
            assert pruned.prune(apply=True).total == 0, "a second one finds nothing"
            removed += went.events
        elif at % SAID_EVERY:
            continue
        for said, expected in zip(pruned.say(), whole.say(), strict=True):
            assert said == expected, (seed, at, act)
    assert pruned.events() + removed == whole.events()
    return removed


SEEDS = [int(os.environ["FAULT_SEED"])] if "FAULT_SEED" in os.environ else [0, 1, 2, 34]


@pytest.mark.parametrize("seed", SEEDS)
def test_pruned_ledger_gives_the_same_answers_as_a_whole_one(worlds, seed):
    assert live(*worlds, seed, 70) > 15


def tell(ledger, marker, *, correlation=None, table="team/a", day=0, context=None, event_day=None):
    """Record an event of a team's table some days after the beginning."""
    published = START + timedelta(days=day if event_day is None else event_day)
    new = WriteEvent(table, marker, published, correlation or f"c{marker}", Operation.UPSERT, context=context or {})
    with ledger.change() as connection:
        return event_store.record(connection, "team", [new], START + timedelta(days=day), refuse_out_of_order=False)


def heard(ledger, position=10**6):
    with ledger.write() as connection:
        subscriptions.advance(connection, "somebody", position)


def prune(ledger, day=100, **options):
    return prune_log(ledger, START + timedelta(days=day), DAYS, DAYS, **({"apply": True} | options))


def numbers(ledger, table=event):
    with ledger.read() as connection:
        return [*connection.execute(sa.select(table.c.sequence).order_by(table.c.sequence)).scalars()]


@pytest.fixture
def few(monkeypatch):
    """Make `events stats` read only the newest event of each table."""
    monkeypatch.setattr(update_durations, "SHOWN", 1)


def test_prune_removes_old_rows_as_its_dry_run_counted(ledger, few):
    for marker in range(1, 5):
        tell(ledger, marker, day=marker)
    tell(ledger, 5, day=99)
    heard(ledger)
    would = prune(ledger, apply=False)
    assert (would.changes, would.events, would.applied, numbers(ledger)) == (4, 4, False, [1, 2, 3, 4, 5])
    assert prune(ledger) == replace(would, applied=True)
    assert (numbers(ledger), numbers(ledger, change)) == ([5], [5])
    assert prune(ledger).total == 0


def test_no_row_is_pruned_without_a_subscriber_of_the_log(ledger, few):
    """A subscriber that begins later receives the changes that are kept, and looks for their events."""
    for marker in range(1, 5):
        tell(ledger, marker, day=marker)
    tell(ledger, 5, day=99)
    assert (prune(ledger).total, numbers(ledger)) == (0, [1, 2, 3, 4, 5])


def test_an_event_stays_as_long_as_its_change_does(ledger, few):
    for marker in range(1, 5):
        tell(ledger, marker)
    heard(ledger, 2)
    pruned = prune(ledger)
    assert (pruned.changes, pruned.events, numbers(ledger)) == (2, 2, [3, 4])
    assert pruned.held_by == "somebody has read up to number 2 only"


def test_event_with_the_last_marker_is_not_pruned(ledger, few):
    tell(ledger, 10)
    tell(ledger, 5)
    tell(ledger, 7)
    heard(ledger)
    prune(ledger)
    assert numbers(ledger) == [1, 3], "the last marker, and the last that came"
    with ledger.read() as connection:
        assert event_store.last_marker(connection, Partition(Feed.parse("team/a"))) == f"{10:020d}"


def test_events_that_stats_read_are_not_pruned(ledger, monkeypatch):
    monkeypatch.setattr(update_durations, "SHOWN", 2)
    for marker, correlation in enumerate("wxyz", 1):
        tell(ledger, marker, correlation=correlation)
    for marker, correlation in enumerate("xv", 1):
        tell(ledger, marker, correlation=correlation, table="team/b")
    heard(ledger)
    prune(ledger)
    with ledger.read() as connection:
        assert (marks(connection, "team/a"), marks(connection, "team/b")) == ([2, 3, 4], [1, 2])


def test_events_that_await_a_missing_partition_are_not_pruned(ledger, few):
    for marker in range(1, 5):
        tell(ledger, marker)
    heard(ledger)
    with ledger.write() as connection:
        absent = Awaited("gamma/x/v1", Partition(Feed.parse("team/a")), 2, None, None)
        awaited.put(connection, [absent], START)
    prune(ledger)
    assert numbers(ledger) == [2, 3, 4]


def test_repeat_of_a_pruned_event_is_ignored_and_a_new_old_event_refused(ledger, few):
    for marker in (10, 20, 30):
        tell(ledger, marker, day=1)
    heard(ledger)
    prune(ledger)
    assert numbers(ledger) == [3]
    assert tell(ledger, 10, day=101, event_day=1) == ()
    (rejected,) = tell(ledger, 15, day=101)
    assert (
        "team/a 15 is older than events that were removed because of their age (FEED_ASSETS_LOG_DAYS)"
        in rejected.reason
    )
    assert numbers(ledger) == [3]
    assert tell(ledger, 25, day=101) == ()
    with ledger.read() as connection:
        (late, _) = event_store.newest(connection, 5)
    assert (late.previous, late.flag) == (f"{20:020d}", event_store.OUT_OF_ORDER), "it covers what is after what went"


def test_old_rejects_are_pruned(ledger):
    with ledger.write() as connection:
        for day in (1, 2, 99):
            event_rejects.reject(connection, "team", [Rejected(f"raw {day}", "why")], START + timedelta(days=day))
    assert prune(ledger, apply=False).rejects == 2
    assert prune(ledger).rejects == 2
    with ledger.read() as connection:
        assert [one.raw for _, one, _ in event_rejects.rejects(connection, 10)] == ["raw 99"]


def test_interrupted_prune_continues_until_all_old_rows_are_gone(ledger, few, monkeypatch):
    monkeypatch.setattr(old_rows, "ROWS_PER_STEP", 2)
    for marker in range(1, 8):
        tell(ledger, marker)
    heard(ledger)
    total, after = 0, ""
    while (pruned := prune(ledger, out_of_time=lambda: True, after=after)).stopped:
        total, after = total + pruned.total, pruned.stopped
    assert (total + pruned.total, numbers(ledger), numbers(ledger, change)) == (12, [7], [7])


def test_rows_of_taken_events_are_pruned_except_those_of_current_updates(ledger, few):
    output = Partition(Feed.parse("gamma/x/v1"))
    for number in range(1, 5):
        tell(ledger, number, day=number)
        deliver(ledger, output, [Feed.parse("team/a")], START)
        with ledger.change() as connection:
            before = f"{number - 1:020d}" if number > 1 else None
            piece = Slice(Partition(Feed.parse("team/a")), before, f"{number:020d}", frozenset())
            new, now = f"2024010{number}.000000", START + timedelta(days=number)
            claims.claim(connection, f"run {number}", [(output, new)], [], "1", now, [piece])
            update_changes.publish(connection, output, new, now, version=f"{number}")
    heard(ledger)
    prune(ledger)
    with ledger.read() as connection:
        left = connection.execute(sa.select(taken_event.c.run).order_by(taken_event.c.run)).scalars().all()
    assert left == ["run 3", "run 4"], "the newest valid update, and the one before it"


def test_prune_never_scans_a_whole_table(sqlite_ledger, few):
    for marker in range(1, 5):
        tell(sqlite_ledger, marker)
    heard(sqlite_ledger)
    with statements(sqlite_ledger) as executed:
        prune(sqlite_ledger)
    asked = [(each, values) for each, values in executed if "event_reject" not in each and "report" not in each]
    with sqlite_ledger.read() as connection:
        plans = [
            (step.detail, each)
            for each, values in asked
            if each.startswith(("SELECT", "WITH", "DELETE"))
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", values)
        ]
    fine = ("inbox", "floors", "found", "every")
    bad = [step for step, _ in plans if scanned([step]) and not any(name in step for name in fine)]
    assert bad == []


def build(ledger, number, *slices, pins=()):
    """Publish an update of a dataset, a day after the one before, that consumes slices of tables."""
    new, now = f"202401{number:02d}.000000", START + timedelta(days=number)
    pieces = [Slice(Partition(Feed.parse(table)), None, f"{end:020d}", frozenset()) for table, end in slices]
    with ledger.change() as connection:
        claims.claim(connection, f"run {number}", [(OUTPUT, new)], pins, "1", now, pieces)
        update_changes.publish(connection, OUTPUT, new, now, version=f"{number}")


OUTPUT = Partition(Feed.parse("gamma/x/v1"))


def test_events_that_could_be_due_again_are_not_pruned(ledger, few):
    for number in range(1, 5):
        tell(ledger, 1, correlation=f"a{number}", table=f"team/a{number}")
        tell(ledger, 2, correlation=f"later a{number}", table=f"team/a{number}")
        tell(ledger, 1, correlation=f"b{number}", table=f"team/b{number}")
        deliver(ledger, OUTPUT, [Feed.parse(f"team/{name}{number}") for name in "ab"], START)
        build(ledger, number, (f"team/a{number}", 1), (f"team/b{number}", 1))
    deliver(ledger, OUTPUT, [Feed.parse(f"team/{name}{number}") for name in "ab" for number in range(1, 5)], START)
    heard(ledger)
    prune(ledger)
    with ledger.read() as connection:
        found = {str(each.partition.feed): each.marker for each in event_store.newest(connection, 100)}
        ends = [number for number in range(1, 5) if marks(connection, f"team/a{number}") == [1, 2]]
    assert ends == [3, 4], "of the newest update and the one before"
    assert len(found) == 9
    with ledger.change() as connection:
        update_changes.change(connection, OUTPUT, "20240104.000000", updates.INVALIDATED, START + timedelta(days=101))
    due = [each.correlation for each in waiting(ledger, OUTPUT.feed)[""]]
    assert [each for each in due if not each.startswith("later")] == ["a4", "b4"]


def marks(connection, table):
    return sorted(int(each.marker) for each in event_store.newest(connection, 100, Feed.parse(table)))


def test_events_of_the_two_newest_updates_are_not_pruned(ledger, few):
    for number in range(1, 5):
        with ledger.change() as connection:
            new, at = f"202401{number:02d}.000000", START + timedelta(days=number)
            update_changes.insert(connection, OUTPUT, new, updates.FOREIGN, updates.PUBLISHED, at)
            update_changes.insert(
                connection, Partition(OUTPUT.feed, str(number)), new, updates.FOREIGN, updates.PUBLISHED, at
            )
    heard(ledger)
    prune(ledger)
    with ledger.read() as connection:
        found = sorted(
            each.marker for each in event_store.newest(connection, 100, OUTPUT.feed) if not each.partition.key
        )
    assert found == ["20240103.000000", "20240104.000000"]


def test_events_that_the_newest_update_was_built_up_to_are_not_pruned(ledger, few):
    for marker in (1, 2, 3):
        tell(ledger, marker)
    tell(ledger, 1, correlation="b", table="team/b")
    read = [Pin(Partition(Feed.parse(table)), f"{1:020d}", "") for table in ("team/a", "team/b")]
    build(ledger, 5, pins=read)
    heard(ledger)
    prune(ledger)
    with ledger.read() as connection:
        assert marks(connection, "team/a") == [1, 3]


def test_event_joined_from_a_kept_event_is_not_pruned(ledger, few):
    tell(ledger, 1, correlation="x")
    tell(ledger, 1, correlation="j", table="team/b", context={PARENTS: ["w", "x"]})
    tell(ledger, 2, correlation="k", table="team/b", context={PARENTS: ["w", "y"]})
    tell(ledger, 3, table="team/b")
    heard(ledger)
    prune(ledger)
    with ledger.read() as connection:
        assert marks(connection, "team/b") == [1, 3]


def test_pruned_announcement_is_not_announced_again(ledger, few):
    for number in range(1, 5):
        with ledger.change() as connection:
            at = START + timedelta(days=number)
            update_changes.insert(
                connection, OUTPUT, f"202401{number:02d}.000000", updates.FOREIGN, updates.PUBLISHED, at
            )
    heard(ledger)
    assert prune(ledger).events == 2
    with ledger.change() as connection:
        assert announce.heal(connection, [OUTPUT.feed], START) == ()
        update_changes.change(connection, OUTPUT, "20240101.000000", updates.INVALIDATED, START)
        update_changes.publish(connection, OUTPUT, "20240101.000000", START)
        assert len(event_store.newest(connection, 100)) == 2


def test_events_of_a_partly_waiting_update_are_not_pruned(ledger, few):
    """Otherwise it would look incomplete: consumed events of it count, too."""
    for table in ("team/a", "team/b"):
        tell(ledger, 1, correlation="x", table=table)
        tell(ledger, 2, table=table)
    deliver(ledger, OUTPUT, [Feed.parse("team/b")], START)
    heard(ledger)
    prune(ledger)
    with ledger.read() as connection:
        assert marks(connection, "team/a") == [1, 2]
    with ledger.change() as connection:
        connection.execute(sa.delete(inbox))
    assert prune(ledger).events == 2


def test_repeat_of_a_pruned_event_is_known_beside_a_kept_one_of_its_marker(ledger, few):
    for marker, correlation in ((10, "x"), (20, "y"), (10, "stays"), (30, "z")):
        tell(ledger, marker, correlation=correlation)
    with ledger.write() as connection:
        connection.execute(sa.insert(inbox).values(feed="gamma/x/v1", partition="", sequence=3))
    heard(ledger)
    assert prune(ledger).events == 2
    assert tell(ledger, 10, correlation="x", day=101, event_day=0) == ()
    assert numbers(ledger) == [3, 4]
