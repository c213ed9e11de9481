"""Inference of partitions and of a feed name from the paths of sample files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from feed_assets.infer.python_text import literal

_DATE = re.compile(r"(?<!\d)(\d{4})([-/_.]?)(\d{2})\2(\d{2})(?!\d)")
_MONTH = re.compile(r"(?<!\d)(\d{4})[-/_](\d{2})(?![-/_]?\d)")
_HOUR = re.compile(r"[-T_/ ](\d{2})(?:[:-]?00)?(?![\d-])")
_KEY = re.compile(r"(\w+)=")
_TIMES = frozenset({"year", "month", "day", "date", "dt", "ds", "hour"})
_FORMS = {"hour": "%Y-%m-%d-%H:00", "day": "%Y-%m-%d", "month": "%Y-%m-01"}
_CLASSES = {
    "hour": "HourlyPartitionsDefinition",
    "day": "DailyPartitionsDefinition",
    "month": "MonthlyPartitionsDefinition",
}


@dataclass(frozen=True)
class PathPartitions:
    """Time partitions, with an optional second dimension from folders such as `region=apac`.

    `moments` and `values` are in the order of the files.
    """

    every: str
    moments: tuple[datetime, ...]
    dimension: str | None = None
    values: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """Return the Python code for `partitions_def`."""
        first = min(self.moments).strftime(_FORMS[self.every])
        time = f"dg.{_CLASSES[self.every]}({literal(first)})"
        if self.dimension is None:
            return time
        keys = ", ".join(map(literal, sorted({*self.values})))
        static = f"dg.StaticPartitionsDefinition([{keys}])"
        return f"dg.MultiPartitionsDefinition({{{literal(self.every)}: {time}, {literal(self.dimension)}: {static}}})"

    @property
    def keys(self) -> list[str]:
        """Return the partition path of each file."""
        times = [moment.strftime(_FORMS[self.every]) for moment in self.moments]
        return [f"{time}/{value}" for time, value in zip(times, self.values, strict=True)] if self.values else times


def partitions_of(files: Sequence[Path]) -> PathPartitions | None:
    """Return the partitions that the paths show. Return None if a path has no date, or a file name has two dates."""
    if name_with_two_dates(files):
        return None
    plain = [_KEY.sub("", file.as_posix()) for file in files]
    for every, read in (("hour", _hour), ("day", _day), ("month", _month)):
        moments = tuple(moment for path in plain if (moment := read(path)))
        if len(moments) == len(files):
            dimension, values = _dimension(files)
            return PathPartitions(every, moments, dimension, values)
    return None


def name_with_two_dates(files: Sequence[Path]) -> str | None:
    """Return the first file name with two different dates, or None. Either date may be the partition."""
    return next((file.name for file in files if len({moment for moment, _ in _dates(file.name)}) > 1), None)


def feed_name(files: Sequence[Path]) -> str | None:
    """Return a feed name for these files. Return None if the paths contain none.

    If there are folders such as `day=2026-01-01`, file names mean nothing: the feed has the name of the folder above.
    Otherwise the feed has the first file's name without dates and numbers, or the name of the folder above.
    """
    path = files[0]
    in_keys = next((at for at, part in enumerate(path.parent.parts) if _KEY.match(part)), None)
    folders = [part for part in path.parent.parts[:in_keys] if re.search("[A-Za-z]", part)]
    if in_keys is not None:
        return _plain(folders[-1]) if folders else None
    stem = path.name.partition(".")[0]
    without_date = re.sub(r"(?i)([-_.]?\d+|[-_.]?part)+", "", _DATE.sub("", stem)).strip("-_.")
    return _plain(without_date or (folders[-1] if folders else ""))


def _plain(name: str) -> str | None:
    return re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower() or None


def _dates(path: str) -> list[tuple[datetime, str]]:
    """Return the dates in a path, each with the text after it."""
    matches = [(_moment(f"{match[1]}-{match[3]}-{match[4]}", "%Y-%m-%d"), match) for match in _DATE.finditer(path)]
    return [(moment, path[match.end() :]) for moment, match in matches if moment]


def _date(path: str) -> tuple[datetime, str] | None:
    """Return the last date in a path, with the text after it."""
    return next(reversed(_dates(path)), None)


def _day(path: str) -> datetime | None:
    date_and_rest = _date(path)
    return date_and_rest[0] if date_and_rest else None


def _hour(path: str) -> datetime | None:
    date_and_rest = _date(path)
    hour = _HOUR.match(date_and_rest[1]) if date_and_rest else None
    return date_and_rest[0].replace(hour=int(hour[1])) if date_and_rest and hour and int(hour[1]) < 24 else None


def _month(path: str) -> datetime | None:
    months = [*_MONTH.finditer(path)]
    return _moment(f"{months[-1][1]}-{months[-1][2]}", "%Y-%m") if months else None


def _moment(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)  # noqa: DTZ007  # It names a partition, not a moment in a time zone.
    except ValueError:
        return None


def _dimension(files: Sequence[Path]) -> tuple[str | None, tuple[str, ...]]:
    """Return the name and values of the only folder such as `region=apac` that all paths have. Otherwise (None, ())."""
    pairs = [dict(re.findall(r"(\w+)=([^/]+)/", file.as_posix())) for file in files]
    names = {name for pair in pairs for name in pair if name.lower() not in _TIMES}
    if len(names) != 1 or any(not names <= pair.keys() for pair in pairs):
        return None, ()
    (name,) = names
    return name, tuple(pair[name] for pair in pairs)
