import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log
from feed_assets.ledger.log import Change
from feed_assets_tests.support.ledger_records import CLICKED, NOW, SHOWN

FEEDS = [SHOWN.feed, CLICKED.feed]


@pytest.fixture
def logged(ledger):
    """Record changes 1 to 6: two updates and two events of one partition, and one update of each of two others."""
    elsewhere = Partition(Feed.parse("else/where/v1.0"), "")
    kinds = [log.UPDATE, log.EVENT, log.UPDATE, log.EVENT]
    new = [Change(SHOWN, kind, str(at), NOW) for at, kind in enumerate(kinds)]
    with ledger.change() as connection:
        log.append(connection, [*new, *(Change(each, log.UPDATE, "x", NOW) for each in (CLICKED, elsewhere))])
    return ledger


def newest(ledger, kind=log.UPDATE, after=0, upto=6, limit=9, feeds=FEEDS):
    with ledger.read() as connection:
        return [each.sequence for each in log.newest(connection, kind, after, upto, limit, feeds)]


def test_newest_changes_skip_overtaken_updates_and_keep_events(logged):
    assert newest(logged) == [3, 5]
    assert newest(logged, log.EVENT) == [2, 4]


def test_newest_changes_are_filtered_by_feed_and_bounds_in_order(logged):
    assert newest(logged, after=3) == [5]
    assert newest(logged, upto=4) == [3]
    assert newest(logged, feeds=[CLICKED.feed]) == [5]
    assert newest(logged, log.EVENT, limit=1) == [2]


def test_numbered_changes_are_found_unless_they_were_overtaken(logged):
    with logged.read() as connection:
        assert [each.sequence for each in log.newest_of(connection, [1, 2, 3, 99])] == [2, 3]
        assert log.newest_of(connection, []) == ()


def test_invalidations_are_never_overtaken_and_prunes_overtake_nothing(ledger):
    states = [log.PUBLISHED, log.INVALIDATED, log.INVALIDATED, log.PUBLISHED, log.PRUNED]
    with ledger.change() as connection:
        log.append(connection, [Change(SHOWN, log.UPDATE, str(at), NOW, after=each) for at, each in enumerate(states)])
    assert newest(ledger) == [2, 3, 4]
