"""Conversion of rows to write events. The rows are from event tables that others own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from feed_assets.core.errors import InvalidEvent, InvalidName
from feed_assets.core.events import Marker, Operation, Rejected, WriteEvent, check_event, parse_marker
from feed_assets.core.limits import as_text, check_correlation
from feed_assets.core.typed import typed

_MARKER_DIGITS = 19
"""The most digits of a marker that is a number: 2^63 - 1 has 19 digits. `int` of a million digits takes seconds."""


@typed
@dataclass(frozen=True)
class Constant:
    """A fact about events that is the same for every row of a source. It is given in place of a column's name.

    Args:
        value: The value.

    Raises:
        InvalidDefinition: The value is not a text.
    """

    value: str


@typed
@dataclass(frozen=True)
class Columns:
    """The column for each fact about an event: a name, None for a missing fact, or a `Constant` for all rows.

    Args:
        table_name: The table that was written to.
        marker: A moment (UTC if it has no zone), or a version, which is a whole number of 0 or more.
        event_marker: The event's own time. If it is missing, the marker is used.
        correlation_id: The id of the update that travels through the pipeline.
        write_operation: A name in `Operation`, in upper or lower case. If it is missing, UPSERT is used.
        partition_key: The partition that was written. If it is missing, `''` is used, which means no partition.
        context: A JSON object or its text. If it is missing, `{}` is used.
        others_in_context: Whether all other columns go into the context, under their own names.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    table_name: str | Constant = "table_name"
    marker: str = "marker"
    event_marker: str | None = "event_marker"
    correlation_id: str = "correlation_id"
    write_operation: str | Constant | None = "write_operation"
    partition_key: str | None = "partition_key"
    context: str | None = "context"
    others_in_context: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """Return the names of the columns that a row of events must have."""
        optional = (self.event_marker, self.write_operation, self.partition_key, self.context)
        every = (self.table_name, self.marker, self.correlation_id, *optional)
        return tuple(dict.fromkeys(each for each in every if isinstance(each, str)))

    def read(self, row: Mapping[str, Any]) -> WriteEvent | Rejected:
        """Return the event of a row. If the row is invalid, return it as Rejected, with the reason."""
        try:
            event = self._event(row)
            check_event(event)
        except (InvalidEvent, InvalidName, ValueError, OverflowError, RecursionError) as error:
            return Rejected(as_text(row), str(error))
        return event

    def _event(self, row: Mapping[str, Any]) -> WriteEvent:
        marker = _marker(row, self.marker)
        return WriteEvent(
            table_name=_text(row, self.table_name),
            marker=marker,
            event_marker=marker if _value(row, self.event_marker) is None else _marker(row, self.event_marker),
            correlation_id=_correlation(row, self.correlation_id),
            write_operation=_operation(row, self.write_operation),
            partition_key=_text(row, self.partition_key),
            context={**self._other_columns(row), **_context(row, self.context)},
        )

    def _other_columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if not self.others_in_context:
            return {}
        values = {name: value for name, value in row.items() if name not in self.named and value is not None}
        return json.loads(json.dumps(values, default=str))


def _value(row: Mapping[str, Any], column: str | Constant | None) -> Any:
    """Return the value of one fact about an event from its column. Return None for '', which is how CSV writes NULL."""
    if column is None or isinstance(column, Constant):
        return column.value if column else None
    return None if row.get(column) == "" else row.get(column)


def _text(row: Mapping[str, Any], column: str | Constant | None) -> str:
    value = _value(row, column)
    return "" if value is None else str(value)


def _correlation(row: Mapping[str, Any], column: str) -> str:
    text = _text(row, column)
    try:
        check_correlation(text)
    except InvalidEvent as error:
        raise InvalidEvent(f"column {column}: {error}") from None
    return text


def _operation(row: Mapping[str, Any], column: str | Constant | None) -> Operation:
    text = _text(row, column) or Operation.UPSERT
    try:
        return Operation(text.strip().upper())
    except ValueError:
        expected = ", ".join(Operation)
        raise InvalidEvent(
            f"column {column}: found {text!r}, expected one of {expected}, in upper or lower case."
        ) from None


def _context(row: Mapping[str, Any], column: str | None) -> dict[str, Any]:
    value = _value(row, column)
    try:
        context: Any = {} if value is None else _loaded(value)
    except (ValueError, TypeError, RecursionError):
        context = None
    if not isinstance(context, dict):
        raise InvalidEvent(f"column {column}: found {str(value)[:80]!r}, expected a JSON object.")
    return cast(dict[str, Any], context)


def _loaded(value: Any) -> Any:
    """Return the content of a JSON text. Convert a mapping to JSON and back, so that it has only JSON's types."""
    text = json.dumps(cast(Mapping[str, Any], value), default=str) if isinstance(value, Mapping) else value
    return json.loads(text)


def _marker(row: Mapping[str, Any], column: str | None) -> Marker:
    try:
        marker = as_marker(_value(row, column))
    except InvalidEvent as error:
        raise InvalidEvent(f"column {column}: {error}") from None
    return marker


def as_marker(value: Any) -> Marker:
    """Return the marker of a value from a database or file; naive moments are UTC. Raise InvalidEvent if invalid."""
    if isinstance(value, str):
        return parse_marker(value)
    if isinstance(value, Decimal) and value.is_finite():
        if value.adjusted() >= _MARKER_DIGITS:
            raise InvalidEvent(f"found a number of {value.adjusted() + 1} digits, expected at most {_MARKER_DIGITS}.")
        if value == value.to_integral_value():
            return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, date) and not getattr(value, "nanosecond", 0):  # A datetime is also a date.
        moment = datetime.fromisoformat(value.isoformat())
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise InvalidEvent(f"found {value!r:.80}, expected a whole number, or a moment of whole microseconds.")
