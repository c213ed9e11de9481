"""JSON numbers that keep their text. Spark runs check the digits of `1e2`, `7.0` or `1.505`, which a float loses."""

import re
from collections.abc import Callable
from typing import Any

DIGITS = 38
"""The most digits of a number that a Spark run reads exactly. It reads a longer number as a double."""

LONG_NUMBER = rb"(?:[0-9.]{17}|[0-9.]+[eE])"
"""Pattern of numbers that a float might not represent exactly."""

_PLAIN = re.compile(r"-?0*([0-9]*)(?:\.([0-9]*))?")


class Number(float):
    """A number with a point or an exponent, and its text."""

    text: str

    def __new__(cls, text: str) -> "Number":
        """Create a number from its text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def is_whole(value: Any, bound: int) -> bool:
    """Return whether a number is an integer from `-bound` to `bound - 1`. It may be written `7` or `7.0`, not `7e0`."""
    if type(value) is not int:
        digits = _digits(_text_of(value)) if isinstance(value, float) else None
        if digits is None or digits[1].strip("0"):
            return False
    return -bound <= value < bound


def _text_of(value: float) -> str:
    return value.text if isinstance(value, Number) else repr(value)


def decimal(precision: int, scale: int) -> Callable[[Any], bool]:
    """Return a check that a number, or a text, fits the type `decimal(precision,scale)`."""

    def fits(value: Any) -> bool:
        if isinstance(value, str):
            match = _PLAIN.fullmatch(value) if _IS_DECIMAL.fullmatch(value) else None
            digits = (match[1], match[2] or "") if match else None
        elif isinstance(value, float):
            digits = _digits(_text_of(value))
        else:
            is_number = type(value) is int and abs(value) < _TOO_LONG
            digits = _digits(str(value)) if is_number else None
        return digits is not None and len(digits[0]) <= precision - scale and len(digits[1].rstrip("0")) <= scale

    return fits


_TOO_LONG = 10**DIGITS
_IS_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _digits(text: str) -> tuple[str, str] | None:
    """Return the digits before the point, without leading zeros, and the digits after it.

    Return None if a Spark run would read the number as a double.
    """
    match = _PLAIN.fullmatch(text)
    before, after = (match[1], match[2] or "") if match else ("", "")
    return (before, after) if match and len(before) + len(after) <= DIGITS else None
