"""Inference of column types that fit all texts. DuckDB compares the texts with the patterns that runs use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feed_assets.core import sql_text, text_forms
from feed_assets.core.schemas import quoted

NULLS = (r"\N", "NULL", "null", "NA", "N/A", "n/a", "NaN", "nan", "None", "-")
"""Texts that producers write for NULL."""

BIGINT_DIGITS, DOUBLE_DIGITS, MOST_DIGITS = 19, 15, 38
"""Numbers of digits: an integer with `BIGINT_DIGITS` or more digits may exceed a bigint.

`DOUBLE_DIGITS` digits are exact in a double. A decimal has at most `MOST_DIGITS` digits.
"""
LONG_INTEGER = f"decimal({MOST_DIGITS},0)"

MONEY_DIGITS, MONEY_SCALE = 18, 4
"""Precision of the decimals that are proposed, and their largest scale."""

AT_ONCE = 50
"""Columns that are counted in one statement. DuckDB plans a long statement in more than linear time."""

NO_VALUE = "the files have no value in this column"

_WORDS = "(?i:true|false|yes|no|y|n)"
WITH_COMMA = "-?[0-9]+([.][0-9]{3})*,[0-9]+"

_FRACTION_OF_SECOND = r"(?:\.[0-9]{1,6})?"
_OFFSET_IN_RANGE = "(?:Z|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?|[+-]18(?::?00)?)"
"""A pattern of time zone offsets of at most 18 hours, the largest offset in Java."""


@dataclass(frozen=True)
class InferredColumn:
    """A column of sample files: its type in Spark's DDL, and a note on what a person should check."""

    name: str
    kind: str
    note: str | None = None

    @property
    def ddl(self) -> str:
        """Return the column in Spark's DDL."""
        is_plain = self.name.isascii() and self.name.isidentifier()
        return f"{self.name if is_plain else quoted(self.name)} {self.kind}"


@dataclass(frozen=True)
class TextCounts:
    """Counts of a column's texts: how many are not NULL, and how many of them have each form.

    `scale` and `least_scale` are the most and the fewest digits after a decimal point, `digits` the most before it.
    """

    texts: int
    booleans: int
    integers: int
    zeros_first: int
    fractions: int
    exponents: int
    scale: int
    least_scale: int
    digits: int
    days: int
    moments: int
    offsets: int
    slashed: int
    commas: int
    words: int
    minutes: int

    def column(self, name: str, *, keeps_digits: bool) -> InferredColumn:
        """Return the inferred column. `keeps_digits` is True if trailing zeros, as in `1.50`, are significant."""
        if not self.texts:
            return InferredColumn(name, "string", NO_VALUE)
        of_all = {"boolean": self.booleans, "date": self.days, "timestamp": self.moments}
        kind = next((kind for kind, count in of_all.items() if count == self.texts), None)
        if kind == "timestamp" and self.offsets < self.texts:
            return InferredColumn(name, kind, "times without an offset are read as UTC")
        return InferredColumn(name, kind) if kind else self._number(name, keeps_digits) or self._text(name)

    def _number(self, name: str, keeps_digits: bool) -> InferredColumn | None:
        if self.fractions < self.texts:
            return None
        if self.zeros_first:
            return InferredColumn(name, "string", "numbers with zeros in front: a numeric type would lose these zeros")
        if self.integers == self.texts:
            return InferredColumn(name, "bigint")
        if not self.exponents and not self.scale and BIGINT_DIGITS <= self.digits <= MOST_DIGITS:
            return InferredColumn(name, LONG_INTEGER, "larger than a bigint")
        is_fixed = keeps_digits and not self.exponents and 0 < self.least_scale == self.scale <= MONEY_SCALE
        if is_fixed and self.digits + self.scale <= MONEY_DIGITS:
            note = f"every value has {self.scale} digits after the point: double is possible, too"
            return InferredColumn(name, f"decimal({MONEY_DIGITS},{self.scale})", note)
        is_cut = self.digits + self.scale > DOUBLE_DIGITS
        lost = f"digits beyond the {DOUBLE_DIGITS}th are lost: decimal keeps them"
        return InferredColumn(name, "double", lost if is_cut else "for money declare decimal, which is exact")

    def _text(self, name: str) -> InferredColumn:
        count_by_form = {
            "dates in another form than YYYY-MM-DD": self.slashed,
            "numbers with a comma": self.commas + self.fractions if self.commas else 0,
            "booleans in another form than true and false": self.words,
            "times without seconds, which a timestamp needs": self.minutes,
        }
        for form, count in count_by_form.items():
            if count == self.texts:
                return InferredColumn(name, "string", f"{form}: the dataset's function must convert them")
        typed = {
            "a timestamp": self.moments,
            "a date": self.days,
            "a number": self.fractions,
            "a boolean": self.booleans,
        }
        for kind, count in typed.items():
            if count * 2 > self.texts:
                return InferredColumn(name, "string", f"{self.texts - count} of {self.texts} values are not {kind}")
        return InferredColumn(name, "string")


def facts_of(database: Any, table: str, names: Sequence[str]) -> Mapping[str, TextCounts]:
    """Return the counts of some text columns of a DuckDB relation. One scan counts up to `AT_ONCE` columns."""
    size, counts = len(TextCounts.__dataclass_fields__), dict[str, TextCounts]()
    for first in range(0, len(names), AT_ONCE):
        columns = names[first : first + AT_ONCE]
        expressions = [expression for name in columns for expression in _counts(sql_text.quoted(name))]
        row = database.execute(f"SELECT {', '.join(expressions)} FROM {table}").fetchone()
        counts |= {name: TextCounts(*row[at * size : (at + 1) * size]) for at, name in enumerate(columns)}
    return counts


def _of_years(column: str) -> str:
    """Return the SQL condition that a moment is in the years 1 to 9999, whatever its offset."""
    return f"{column}[1:10] BETWEEN '0001-01-02' AND '9999-12-30'"


def _counts(column: str) -> list[str]:
    """Return the aggregates of one column, in the order of `TextCounts`."""

    def of_form(form: str, also: str = "true") -> str:
        return f"count_if(regexp_full_match({column}, {sql_text.literal(form)}) AND {also})"

    scale = f"length(regexp_extract({column}, {sql_text.literal(r'^-?[0-9]+[.]([0-9]+)')}, 1))"
    fraction = f"coalesce(isfinite(try_cast({column} AS DOUBLE)), false)"
    day = f"try_cast({column} AS DATE) IS NOT NULL AND {column}[1:4] > '0000'"
    is_iso = f"regexp_full_match({column}, {sql_text.literal(text_forms.DAY)})"
    in_time = f"try_cast(replace({column}[1:19], 'T', ' ') AS TIMESTAMP) IS NOT NULL AND {column}[12:13] < '24'"
    has_offset = f"regexp_full_match({column}[20:], {sql_text.literal(_FRACTION_OF_SECOND + text_forms.OFFSET)})"
    in_range = f"regexp_full_match({column}[20:], {sql_text.literal(_FRACTION_OF_SECOND + _OFFSET_IN_RANGE)})"
    moment = f"{in_time} AND {_of_years(column)} AND (NOT {has_offset} OR {in_range})"
    return [
        f"count({column})",
        of_form(text_forms.BOOLEAN),
        of_form(text_forms.INTEGER, f"try_cast({column} AS BIGINT) IS NOT NULL"),
        of_form("-?0[0-9].*"),
        of_form(text_forms.FRACTION, fraction),
        of_form(".*[eE].*"),
        f"coalesce(max({scale}), 0)",
        f"coalesce(min({scale}), 0)",
        f"coalesce(max(length(regexp_extract({column}, '[0-9]+'))), 0)",
        of_form(text_forms.DAY, day),
        of_form(text_forms.TIMESTAMP, moment),
        of_form(text_forms.TIMESTAMP_NTZ + text_forms.OFFSET, moment),
        of_form("[0-9]{1,4}[/.-][0-9]{1,2}[/.-][0-9]{1,4}", f"NOT {is_iso}"),
        of_form(WITH_COMMA),
        of_form(_WORDS),
        of_form(f"{text_forms.DAY}[ T][0-9]{{2}}:[0-9]{{2}}{text_forms.OFFSET}?"),
    ]
