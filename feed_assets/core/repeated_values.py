"""Values that are given more than once."""

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def first_repeated(values: Iterable[T]) -> T:
    """Return the first value that has occurred before. Raise StopIteration if all are distinct."""
    before = set[T]()
    return next(value for value in values if value in before or before.add(value))
