"""The ledger's facts about shown partitions: a fixed number of statements, and the statements of people and checks."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets import Completeness
from feed_assets.core.completeness import WindowState
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State, Verdict
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, log, quality, update_changes, updates, waivers
from feed_assets.ledger.due import AffectedOutput, acknowledge, look, wake
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.window_rows import WindowRow, write
from feed_assets.ledger.status_facts import ShownPartition, grid_facts, latest_keys, stale
from feed_assets_tests.support.statement_counter import counted_statements

NOW = datetime(2026, 1, 20, tzinfo=UTC)
FEED = Feed.parse("a/b/v1.0")


def at(number, feed=FEED):
    return Partition(feed, f"{NOW + timedelta(hours=number):%Y-%m-%d-%H:%M}")


def window(number, feed=FEED):
    return WindowAddress(feed, "", "hour", at(number).key)


def asked(count, feeds=1):
    feeds = [Feed.parse(f"a/b{number}/v1.0") for number in range(feeds)]
    return [ShownPartition(at(number, feed), (window(number, feed),)) for feed in feeds for number in range(count)]


def published(ledger, partition, day=20):
    with ledger.change() as connection:
        update_changes.insert(connection, partition, f"202601{day}.000000", updates.FOREIGN, updates.PUBLISHED, NOW)


def test_status_shows_closures_and_waivers_of_partitions_and_windows(ledger):
    closures.close(ledger, [at(0), window(1).partition], "it is final", "ann", NOW)
    waivers.waive(ledger, window(2).partition, "bots", "known", "bob", NOW)
    with ledger.read() as connection:
        found = grid_facts(connection, [ShownPartition(at(number), (window(number),)) for number in range(4)])
    told = "closed by ann at 2026-01-20 00:00 UTC: it is final"
    assert [found[at(number)].closed for number in range(4)] == [told, told, None, None]
    assert [found[at(number)].waiver for number in range(4)] == [None, None, ("bots", "bob", "known"), None]


def test_partition_inside_a_closed_window_is_closed(ledger):
    window_queries.declare(ledger, {FEED: Tracked.of(Completeness())}, NOW)
    day = WindowAddress(FEED, "", "day", f"{NOW:%Y-%m-%d}").partition
    closures.close(ledger, [day], "it is final", "ann", NOW)
    with ledger.read() as connection:
        found = grid_facts(connection, [ShownPartition(at(number), (window(number),)) for number in (0, 23, 24)])
    told = "day@2026-01-20 is closed by ann at 2026-01-20 00:00 UTC: it is final"
    assert [found[at(number)].closed for number in (0, 23, 24)] == [told, told, None]


def test_status_separates_failed_from_marked_partitions(ledger):
    states = [quality.FAILED, quality.STALE, quality.MARKED, quality.WARNED, quality.PASSED]
    with ledger.change() as connection:
        for number, state in enumerate(states):
            quality.report(connection, at(number), "c", state, state, "me", NOW)
    with ledger.read() as connection:
        found = grid_facts(connection, [ShownPartition(at(number)) for number in range(len(states))])
    assert [found[at(number)].failed for number in range(5)] == ["c: failed", "c: stale", None, None, None]
    assert [found[at(number)].marked for number in range(5)] == [None, None, "marked", None, None]


def test_published_partition_without_counts_is_open(ledger):
    published(ledger, at(0))
    with ledger.read() as connection:
        found = grid_facts(connection, [ShownPartition(at(0), (window(0),)), ShownPartition(at(1), (window(1),))])
    assert (found[at(0)].window, found[at(0)].window_why) == (WindowState.OPEN, "its records are not counted yet")
    assert found[at(1)].window is None


def test_status_takes_as_many_statements_for_many_partitions_as_for_one(ledger):
    def statements(shown):
        with counted_statements(ledger.engine) as found, ledger.read() as connection:
            grid_facts(connection, shown)
        return len(found)

    assert statements(asked(48, feeds=50)) == statements(asked(1)) < 12


def test_feed_shows_its_latest_key_and_foreign_updates_are_not_stale(ledger):
    for number in range(3):
        published(ledger, at(number))
    published(ledger, at(0), 21)
    with ledger.read() as connection:
        assert latest_keys(connection, [FEED, Feed.parse("no/thing/v1.0")]) == {FEED: at(2).key}
        assert stale(connection, [FEED]) == ([], 0)


def put(ledger, *states):
    """Put the first hours into these states; None leaves an hour unknown."""
    window_queries.declare(ledger, {FEED: Tracked.of(Completeness())}, NOW)
    told = [(window(number), state) for number, state in enumerate(states) if state]
    with ledger.write() as connection:
        for address, state in told:
            its = Tracked.of(Completeness()).window("", "hour", address.key)
            write(
                connection,
                [WindowRow(address, its.start, its.end, 1, 1, state=state, since=NOW, issue="bots", flagged="its day")],
            )


COMPLETE, ISSUE, OPEN = WindowState.COMPLETE, WindowState.COMPLETE_WITH_ISSUE, WindowState.OPEN


@pytest.mark.parametrize(
    ("states", "found", "said"),
    [
        ([COMPLETE, COMPLETE], COMPLETE, ""),
        ([COMPLETE, OPEN, COMPLETE], OPEN, ""),
        ([ISSUE, COMPLETE, OPEN], OPEN, ""),
        ([COMPLETE, ISSUE, COMPLETE], ISSUE, "its day"),
        ([ISSUE, WindowState.INVALID], WindowState.INVALID, "bots"),
        ([COMPLETE, WindowState.BACKFILLING], WindowState.BACKFILLING, "its backfill began"),
        ([COMPLETE, None], OPEN, "nothing is reported of hour 2026-01-20-01:00"),
        ([ISSUE, None], OPEN, "nothing is reported of hour 2026-01-20-01:00"),
        ([None, None], None, ""),
    ],
)
def test_partition_has_the_worst_state_of_its_windows(ledger, states, found, said):
    put(ledger, *states)
    day = Partition(FEED, "2026-01-20")
    with ledger.read() as connection:
        its = grid_facts(connection, [ShownPartition(day, tuple(window(number) for number in range(len(states))))])[day]
    assert its.window is found
    assert its.window_why.startswith(said)


def test_partition_published_after_its_verdict_is_no_longer_stale(ledger):
    def found():
        with ledger.read() as connection:
            return [each.partition for each in stale(connection, [FEED])[0]]

    for number in range(2):
        published(ledger, at(number))
    with ledger.read() as connection:
        last = log.last(connection)
    with ledger.write() as connection:
        wake(connection, [AffectedOutput(at(number), last, NOW) for number in range(2)], NOW)
    with ledger.read() as connection:
        listed = look(connection, [FEED], NOW, 9)
    acknowledge(ledger, [(each, Verdict(each.partition, State.REBUILD, "late data")) for each in listed], NOW)
    assert found() == [at(0), at(1)]
    published(ledger, at(0), 21)
    assert found() == [at(1)]


def test_warning_that_comes_and_goes_wakes_no_consumer(ledger):
    woken = []

    def affected(consumer, changed):
        woken.append(changed.key)
        return Affected([], takes_events=False)

    def report(number, state, who="flow"):
        with ledger.change() as connection:
            quality.report(connection, at(number), "bots", state, state, who, NOW)
        woken.clear()
        fan_out(ledger, [("c/d/v1.0", str(FEED))], affected, NOW, lambda: False)
        return [*woken]

    assert report(0, quality.WARNED) == [at(0).key], "what was not known before may be waited for"
    assert [report(0, quality.PASSED), report(0, quality.WARNED)] == [[], []]
    assert [report(0, quality.FAILED), report(0, quality.WARNED)] == [[at(0).key]] * 2
    assert [report(1, state, quality.WATCH) for state in (quality.WARNED, quality.FAILED, quality.PASSED)] == [[]] * 3
