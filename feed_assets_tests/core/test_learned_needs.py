"""Resources that are learned: when a run gets more than its dataset declares."""

from feed_assets.core.allotment import possible
from feed_assets.core.learned_needs import LEAST, Cost, learned
from feed_assets.core.resources import Amount, Resources
from feed_assets.core.target_room import Room
from feed_assets_tests.support.each_case import each_case

GIB = 1 << 30
DECLARED = Resources(cores=2, memory="4g", learned=True)
LINEAR = [Cost(size * GIB, 10.0 + 100.0 * size) for size in (1, 1, 2, 2, 2, 3, 4)]
"""Runs that take 10 core-seconds, and 100 more for each GiB. The usual one reads 2 GiB and takes 210."""

FLAT = [Cost(size * GIB, 60.0 + size % 2) for size in (1, 2, 3, 4, 5)]
ONE_SLOW = [*LINEAR[:-1], Cost(1 * GIB, 50_000.0)]


@each_case(
    ("declared", "gib", "costs", "cores"),
    [
        (DECLARED, 2, LINEAR, 2),
        (DECLARED, 8, LINEAR, 8),  # 810 of 210 core-seconds: 7.7 cores
        (DECLARED, 1, LINEAR, 2),  # never less than declared
        (DECLARED, 100, FLAT, 2),  # more input does not take longer
        (DECLARED, 8, LINEAR[: LEAST - 1], 2),
        (DECLARED, 8, ONE_SLOW, 8),
        (DECLARED, 8, [Cost(GIB, 0.0)] * LEAST, 2),
        (DECLARED, 8, [Cost(GIB, 60.0)] * LEAST, 2),  # nothing is known about more input
        (Resources(cores=2, memory="4g"), 8, LINEAR, 2),
    ],
)
def test_more_input_gets_more_cores_as_far_as_earlier_runs_took_longer_with_more(declared, gib, costs, cores):
    found = learned(declared, gib * GIB, costs)
    assert (found.resources.cores, found.resources.amount.memory) == (cores, cores * 2 * GIB)
    assert bool(found.why) == (cores > 2)


def test_cores_grow_by_no_more_than_the_input_although_idle_cores_count_as_cost():
    costs, cores = LINEAR, list[int]()
    for _ in range(2 * len(LINEAR)):
        cores.append(learned(DECLARED, 8 * GIB, costs).resources.cores)
        costs = [*costs[1:], Cost(8 * GIB, 100.0 * cores[-1])]  # No further core makes the run faster.
    assert max(cores) == 8
    assert cores[-1] == 2  # Now this is the usual input.


@each_case(
    ("totals", "cores"),
    [
        ({"a": Amount(16, 64 * GIB)}, 8),
        ({"a": Amount(6, 64 * GIB), "b": Amount(5, 64 * GIB)}, 6),
        ({"a": Amount(16, 10 * GIB)}, 5),
        ({"a": Amount(1, GIB)}, 2),
        ({}, 2),
    ],
)
def test_what_is_learned_is_no_more_than_the_largest_open_target_has(totals, cores):
    needed = learned(DECLARED, 8 * GIB, LINEAR).resources
    rooms = {name: Room(total, total) for name, total in totals.items()}
    rooms["away"] = Room(Amount(99, 99 * GIB), Amount(99, 99 * GIB), closed="offline")
    assert possible(needed, DECLARED, rooms).cores == cores
