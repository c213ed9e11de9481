"""Division of ready partitions into blocks, one for each run."""

from itertools import product
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.blocks import blocks
from feed_assets_tests.support.each_case import each_case

LINE = [(at,) for at in range(7)]
SQUARE = [*product(range(4), range(3))]

CUT = [
    ([], 5, []),
    ([()], 5, [[()]]),
    (LINE, 7, [LINE]),
    (LINE, 3, [LINE[:3], LINE[3:6], LINE[6:]]),
    (LINE, 1, [[at] for at in LINE]),
    ([*LINE[:2], *LINE[4:]], 5, [LINE[:2], LINE[4:]]),
    (SQUARE, 12, [SQUARE]),
    # Rows of three, and what is left of them; columns of four would be smaller.
    (SQUARE, 10, [SQUARE[:9], SQUARE[9:]]),
    (SQUARE, 4, [[(0, 0), (1, 0), (2, 0), (3, 0)], [(0, 1), (1, 1), (2, 1), (3, 1)], [(0, 2), (1, 2), (2, 2), (3, 2)]]),
    # One is missing in the middle.
    (
        [at for at in SQUARE if at != (1, 1)],
        12,
        [[(0, 0), (1, 0), (2, 0), (3, 0)], [(0, 1), (0, 2)], [(1, 2), (2, 2), (3, 2)], [(2, 1), (3, 1)]],
    ),
]


@each_case(("points", "limit", "expected"), CUT)
def test_neighbours_are_in_one_block(points, limit, expected):
    assert sorted(blocks(points, limit)) == sorted(expected)


points_of = st.integers(1, 3).flatmap(
    lambda dimensions: st.sets(st.tuples(*[st.integers(0, 5)] * dimensions), max_size=60)
)


@given(points_of, st.integers(1, 20))
def test_blocks_are_rectangles_that_hold_each_point_once_and_nothing_else(points, limit):
    found = blocks(points, limit)
    assert sorted(at for block in found for at in block) == sorted(points)
    for block in found:
        assert block == sorted(block)
        assert 0 < len(block) <= limit
        assert len(block) == prod(len({*along}) for along in zip(*block, strict=True))
        assert all(max(along) - min(along) < len({*along}) for along in zip(*block, strict=True))


@given(points_of, st.integers(1, 20), st.randoms())
def test_the_order_of_ready_partitions_does_not_change_blocks(points, limit, random):
    shuffled = sorted(points)
    random.shuffle(shuffled)
    assert blocks(shuffled, limit) == blocks(points, limit)


def test_two_weeks_of_ten_campaigns_take_the_fewest_possible_runs():
    assert [len(block) for block in blocks([*product(range(14), range(10))], 50)] == [50, 50, 40]
