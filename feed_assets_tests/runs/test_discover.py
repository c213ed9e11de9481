"""New updates of foreign feeds: none is missed, for any time limit and any unreadable feeds."""

from datetime import date, timedelta
from itertools import count

import pytest
from obstore import exceptions

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate, publish
from feed_assets.ledger import log, updates
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.runs.discover import RECENT, ROTATION, discover, discover_all
from feed_assets.runs.services import Services
from feed_assets_tests.support.build_lake import NOW, RAW, Lake
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.statement_counter import counted_statements

OTHER = Feed.parse("ads/other/v1.0")
PLAIN = Feed.parse("plain")


def no_spark():
    raise AssertionError("looking needs no Spark")


@pytest.fixture
def quiet(ledger) -> Lake:
    """Return a lake in memory, without Spark."""
    return Lake(Services(Blackboard.open("memory://"), ledger, no_spark, lambda: NOW))


def never() -> bool:
    return False


def after(steps: int):
    """Return a time limit that expires after `steps` calls."""
    asked = count(1)
    return lambda: next(asked) > steps


def known(lake: Lake, *feeds: Feed) -> list[str]:
    with lake.services.ledger.read() as connection:
        found = log.after(connection, 0, 10**9, 100, feeds)
        return [str(each.partition) for each in found if each.kind == log.UPDATE]


def test_every_partition_is_seen_the_newest_first_and_bad_names_take_one_line(quiet, caplog):
    for number in range(20):
        quiet.services.board.put(f"{RAW}/bad*name-{number:02}/x", b"")
        quiet.services.board.put(f"{RAW}/2019-11-25/_bad-{number:02}/x", b"")
    for key in ("2019-11-24/men", "2019-11-25/men", "2019-11-25/women"):
        quiet.drop("1,x", key=key)
    assert discover(quiet.services, [RAW], never).is_complete
    assert known(quiet, RAW) == [f"{RAW} 2019-11-25/men", f"{RAW} 2019-11-25/women", f"{RAW} 2019-11-24/men"]
    (line,) = [each.getMessage() for each in caplog.records if "skipped" in each.getMessage()]
    assert line.startswith(f"{RAW}: these names are skipped: bad*name-19 (")
    assert "and 37 more" in line
    assert len(line) < 1000


def test_a_discovery_out_of_time_is_resumed_where_it_stopped(quiet):
    for day in (24, 25, 26, 27):
        quiet.drop("1,x", key=f"2019-11-{day}")
    looks = []
    for _ in range(3):
        complete = discover(quiet.services, [RAW], after(2)).is_complete
        looks.append((complete, len(known(quiet, RAW))))
    assert looks == [(False, 3), (True, 4), (True, 4)]


def test_each_feed_gets_some_discovery_even_without_time(quiet):
    for day in (24, 25):
        quiet.drop("1,x", key=f"2019-11-{day}")
    discover(quiet.services, [RAW], lambda: True)
    first = known(quiet, RAW)
    discover(quiet.services, [RAW], lambda: True)
    assert (first, known(quiet, RAW)) == ([f"{RAW} 2019-11-25"], [f"{RAW} 2019-11-25", f"{RAW} 2019-11-24"])


def test_discovery_after_a_complete_one_begins_with_the_newest(quiet):
    for day in (24, 25):
        quiet.drop("1,x", key=f"2019-11-{day}")
    discover(quiet.services, [RAW], after(1))
    discover(quiet.services, [RAW], never)
    quiet.drop("1,x", key="2019-11-26")
    discover(quiet.services, [RAW], after(1))
    assert known(quiet, RAW)[-1] == f"{RAW} 2019-11-26"


def test_a_feed_without_partitions_has_one(quiet):
    publish(quiet.services.board, Partition(PLAIN), {"a": b"1"}, NOW)
    discover(quiet.services, [PLAIN], never)
    assert known(quiet, PLAIN) == ["plain"]


def test_an_update_that_became_invalid_is_noticed(quiet):
    dropped = quiet.drop("1,x")
    discover(quiet.services, [RAW], never)
    invalidate(quiet.services.board, dropped.partition, dropped.id)
    discover(quiet.services, [RAW], never)
    assert quiet.states(RAW) == [updates.INVALIDATED]


def days(count: int) -> list[str]:
    """Return partition keys, the oldest first."""
    return [(date(2018, 1, 1) + timedelta(days=number)).isoformat() for number in range(count)]


@pytest.fixture
def old(quiet) -> Lake:
    """Return a lake with 100 partitions that the ledger knows."""
    for key in days(100):
        quiet.drop("1,x", key=key)
    discover_all(quiet.services, [RAW])
    return quiet


def newest(lake: Lake, key: str) -> str | None:
    row = lake.newest(RAW, key)
    return row.id if row else None


def test_new_partitions_are_discovered_before_known_ones(old):
    new = old.drop("1,x", key="2017-12-31")
    discover(old.services, [RAW], lambda: True)
    assert newest(old, "2017-12-31") == new.id


@pytest.mark.parametrize(("more", "manifests"), [(0, 1), (400, RECENT + ROTATION)])
def test_discovery_reads_a_limited_number_of_known_partitions_with_few_statements(old, more, manifests):
    for key in days(100 + more)[100:]:
        old.drop("1,x", key=key)
    for number in range(1000 if more else 0):  # More than one request lists: each name is read by itself.
        old.services.board.put(f"{RAW}/{days(500)[-1]}/20000101.000000/{number}", b"")
    discover_all(old.services, [RAW])
    counting, ledger = Counting.around(old.services.board), old.services.ledger
    with counted_statements(ledger.engine) as statements:
        discover(Services(counting.board, ledger, no_spark, lambda: NOW), [RAW], never)
    assert len({key for name, key in counting.requests if name == "get"}) == manifests
    assert len(statements) <= 12


def test_late_data_of_the_newest_partitions_are_found_by_the_next_discovery(old):
    for key in days(100)[-RECENT:]:
        old.drop("1,x", "2,x", key=key)
    late = old.valid(RAW, days(100)[-RECENT])
    discover(old.services, [RAW], never)
    assert newest(old, days(100)[-RECENT]) == late.id


def test_late_data_of_every_known_partition_are_found_within_one_rotation(old):
    late = {key: old.drop("1,x", "2,x", key=key).id for key in days(100)}
    looks = 0
    while looks < 10 and {key: newest(old, key) for key in late} != late:
        discover(old.services, [RAW], never)
        looks += 1
    assert looks == 3  # 90 older ones, 40 in each


def test_a_thorough_discovery_finds_late_data_of_every_partition(old):
    late = {key: old.drop("1,x", "2,x", key=key).id for key in days(100)}
    discover_all(old.services, [RAW])
    assert {key: newest(old, key) for key in late} == late


def test_known_partitions_have_their_turn_beside_names_that_never_become_valid(quiet):
    for key in days(5):
        quiet.drop("1,x", key=key)
    discover_all(quiet.services, [RAW])
    for key in ("2019-01-01", "2019-01-02"):
        quiet.services.board.put(f"{RAW}/{key}/20190103.000000/part-0", b"without a manifest")
    late = quiet.drop("1,x", "2,x", key=days(5)[0])
    for _ in range(4):
        discover(quiet.services, [RAW], lambda: True)
    assert newest(quiet, days(5)[0]) == late.id


def test_new_partitions_have_their_turn_beside_names_that_never_become_valid(quiet):
    for key in ("2019-01-01", "2019-01-02"):
        quiet.services.board.put(f"{RAW}/{key}/20190103.000000/part-0", b"without a manifest")
    new = quiet.drop("1,x", key="2018-01-01")
    looks = [discover(quiet.services, [RAW], lambda: True).is_complete for _ in range(3)]
    assert (looks, newest(quiet, "2018-01-01")) == ([False, False, True], new.id)


def test_a_partition_without_a_valid_update_is_discovered_like_a_new_one(old):
    key = days(100)[0]
    only = old.valid(RAW, key)
    invalidate(old.services.board, only.partition, only.id)
    discover_all(old.services, [RAW])
    again = old.drop("1,x", key=key)
    discover(old.services, [RAW], lambda: True)
    assert newest(old, key) == again.id


def failing(lake: Lake, *feeds: Feed) -> Services:
    """Return the lake's services, on a store that does not answer for some feeds."""
    counting = Counting.around(lake.services.board)

    def refuse() -> None:
        _, prefix = counting.requests[-1]
        if str(prefix).startswith(tuple(map(str, feeds))):
            raise exceptions.GenericError("connection refused")

    counting.before = {"children": refuse}
    return Services(counting.board, lake.services.ledger, no_spark, lambda: NOW)


def test_discovery_goes_on_beside_an_unreadable_feed(quiet):
    quiet.drop("1,x")
    found = discover(failing(quiet, OTHER), [OTHER, RAW], never)
    assert ([*found.failed], known(quiet, RAW)) == ([OTHER], [f"{RAW} 2019-11-24"])


def test_discovery_raises_if_no_feed_can_be_read(quiet):
    with pytest.raises(BlackboardUnavailable, match="connection refused"):
        discover(failing(quiet, OTHER, RAW), [OTHER, RAW], never)


def test_a_version_below_a_feed_without_one_is_another_feed(quiet):
    versioned, plain = Feed.parse("ads/plain/v1.0"), Feed.parse("ads/plain")
    for feed in (versioned, plain):
        publish(quiet.services.board, Partition(feed, "2019-11-24"), {"a": b"1"}, NOW)
    discover(quiet.services, [plain], never)
    with quiet.services.ledger.read() as connection:
        assert [*updates.published_keys(connection, plain)] == ["2019-11-24"]


EVENTS = Feed.parse("ads/events/v1.0")


def put(lake: Lake, batch: str, feed: Feed = EVENTS):
    return publish(lake.services.board, Partition(feed, batch), {"a": b"1"}, NOW)


def held(lake: Lake, parent: Partition) -> list[tuple[str, str]]:
    with lake.services.ledger.read() as connection:
        return [(pin.partition.name, pin.update_id) for pin in pins_of(connection, [parent])[parent]]


def test_discovery_sees_every_batch_of_an_appendable_feed_and_its_updates(quiet):
    day = Partition(EVENTS, "2019-11-24")
    first, other = put(quiet, "2019-11-24/a"), put(quiet, "2019-11-24/b")
    discover(quiet.services, [EVENTS], never, {EVENTS})
    assert held(quiet, day) == [("a", first.id), ("b", other.id)]
    second, third = put(quiet, "2019-11-24/a"), put(quiet, "2019-11-24/c")
    discover(quiet.services, [EVENTS], never, {EVENTS})
    assert held(quiet, day) == [("a", second.id), ("b", other.id), ("c", third.id)]


@pytest.mark.parametrize("prefix", ["2019-11-24/", ""])
def test_a_batch_that_became_invalid_or_is_gone_is_noticed(quiet, prefix):
    parent = Partition(EVENTS, prefix.rstrip("/"))
    kept, spoilt, removed = (put(quiet, f"{prefix}{name}") for name in "abc")
    discover(quiet.services, [EVENTS], never, {EVENTS})
    invalidate(quiet.services.board, spoilt.partition, spoilt.id)
    quiet.services.board.sweep(removed.partition.path)
    discover(quiet.services, [EVENTS], never, {EVENTS})
    assert held(quiet, parent) == [("a", kept.id)]


def test_an_update_beside_batches_does_not_hide_them(quiet):
    put(quiet, "2019-11-24")
    batch = put(quiet, "2019-11-24/a")
    discover(quiet.services, [EVENTS], never, {EVENTS})
    assert held(quiet, batch.partition.parent) == [("a", batch.id)]
