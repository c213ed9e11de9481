"""Reports that other programs send: one JSON object per line, of kind `part`, `source`, `quality` or `backfill`.

Source: the example in "Data Dependency Driven Orchestration", which reports record count and Kafka offsets of a part.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from reprlib import repr as brief
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from feed_assets.core.completeness import INGESTED
from feed_assets.core.errors import FeedAssetsError, InvalidDefinition, InvalidEvent, InvalidReport
from feed_assets.core.events import LAST_VERSION, encode, parse_marker
from feed_assets.core.feeds import Feed, Partition, check_segment
from feed_assets.core.limits import (
    CONTEXT_BYTES,
    NAME_BYTES,
    REASON_BYTES,
    REJECT_BYTES,
    ROW_BYTES,
    check_partition,
    excerpt,
)
from feed_assets.core.repeated_values import first_repeated
from feed_assets.core.reports import FOLDED, INPUTS, NO_VERSION, Report, key_of, window_named
from feed_assets.core.sub_partitions import text_of
from feed_assets.core.windows import FIRST_YEAR, LAST_YEAR, minutes_of

PART_BYTES = 1100
"""Maximum number of UTF-8 bytes of a part's name. It has room for an S3 key of 1,024 bytes after the bucket's name."""
_NAME_SHOWN = 200
_VALUE_SHOWN = 60
_JSON = {"dict_type": "an object", "model_type": "an object", "list_type": "a list"}
_LONGEST_KEY = "10min@2026-01-01-15:00"
_KEPT_NOWHERE = re.compile("[\\0\ud800-\udfff]")


@dataclass(frozen=True)
class QualityReport:
    """The result of a check of one window: `passed`, `warned` or `failed`, and why."""

    dataset: Feed
    sub_partition: str
    grain: str
    start: datetime
    check: str
    state: str
    reason: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class BackfillReport:
    """The state of one window's backfill (`started`, `done`, or `failed` if it was given up), and the reason."""

    dataset: Feed
    sub_partition: str
    grain: str
    start: datetime
    state: str
    reason: str


def parse_report(line: str) -> tuple[Report, ...] | QualityReport | BackfillReport:
    """Parse a line that another program sent. A source's line without `part` becomes one report for each window.

    Raise InvalidReport, and no other error, for a text that is not a report.
    """
    try:
        fields = _loaded(line)
        kind = fields.pop("kind", None)
        if not isinstance(kind, str) or kind not in _KINDS:
            raise InvalidReport(f"kind: found {_as_sent(kind)}, expected one of {', '.join(_KINDS)}.")
        return _KINDS[kind].model_validate(fields).reports()
    except ValidationError as error:
        raise InvalidReport(_in_words(error)) from None
    except FeedAssetsError as error:
        raise InvalidReport(str(error)) from None
    except RecursionError:
        raise InvalidReport("found objects or lists that are nested too deeply, expected a report.") from None


def _loaded(line: str) -> dict[str, Any]:
    if len(line) > ROW_BYTES:
        raise InvalidReport(f"found {len(line)} characters, expected at most {ROW_BYTES} on a line.")
    try:
        loaded = json.loads(line, parse_constant=_refuse, object_pairs_hook=_once)
    except ValueError as error:  # The line is not JSON, or contains a number with thousands of digits.
        raise InvalidReport(f"found {brief(line)}, expected a JSON object on one line: {error}.") from None
    if not isinstance(loaded, dict):
        raise InvalidReport(f"found {brief(line)}, expected a JSON object on one line.")
    return cast(dict[str, Any], loaded)


def _refuse(name: str) -> None:
    raise InvalidReport(f"found {name}, expected a JSON number.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise InvalidReport(
            f"found {brief(first_repeated(name for name, _ in pairs))} twice in an object, expected it once."
        )
    return unique


def _text(limit: int, *, has_lines: bool = False) -> AfterValidator:
    """Return a rule for texts of up to `limit` bytes. Unless `has_lines`, a text must be printable and not empty."""

    def check(text: str) -> str:
        is_kept = not _KEPT_NOWHERE.search(text) if has_lines else text.isprintable() and text != ""
        if not is_kept or len(text.encode()) > limit:
            raise ValueError(f"{'a text' if has_lines else 'printable characters'} of up to {limit} bytes in UTF-8")
        return text

    return AfterValidator(check)


def _moment(value: Any) -> datetime:
    """Parse a moment, and return it in UTC. A text without a time zone is read as UTC, like a marker."""
    try:
        marker = parse_marker(value) if isinstance(value, str) else None
        moment = marker.astimezone(UTC) if isinstance(marker, datetime) else None
    except (InvalidEvent, OverflowError):
        moment = None
    if moment is None or not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"a moment in the years {FIRST_YEAR} to {LAST_YEAR}, such as 2026-01-01T15:55:00Z")
    return moment


def _start(moment: datetime) -> datetime:
    if moment.second or moment.microsecond:
        raise ValueError("the start of a window, on a whole minute")
    return moment


def _version(value: Any) -> str:
    """Return a version as text. The texts sort in the order of the versions."""
    try:
        marker = parse_marker(value) if isinstance(value, str) else value
        if isinstance(marker, datetime) or (type(marker) is int and marker <= LAST_VERSION):
            return encode(marker)
    except InvalidEvent:
        pass
    raise ValueError(f"a whole number from 0 to {LAST_VERSION}, or a moment such as 2026-01-01T15:55:00Z")


def _grain(text: str) -> str:
    try:
        minutes_of(text)
    except InvalidDefinition:
        raise ValueError("minutes that divide an hour, such as 5min, or hour or day") from None
    return text


def _not_folded(part: str) -> str:
    if part == FOLDED:
        raise ValueError("another name: this one is reserved for the row into which old parts are merged")
    return part


def _not_ours(check: str) -> str:
    if check == INPUTS:
        raise ValueError("another name: this check is computed from lineage and cannot be reported")
    return check


def _bounds(offsets: list[int]) -> list[int]:
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError("two offsets, the first not greater than the second")
    return offsets


_W = TypeVar("_W", bound="_WindowCount")


def _each_once(windows: "list[_W]") -> "list[_W]":
    if len({each.start for each in windows}) < len(windows):
        twice = first_repeated(each.start for each in windows)
        raise ValueError(f"each window once, but {twice:%Y-%m-%dT%H:%M}Z occurs twice")
    return windows


Count = Annotated[int, Field(ge=0, le=LAST_VERSION)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Start = Annotated[Moment, AfterValidator(_start)]
Name = Annotated[str, _text(NAME_BYTES)]
_number = BeforeValidator(lambda value: str(value) if type(value) is int else value)
Id = Annotated[Name, _number]
Schema = Annotated[str, _number, _text(CONTEXT_BYTES, has_lines=True)]
Part = Annotated[str, _text(PART_BYTES), AfterValidator(_not_folded)]
Offset = Annotated[int, Field(ge=0, lt=LAST_VERSION)]
Offsets = Annotated[list[Offset], AfterValidator(_bounds)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class _WindowCount(_Model):
    start: Start
    records: Count


class _SourceWindow(_WindowCount):
    offsets: dict[Name, Offsets] | None = None


Windows = Annotated[list[_WindowCount], AfterValidator(_each_once)]
SourceWindows = Annotated[list[_SourceWindow], AfterValidator(_each_once)]


class _Line(_Model):
    """Common fields of reports of a part, source or check."""

    dataset: Name
    sub_partition: dict[Name, Name] = {}
    version: Annotated[str, BeforeValidator(_version)] = NO_VERSION
    records: Count | None = None
    first: Moment | None = Field(None, alias="min")
    last: Moment | None = Field(None, alias="max")
    snapshot: Id | None = None
    batch: Id | None = None
    schema_: Schema | None = Field(None, alias="schema")

    @model_validator(mode="after")
    def _begins_before_it_ends(self) -> Self:
        if self.first and self.last and self.first > self.last:
            first, last = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (self.first, self.last))
            raise InvalidReport(f"min: found {first}, which is after max, {last}: expected an earlier one.")
        return self


class _Part(_Line):
    """Counts of ingested records."""

    windows: Windows
    part: Part
    offsets: dict[Name, Offsets] | None = None

    def reports(self) -> tuple[Report, ...]:
        """Return the report of this line, in a tuple of one."""
        return (_report(self, INGESTED, self.part, self.windows, _dumped(self.offsets)),)


class _Source(_Line):
    """Counts of a source's records."""

    windows: SourceWindows
    tier: Annotated[str, AfterValidator(lambda text: check_segment(text, "tier"))]
    part: Part | None = None
    offsets: dict[Name, Offsets] | None = None

    def reports(self) -> tuple[Report, ...]:
        """Return one report if the line names a part, otherwise one report for each window.

        The reports of windows do not have the total number of records, nor the first and last event time.
        """
        offsets = self._offsets()
        if self.part is not None:
            by_window = [[key_of(start), offsets[start]] for start in sorted(offsets)]
            text = json.dumps(by_window, sort_keys=True) if by_window else _dumped(self.offsets)
            return (_report(self, self.tier, self.part, self.windows, text),)
        if not self.windows:
            raise InvalidReport("windows: found none, expected at least one window, or the name of a part.")
        alone = self.model_copy(update={"records": None, "first": None, "last": None})
        return tuple(
            _report(
                alone, self.tier, window_named(each.start), [each], _dumped(offsets.get(each.start) or self.offsets)
            )
            for each in self.windows
        )

    def _offsets(self) -> dict[datetime, dict[str, list[int]]]:
        """Return the offsets of each window that has offsets of its own.

        Raise InvalidReport for common offsets if a window has its own, or if the line has several windows and no part.
        """
        offsets_by_window = {each.start: each.offsets for each in self.windows if each.offsets}
        if self.offsets and (offsets_by_window or (self.part is None and len(self.windows) > 1)):
            raise InvalidReport(
                "offsets: found one field for several windows, expected the field inside each window, such as "
                '{"start": "2026-01-01T15:55:00Z", "records": 1234, "offsets": {"0": [10, 20]}}.'
            )
        return offsets_by_window


class _Quality(_Line):
    """The result of a check of one window."""

    grain: Annotated[str, AfterValidator(_grain)]
    start: Start
    check: Annotated[Name, AfterValidator(_not_ours)]
    state: Literal["passed", "warned", "failed"]
    reason: Annotated[str, _text(REJECT_BYTES, has_lines=True)] | None = None

    def reports(self) -> QualityReport:
        """Return the quality report of the line."""
        version = self.version if "version" in self.model_fields_set else None
        return QualityReport(
            *_place(self),
            grain=self.grain,
            start=self.start,
            check=self.check,
            state=self.state,
            reason=self.reason,
            version=version,
        )


class _Backfill(_Model):
    """The state of a window's backfill."""

    dataset: Name
    sub_partition: dict[Name, Name] = {}
    grain: Annotated[str, AfterValidator(_grain)]
    start: Start
    state: Literal["started", "done", "failed"]
    reason: Annotated[str, _text(REASON_BYTES)]

    def reports(self) -> BackfillReport:
        """Return the backfill report of the line."""
        return BackfillReport(*_place(self), self.grain, self.start, self.state, self.reason)


_KINDS: dict[str, type[_Part | _Source | _Quality | _Backfill]] = {
    "part": _Part,
    "source": _Source,
    "quality": _Quality,
    "backfill": _Backfill,
}


def _place(line: "_Line | _Backfill") -> tuple[Feed, str]:
    """Return the dataset and sub-partition that a line names. Raise InvalidName if either is malformed or too long."""
    dataset, below = Feed.parse(line.dataset), text_of(line.sub_partition)
    check_partition(Partition(dataset, f"{_LONGEST_KEY}/{below}" if below else _LONGEST_KEY))
    return dataset, below


def _dumped(offsets: dict[str, list[int]] | None) -> str | None:
    return json.dumps(offsets, sort_keys=True) if offsets else None


def _report(line: _Line, tier: str, part: str, windows: Sequence[_WindowCount], offsets: str | None) -> Report:
    names = ("version", "records", "first", "last", "snapshot", "batch")
    return Report(
        *_place(line),
        part,
        tuple(sorted((each.start, each.records) for each in windows)),
        tier,
        schema=line.schema_,
        offsets=offsets,
        **{name: getattr(line, name) for name in names},
    )


def _in_words(error: ValidationError) -> str:
    """Describe the first error: its place, what was found there, and what was expected."""
    wrong = error.errors(include_url=False)[0]
    path = (f"[{step}]" if isinstance(step, int) else f".{excerpt(step, _NAME_SHOWN)}" for step in wrong["loc"])
    where = "".join(path)[1:]
    if wrong["type"] == "missing":
        return f"{where}: found nothing, expected a value."
    if wrong["type"] == "extra_forbidden":
        return f"{where}: found a field that a report does not have, expected no such field."
    default = wrong["msg"].removeprefix("Input should be ")
    expected = wrong.get("ctx", {}).get("error") or _JSON.get(wrong["type"], default)
    return f"{where}: found {_as_sent(wrong['input'])}, expected {expected}."


def _as_sent(value: Any) -> str:
    """Return a JSON value, shortened, as it was sent. Texts are in single quotes, as in all messages."""
    if isinstance(value, str):
        return brief(value)
    text = json.dumps(value)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"
