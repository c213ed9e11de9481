"""Blocks of partitions that one run can be requested for, by the ends of a range in each dimension."""

from collections.abc import Collection, Iterator
from itertools import permutations, product
from math import prod

Point = tuple[int, ...]
"""A partition by its place in each dimension; neighbours differ by one in one of them."""


def blocks(points: Collection[Point], limit: int) -> list[list[Point]]:
    """Return disjoint rectangles that hold these points and no others, of at most `limit` points each.

    Each begins at the least point that is left, and is the largest that grows from it in any order of dimensions.
    Fewer rectangles may be possible; finding the fewest takes too long.
    """
    remaining, rectangles = {*points}, list[list[Point]]()
    for corner in sorted(remaining):
        if corner in remaining:
            rectangles.append(max(_grown(remaining, corner, limit), key=len))
            remaining.difference_update(rectangles[-1])
    return rectangles


def _grown(free: set[Point], corner: Point, limit: int) -> Iterator[list[Point]]:
    """Yield the rectangle at a corner for each order in which its dimensions may grow: at least one."""
    for order in permutations(range(len(corner))):
        sides = [1] * len(corner)
        for axis in order:
            while _may_grow(free, corner, sides, axis, limit):
                sides[axis] += 1
        yield [*_rectangle(corner, sides)]


def _may_grow(free: set[Point], corner: Point, sides: list[int], axis: int, limit: int) -> bool:
    """Return whether the rectangle may grow by one along an axis: within `limit`, and all new points are free."""
    beside, layer = [*corner], [*sides]
    beside[axis] += sides[axis]
    layer[axis] = 1
    return prod(sides) + prod(layer) <= limit and free.issuperset(_rectangle(tuple(beside), layer))


def _rectangle(corner: Point, sides: list[int]) -> Iterator[Point]:
    return product(*(range(at, at + side) for at, side in zip(corner, sides, strict=True)))
