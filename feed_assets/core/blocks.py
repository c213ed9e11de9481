"""Blocks of partitions for one run each: a block is a range of keys in every dimension."""

from collections.abc import Collection, Iterator
from itertools import permutations, product
from math import prod

Point = tuple[int, ...]
"""A partition as its index in each dimension. Neighbouring partitions differ by one in one dimension."""


def blocks(points: Collection[Point], limit: int) -> list[list[Point]]:
    """Split points into disjoint rectangles of at most `limit` points each.

    Each rectangle starts at the least remaining point. It is grown in every order of the dimensions, and the largest
    result is taken. There may be more rectangles than necessary, because finding the minimum takes too long.
    """
    remaining, rectangles = {*points}, list[list[Point]]()
    for corner in sorted(remaining):
        if corner in remaining:
            rectangles.append(max(_grown(remaining, corner, limit), key=len))
            remaining.difference_update(rectangles[-1])
    return rectangles


def _grown(free: set[Point], corner: Point, limit: int) -> Iterator[list[Point]]:
    """Yield the rectangle at a corner for each order in which its dimensions can grow."""
    for order in permutations(range(len(corner))):
        sides = [1] * len(corner)
        for axis in order:
            while _may_grow(free, corner, sides, axis, limit):
                sides[axis] += 1
        yield [*_rectangle(corner, sides)]


def _may_grow(free: set[Point], corner: Point, sides: list[int], axis: int, limit: int) -> bool:
    """Return whether a rectangle can grow by one along an axis: it keeps to `limit`, and all new points are free."""
    beside, layer = [*corner], [*sides]
    beside[axis] += sides[axis]
    layer[axis] = 1
    return prod(sides) + prod(layer) <= limit and free.issuperset(_rectangle(tuple(beside), layer))


def _rectangle(corner: Point, sides: list[int]) -> Iterator[Point]:
    return product(*(range(at, at + side) for at, side in zip(corner, sides, strict=True)))
