"""Conversion of a run's values to JSON and back, for a job that makes the run's rows elsewhere.

Only values of the types that are listed here can be read back.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from typing import Any

from feed_assets.core.feeds import Feed, File, Partition, Update, Version
from feed_assets.core.plans import Plan, RunSpec
from feed_assets.core.slices import Slice
from feed_assets.core.spans import Span
from feed_assets.core.windows import Window
from feed_assets.core.write_result import Written
from feed_assets.runs.checks import Check
from feed_assets.runs.maker import Audit
from feed_assets.runs.outcomes import CheckResult

_RECORDS: tuple[type[Any], ...] = (
    *(Feed, File, Partition, Update, Version, Plan, RunSpec),
    *(Slice, Span, Window, Written, Audit, CheckResult),
)
_BY_NAME = {each.__name__: each for each in _RECORDS}
_TYPE = "type"
"""The key whose value says how to read a JSON object. All JSON objects here have this key."""

_MOMENTS: dict[str, type[date]] = {"datetime": datetime, "date": date}
_MANY: dict[str, Any] = {"tuple": tuple, "list": list, "set": frozenset, "map": dict}


def encoded(value: object) -> Any:
    """Return a value as JSON. A check becomes its name. A value of an unlisted type becomes text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Check):
        return {_TYPE: "check", "name": value.name}
    if isinstance(value, datetime | date):
        return {_TYPE: type(value).__name__, "at": value.isoformat()}
    if isinstance(value, _RECORDS):
        return {_TYPE: type(value).__name__, **{name: encoded(getattr(value, name)) for name in _names(type(value))}}
    return _collection(value)


def _collection(value: object) -> Any:
    if isinstance(value, Mapping):
        return {_TYPE: "map", "items": [[encoded(key), encoded(each)] for key, each in value.items()]}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    for name, kind in (("tuple", tuple), ("set", Set), ("list", Sequence)):
        if isinstance(value, kind) and not isinstance(value, bytes):
            return {_TYPE: name, "items": [encoded(each) for each in value]}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)


def decoded(value: Any, checks: Mapping[str, Check]) -> Any:
    """Return the value of some JSON that `encoded` made. `checks` has the recipe's checks by name.

    Raise InvalidName, LookupError, TypeError or ValueError for other JSON.
    """
    if not isinstance(value, dict):
        return value
    parts: dict[str, Any] = {**value}
    kind = parts.pop(_TYPE)
    if kind == "check":
        return checks[parts["name"]]
    if kind in _MOMENTS:
        return _MOMENTS[kind].fromisoformat(parts["at"])
    if kind in _MANY:
        items = [
            [decoded(each, checks) for each in item] if kind == "map" else decoded(item, checks)
            for item in parts["items"]
        ]
        return _MANY[kind](items)
    return _BY_NAME[kind](**{name: decoded(each, checks) for name, each in parts.items()})


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else kind._fields
