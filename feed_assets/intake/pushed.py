"""A feed that others push events to, and what is asked of an event before it is accepted.

The rules are those by which a run reads JSON (`spark/json_lines.py`), as far as they can be told from a value: a
partner hears at once what a run would reject. What is accepted is kept as it was sent, byte for byte.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, cast

from feed_assets.core.errors import InvalidEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.schemas import column_types
from feed_assets.core.windows import DAY, step_of

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_DATE = re.compile(_DAY)
_MOMENT = re.compile(rf"{_DAY}[ T]{_CLOCK}(\.[0-9]{{1,6}})?(?P<offset>Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)?")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_BITS = {"tinyint": 8, "byte": 8, "smallint": 16, "short": 16, "int": 32, "integer": 32, "bigint": 64, "long": 64}

Fits = Callable[[Any], bool]


@dataclass(frozen=True)
class PushedFeed:
    """A feed of the receiver, as its definitions declare it.

    Args:
        feed: The feed, of JSON.
        schema: Its columns, in Spark's DDL.
        event_time: The timestamp column by which an event is sorted into an hour.
        first: When its first partition begins (UTC).
        key_format: The form of its hourly partition keys, as `strftime` has it.
        grain: The base grain of its windows, if it has some.
    """

    feed: Feed
    schema: str
    event_time: str
    first: datetime
    key_format: str = "%Y-%m-%d-%H:%M"
    grain: str = DAY

    @cached_property
    def _fits(self) -> Mapping[str, tuple[str, Fits]]:
        return {name: (kind, _fits(kind)) for name, kind in column_types(self.schema)}

    @cached_property
    def _step(self) -> int:
        return int(step_of(self.grain).total_seconds())

    def partition(self, moment: datetime) -> Partition:
        """The hour that a moment (UTC) is in."""
        return Partition(self.feed, moment.replace(minute=0, second=0, microsecond=0).strftime(self.key_format))

    def window(self, event: object, now: datetime, ahead: timedelta) -> int:
        """The start of the window by which an event is counted, in seconds since 1970.

        Raises InvalidEvent, with all that is wrong with it; for its time if that is before the first partition, or
        more than `ahead` later than now.
        """
        if not isinstance(event, dict):
            raise InvalidEvent("malformed: expected one JSON object")
        found, fits = cast(dict[str, Any], event), self._fits
        if wrong := [
            name for name, value in found.items() if name not in fits or not (value is None or fits[name][1](value))
        ]:
            raise InvalidEvent(self._said(wrong))
        text = found.get(self.event_time)
        if text is None:
            raise InvalidEvent(f"{self.event_time}: missing")
        moment = moment_of(text)
        if moment is None:
            raise InvalidEvent(f"{self.event_time}: not a timestamp")
        self._check_time(moment, now, ahead)
        seconds = int(moment.timestamp())
        return seconds - seconds % self._step

    def _said(self, wrong: list[str]) -> str:
        unknown = [name for name in wrong if name not in self._fits]
        said = [f"unknown fields: {', '.join(unknown)}"] if unknown else []
        return "; ".join([*said, *(f"{name}: not a {self._fits[name][0]}" for name in wrong if name in self._fits)])

    def _check_time(self, moment: datetime, now: datetime, ahead: timedelta) -> None:
        if moment < self.first:
            raise InvalidEvent(
                f"{self.event_time}: {moment:%Y-%m-%dT%H:%M:%SZ} is before the feed's first partition, "
                f"{self.first:%Y-%m-%dT%H:%MZ}"
            )
        if moment - now > ahead:
            raise InvalidEvent(
                f"{self.event_time}: {moment:%Y-%m-%dT%H:%M:%SZ} is more than {ahead} ahead of now, "
                f"{now:%Y-%m-%dT%H:%MZ} (FEED_ASSETS_EVENT_HOURS_AHEAD)"
            )


def moment_of(text: object) -> datetime | None:
    """The moment (UTC) that a timestamp's text names, by the forms that a run takes; None for another."""
    found = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found[0])
        return moment.astimezone(UTC) if found["offset"] else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _fits(kind: str) -> Fits:
    """What tells whether a JSON value is one of a declared type."""
    name = re.split(r"[ (]", kind.lower())[0]
    if name in _BITS:
        bound = 1 << (_BITS[name] - 1)
        return lambda value: (
            (type(value) is int or (type(value) is float and value.is_integer())) and -bound <= value < bound
        )
    return _KINDS[name]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_decimal(value: Any) -> bool:
    """How many digits it has is for the run to say: a number's own text is not seen here."""
    return _is_number(value) or (isinstance(value, str) and _DECIMAL.fullmatch(value) is not None)


def _is_day(value: Any) -> bool:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_moment(value: Any) -> bool:
    return moment_of(value) is not None


def _is_local(value: Any) -> bool:
    return isinstance(value, str) and (found := _MOMENT.fullmatch(value)) is not None and not found["offset"]


_KINDS: Mapping[str, Fits] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    **dict.fromkeys(("float", "real", "double"), _is_number),
    **dict.fromkeys(("decimal", "dec", "numeric"), _is_decimal),
    "date": _is_day,
    **dict.fromkeys(("timestamp", "timestamp_ltz"), _is_moment),
    "timestamp_ntz": _is_local,
}
