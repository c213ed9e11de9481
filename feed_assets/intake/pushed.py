"""A feed to which partners push events, and the checks of an event before it is accepted.

The rules are the same as those of a Spark run that reads JSON (`spark/json_lines.py`), so the partner sees at once what
a run would reject. Accepted events are kept byte for byte.
"""

import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from typing import Any, cast

from feed_assets.core.errors import InvalidEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import with_article
from feed_assets.core.schemas import column_types
from feed_assets.core.windows import DAY, step_of
from feed_assets.intake.fast_lines import BITS, DECIMALS, FLOAT_MAX, QuickLines
from feed_assets.intake.numbers import Number, decimal, is_whole

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_DATE = re.compile(_DAY)
_OFFSET = "Z|[+-](0[0-9]|1[0-7])(:?[0-5][0-9])?|[+-]18(:?00)?"  # Spark runs accept no greater offset.
_LOCAL = rf"{_DAY}[ T]{_CLOCK}(\.[0-9]{{1,6}})?"
_IN_UTC = rf"{_LOCAL}(Z|\+00:00)?"
_MOMENT = re.compile(rf"{_LOCAL}(?P<offset>{_OFFSET})?")
_DECIMAL = re.compile(r"\w+ ?(?:\( ?(\d+) ?(?:, ?(\d+) ?)?\))?")

Fits = Callable[[Any], bool]


@dataclass(frozen=True)
class PushedFeed:
    """A feed of the receiver, as declared by the definitions.

    Args:
        feed: The feed. Its format is JSON.
        schema: Its columns, in Spark's DDL.
        event_time: The timestamp column that decides an event's hour.
        first: The beginning of its first partition (UTC).
        key_format: The `strftime` format of its hourly partition keys.
        grain: The base grain of its windows, if it has windows.
        source: The partner that pushes, if the feed has a separate partition for each hour and partner.
    """

    feed: Feed
    schema: str
    event_time: str
    first: datetime
    key_format: str = "%Y-%m-%d-%H:%M"
    grain: str = DAY
    source: str = ""

    @property
    def name(self) -> str:
        """Return the name in the URL to which partners push events."""
        return f"{self.feed}/{self.source}" if self.source else str(self.feed)

    @cached_property
    def _columns(self) -> Mapping[str, "_Column"]:
        columns = {name: _column(kind) for name, kind in column_types(self.schema)}
        # `window` parses the event time itself, from the text.
        return {**columns, self.event_time: _Column("timestamp", _TEXT)}

    @cached_property
    def _quick(self) -> QuickLines:
        return QuickLines(dict(column_types(self.schema)), self.event_time, _IN_UTC, lambda kind: _column(kind).has)

    @cached_property
    def _step(self) -> int:
        return int(step_of(self.grain).total_seconds())

    @cached_property
    def _first(self) -> float:
        return self.first.timestamp()

    @cached_property
    def _keys(self) -> dict[int, str]:
        return {}

    def key(self, start: int) -> str:
        """Return the key of the hourly partition that contains a window. `start` is in seconds since 1970."""
        hour = start - start % 3600
        if hour not in self._keys:
            moment = datetime.fromtimestamp(hour, UTC)
            path = f"{moment.strftime(self.key_format)}/{self.source}".rstrip("/")
            self._keys[hour] = Partition(self.feed, path).key
        return self._keys[hour]

    def windows(self, lines: Sequence[bytes], latest: float) -> list[int] | None:
        """Return the start of each line's window in seconds since 1970, faster than `window` does.

        Return None if a line is unusual or may be invalid.
        """
        texts = self._quick.times(lines)
        if texts is None:
            return None
        minutes = [text[:16] for text in texts]
        starts = self._starts({*minutes}, latest)
        return None if starts is None else [starts[minute] for minute in minutes]

    def _starts(self, minutes: Collection[str], latest: float) -> dict[str, int] | None:
        """Return the window start of each minute.

        Return None if a minute is invalid, before the first partition, or not entirely before `latest`. Then some event
        may have to be rejected, so the caller must check each event by `window`.
        """
        firsts = {minute: first for minute in minutes if (first := _minute(minute, "Z")) is not None}
        if len(firsts) < len(minutes) or min(firsts.values()) < self._first or max(firsts.values()) > latest - 60:
            return None
        return {minute: first - first % self._step for minute, first in firsts.items()}

    def window(self, event: object, latest: float, broken: str = "") -> int:
        """Return the start, in seconds since 1970, of the window that counts an event.

        Raise InvalidEvent if the event is invalid. The error has the reason `broken`, if the text could not be parsed.
        Otherwise the error has all problems of the event's values, or else the problem of the event time. The event
        time must be between the beginning of the first partition and `latest`.
        """
        if broken or not isinstance(event, dict):
            raise InvalidEvent(broken or "malformed: expected one JSON object")
        fields, columns = cast(dict[str, Any], event), self._columns
        for name, value in fields.items():
            column = columns.get(name)
            if column is None or not (type(value) in column.types or column.has(value)):
                raise InvalidEvent(self._problems(fields))
        text = fields.get(self.event_time)
        if text is None:
            raise InvalidEvent(f"{self.event_time}: missing")
        seconds = seconds_of(text)
        if seconds is None or not self._first <= seconds <= latest:
            raise InvalidEvent(self._time_problem(seconds, latest))
        return seconds - seconds % self._step

    def _problems(self, event: Mapping[str, Any]) -> str:
        """Return all problems of an event's fields and their values."""
        unknown = [name for name in event if name not in self._columns]
        problems = [f"unknown fields: {', '.join(unknown)}"] if unknown else []
        for name, column in self._columns.items():
            if not column.has(event.get(name)):
                problems.append(f"{name}: not {with_article(column.kind)}")
        return "; ".join(problems)

    def _time_problem(self, seconds: int | None, latest: float) -> str:
        if seconds is None:
            return f"{self.event_time}: not a timestamp"
        if seconds < self._first:
            first = f"{self.first:%Y-%m-%dT%H:%MZ}"
            return f"{self.event_time}: {_moment_text(seconds)} is before the feed's first partition, {first}"
        return (
            f"{self.event_time}: {_moment_text(seconds)} is ahead of {_moment_text(latest)}, the latest allowed "
            "(FEED_ASSETS_EVENT_HOURS_AHEAD)"
        )


def _moment_text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def seconds_of(text: str) -> int | None:
    """Return the whole seconds since 1970 of a timestamp's text. Return None if Spark runs do not accept its form."""
    match = _MOMENT.fullmatch(text)
    minute = _minute(text[:16], match["offset"] or "Z") if match else None
    return None if minute is None else minute + int(text[17:19])


@lru_cache(maxsize=65_536)  # Many events of a batch share a minute.
def _minute(text: str, offset: str) -> int | None:
    try:
        return int(datetime.fromisoformat(f"{text}{offset}").astimezone(UTC).timestamp())
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class _Column:
    """The declared type of a column: the Python types that always fit it, and a check for values of other types."""

    kind: str
    types: frozenset[type]
    fits: Fits | None = None

    def has(self, value: Any) -> bool:
        """Return whether a value is None, or a value of the column's type."""
        return type(value) in self.types or (self.fits is not None and self.fits(value))


_NOTHING, _TEXT = frozenset({type(None)}), frozenset({type(None), str})


def _column(kind: str) -> _Column:
    name = re.split(r"[ (]", kind.lower())[0]
    if name in BITS:
        bound = 1 << (BITS[name] - 1)
        return _Column(kind, _NOTHING, lambda value: is_whole(value, bound))
    if name in DECIMALS and (digits := _DECIMAL.fullmatch(kind)):
        return _Column(kind, _NOTHING, decimal(int(digits[1] or 10), int(digits[2] or 0)))
    types, fits = _KINDS[name]
    return _Column(kind, types, fits)


def _below(bound: float) -> Fits:
    """Return a check that a number is finite and within this bound."""

    def fits(value: Any) -> bool:
        return type(value) in (int, float, Number) and -bound <= value <= bound

    return fits


def _is_day(value: Any) -> bool:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_moment(value: Any) -> bool:
    return isinstance(value, str) and seconds_of(value) is not None


def _is_local(value: Any) -> bool:
    return _is_moment(value) and (match := _MOMENT.fullmatch(value)) is not None and not match["offset"]


_KINDS: Mapping[str, tuple[frozenset[type], Fits | None]] = {
    "string": (_TEXT, None),
    "boolean": (frozenset({type(None), bool}), None),
    **dict.fromkeys(("float", "real"), (_NOTHING, _below(FLOAT_MAX))),
    "double": (_NOTHING, _below(sys.float_info.max)),
    "date": (_NOTHING, _is_day),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), (_NOTHING, _is_moment)),
    "timestamp_ntz": (_NOTHING, _is_local),
}
