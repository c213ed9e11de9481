"""Fast check of usual lines, in Rust. A usual line is a flat JSON object whose values have exactly the column types.

This check never rejects an event. If any line is not usual, it returns None. Then `pushed.py` checks each line by
itself. That check accepts more, such as `7.0` as a whole number, and gives the reason if it rejects an event.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as cs

from feed_assets.core.limits import ROW_BYTES
from feed_assets.intake.bodies import VALUES
from feed_assets.intake.numbers import LONG_NUMBER

BITS = {"tinyint": 8, "byte": 8, "smallint": 16, "short": 16, "int": 32, "integer": 32, "bigint": 64, "long": 64}
"""Bits of the integer types."""

FLOAT_MAX = 3.4028234663852886e38
"""The greatest number of the 32-bit type `float`."""

DECIMALS = ("decimal", "dec", "numeric")
"""Names of the decimal types."""

_SPACES = (b"\t", b"\r", b'" ')
"""Signs of whitespace between a key and its colon: a tab, a carriage return, or a quote with a blank after it."""

_OPEN, _CLOSE = ord("{"), ord("}")


class QuickLines:
    """A parser of usual lines.

    `columns` has the type of each column, and `event_time` the name of the column with the event time. `moment` is the
    regular expression of usual event times. For types other than integers, floats and strings, `fits` returns the check
    of their values.
    """

    def __init__(
        self, columns: Mapping[str, str], event_time: str, moment: str, fits: Callable[[str], Callable[[Any], bool]]
    ) -> None:
        fields = {
            name: cs.typed_dict_field(cs.nullable_schema(_schema(kind, fits)), required=False)
            for name, kind in columns.items()
        }
        fields[event_time] = cs.typed_dict_field(cs.str_schema(strict=True, pattern=f"^(?:{moment})$"))
        self._array = SchemaValidator(cs.list_schema(cs.typed_dict_schema(fields, extra_behavior="forbid")))
        self._event_time = event_time
        self._decimals = {name: _long_number(name) for name, kind in columns.items() if _name(kind) in DECIMALS}

    def times(self, lines: Sequence[bytes]) -> list[str] | None:
        """Return the event time of each line as text. Return None if any line is not usual.

        The lines are parsed together as one JSON array of flat objects. No object continues on the next line, because a
        JSON string contains no line break and each line begins with `{`. So each line has at least one object. If there
        are as many objects as lines, each line is exactly one object.
        """
        if not all(line[0] == _OPEN and line[-1] == _CLOSE and len(line) <= ROW_BYTES for line in lines):
            return None
        text = b"[" + b",\n".join(lines) + b"]"
        # Without this limit, the parser would create too many values in memory before it finds an invalid one.
        if text.count(b",") > VALUES:
            return None
        try:
            events: list[dict[str, str]] = self._array.validate_json(text)
        except ValidationError:
            return None
        if len(events) != len(lines) or _may_have_a_key_twice(text, sum(map(len, events))):
            return None
        if any(self._is_long(name, events, text) for name in self._decimals):
            return None
        return [each[self._event_time] for each in events]

    def _is_long(self, name: str, events: Sequence[Mapping[str, Any]], text: bytes) -> bool:
        """Return whether a decimal column may have a number whose digits were lost when it was parsed as a float."""
        if not any(type(each.get(name)) is float for each in events):
            return False
        return b"\\u" in text or self._decimals[name].search(text) is not None


def _long_number(name: str) -> re.Pattern[bytes]:
    return re.compile(rb'"%s": *-?%s' % (re.escape(name.encode()), LONG_NUMBER))


def _may_have_a_key_twice(text: bytes, keys: int) -> bool:
    """Return whether a line may repeat a key. `keys` is the number of keys that the parser returned.

    The parser keeps only the last value of a repeated key. So if a key is repeated, the text has more keys than `keys`.
    """
    return text.count(b'":') != keys or any(space in text for space in _SPACES)


def _name(kind: str) -> str:
    return re.split(r"[ (]", kind.lower())[0]


def _schema(kind: str, fits: Callable[[str], Callable[[Any], bool]]) -> cs.CoreSchema:
    name = _name(kind)
    if name in BITS:
        bound = 1 << (BITS[name] - 1)
        return cs.int_schema(strict=True, ge=-bound, le=bound - 1)
    if name == "string":
        return cs.str_schema(strict=True)
    if name in ("float", "real"):
        return cs.float_schema(strict=True, ge=-FLOAT_MAX, le=FLOAT_MAX)
    if name == "double":
        return cs.float_schema(strict=True, allow_inf_nan=False)
    return cs.no_info_plain_validator_function(_checked(fits(kind)))


def _checked(fits: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not fits(value):
            raise ValueError("it is of another type")
        return value

    return checked
