"""The grid of chunks: a range cut alone has the same chunks as in a cut of the whole."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.chunks import key_of, line_after, line_before, plan
from feed_assets_tests.support.each_case import each_case

OFFSETS = st.integers(0, 10_000)
LIMITS = st.integers(1, 300)
SCHEMAS = st.frozensets(OFFSETS, max_size=20)


@each_case(
    ("start", "end", "schema_starts", "ranges"),
    [
        (0, 30, (), [(0, 10), (10, 20), (20, 30)]),
        (5, 25, (), [(5, 10), (10, 20), (20, 25)]),
        (10, 11, (), [(10, 11)]),
        (7, 7, (), []),
        (8, 7, (), []),
        (0, 20, (3, 10, 17), [(0, 3), (3, 10), (10, 17), (17, 20)]),
        (5, 15, (5, 15, 99), [(5, 10), (10, 15)]),
        (9, 10, (), [(9, 10)]),
    ],
)
def test_ranges_end_at_lines_of_the_grid_and_where_schemas_begin(start, end, schema_starts, ranges):
    assert [*plan(start, end, 10, schema_starts)] == ranges


@given(OFFSETS, OFFSETS, LIMITS, SCHEMAS)
def test_a_plan_covers_the_requested_range_without_gaps(start, end, limit, schemas):
    found = plan(start, end, limit, schemas)
    assert all(one.end == other.start for one, other in pairwise(found))
    assert (found[0].start, found[-1].end) == (start, end) if start < end else not found
    assert all(0 < each.end - each.start <= limit for each in found)


@given(OFFSETS, OFFSETS, LIMITS, SCHEMAS, st.data())
def test_any_engine_plans_any_range_alone(start, end, limit, schemas, data):
    whole = plan(start, end, limit, schemas)
    for each in whole[:20]:
        assert plan(each.start, each.end, limit, schemas) == (each,)
    at = data.draw(st.integers(min(start, end), max(start, end)))
    apart = plan(start, at, limit, schemas) + plan(at, end, limit, schemas)
    cuts = {each.start for each in whole} | {at} if start < at < end else {each.start for each in whole}
    assert {each.start for each in apart} == cuts


@given(OFFSETS, LIMITS)
def test_an_offset_lies_between_two_lines(offset, limit):
    before, after = line_before(offset, limit), line_after(offset, limit)
    assert before <= offset < after
    assert after - before == limit
    assert before % limit == 0


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_keys_sort_as_offsets_do(one, other):
    first, second = (key_of("clicks", 3, each, ".csv") for each in (one, other))
    assert (first < second) == (one < other)


def test_a_key_has_topic_partition_and_start():
    assert key_of("ads.clicks", 3, 40, ".csv") == "ads.clicks/3/00000000000000000040.csv"
    assert key_of("ads.clicks", 0, 2**63 - 1, ".csv.gz") == "ads.clicks/0/09223372036854775807.csv.gz"
