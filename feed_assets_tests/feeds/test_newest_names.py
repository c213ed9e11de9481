"""Search for the newest names, against plain sorting, on a listing in small pages."""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from math import log2

from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.core.feeds import update_id
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.newest_names import newest_first
from feed_assets.feeds.store_clients import ObstoreClient, Page
from feed_assets_tests.support.each_case import each_case

START = datetime(2019, 11, 25, tzinfo=UTC)
SIZE = 10
GAPS = st.sampled_from([1, 1, 60, 300, 300, 3600, 86_400, 86_400 * 400])
STRAYS = ["2019", "20191125", "20200230.000000", "latest", "v", "zz"]


class Listing:
    """A blackboard that lists these names of one prefix in pages, like S3, and counts requests."""

    def __init__(self, names) -> None:
        self.names = sorted(names)
        self.requests = 0
        self.board = Blackboard("s3://test", ObstoreClient(None), pages=self.page)

    def page(self, _prefix, after):
        self.requests += 1
        begin = bisect_right(self.names, after)
        return Page(tuple(self.names[begin : begin + SIZE]), begin + SIZE >= len(self.names))


def names_of(gaps, start=START):
    return [update_id(start + timedelta(seconds=seconds)) for seconds in accumulate(gaps)]


def flat(pages):
    return [name for page in pages for name in page]


@settings(max_examples=300, deadline=None)
@given(st.lists(GAPS, max_size=120), st.lists(st.sampled_from(STRAYS), max_size=3, unique=True), st.data())
def test_names_are_listed_newest_first_for_any_times(gaps, strays, data):
    names = sorted({*names_of(gaps), *strays})
    known = data.draw(st.sampled_from([None, *names, "20200101.000000"]))
    until = data.draw(st.sampled_from([None, START + timedelta(days=30), START + timedelta(days=900)]))
    expected = [name for name in reversed(names) if until is None or name <= update_id(until)]
    assert flat(newest_first(Listing(names).board, "p", until, known)) == expected


@each_case("gap", [1, 300, 86_400])
@each_case("count", [11, 100, 1_000, 10_000])
def test_the_end_of_a_long_listing_is_searched_for(gap, count):
    listing = Listing(names_of([gap] * count))
    assert next(newest_first(listing.board, "p"))[0] == listing.names[-1]
    pages = count / SIZE
    assert listing.requests <= 2 * log2(pages) + 6


def test_updates_that_go_on_as_they_began_take_two_requests():
    now = datetime.now(UTC)
    listing = Listing([update_id(now - timedelta(minutes=5 * ago)) for ago in range(10_000)])
    assert next(newest_first(listing.board, "p"))[0] == listing.names[-1]
    assert listing.requests == 2


def test_ids_that_run_ahead_of_the_clock_are_found():
    listing = Listing(names_of([1] * 1_000, datetime.now(UTC) + timedelta(days=3)))
    assert next(newest_first(listing.board, "p"))[0] == listing.names[-1]
    assert listing.requests < 25


def test_a_known_update_is_where_the_first_request_begins():
    listing = Listing(names_of([300] * 1_000))
    assert next(newest_first(listing.board, "p", known_id=listing.names[-4])) == listing.names[:-5:-1]
    assert listing.requests == 1


def test_many_invalid_updates_are_passed_over_window_by_window():
    listing = Listing(names_of([300] * 1_000))
    windows = newest_first(listing.board, "p", known_id=listing.names[-2])
    next(windows), next(windows)
    requests = [0, *(listing.requests for _ in windows)]
    assert max(later - earlier for earlier, later in pairwise(requests[1:])) <= 4
