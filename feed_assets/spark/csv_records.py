"""The CSV record grammar as Spark columns: RFC 4180, plus doubled quotes in fields without surrounding quotes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as sf

from feed_assets.core.csv_dialect import CsvDialect

_PAIR = "\0"
"""Placeholder (NUL) of a doubled quote during the grammar check. A record with both quotes and NUL is rejected."""

_MARK = "\ufeff"
"""The byte order mark.

Spark removes it from the first record of a UTF-8 file. Java's decoder removes it from UTF-16.
"""

_SIMPLE = 64
"""Greatest number of columns that one pattern checks. Java's patterns recurse for each column."""

_CONTROLS = "[\u0080-\u009f]"


@dataclass(frozen=True)
class Grammar:
    """Rules for a record's raw text and the fields that Spark's parser found.

    `texts` has the names of the fields' columns.
    """

    texts: Sequence[str]
    dialect: CsvDialect
    line_end: Literal["\n", "\r"]

    def raw(self) -> Column:
        """Return the record's text without its line end.

        Spark drops the raw text of a record that fills all columns that were declared to Spark. For such a record,
        return its first fields and `…`.
        """
        form = {"sep": self.dialect.delimiter, "quote": self._quote or "", "escape": self._quote or ""}
        as_is = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
        first = sf.concat(sf.to_csv(sf.struct(*self.texts), {**form, **as_is}), sf.lit(f"{self.dialect.delimiter}…"))
        # Spark has already removed the LF, and a CR before it.
        text = sf.col("_corrupt") if self.line_end == "\n" else self._without_line_end(sf.col("_corrupt"))
        return sf.coalesce(text, first)

    def last(self) -> Column:
        """Return the last field without the CR of a CR-LF line end. Return NULL if the field is then empty.

        A CR within quotes stays. The last field was in quotes if two things hold: the record ends with a quote, and
        `_unquoted` has no text in its place.
        """
        text, raw = sf.col(self.texts[-1]), sf.col("_raw")
        stripped = sf.nullif(_without_cr(text), sf.lit(""))
        if self._quote is None:
            return sf.when(text.endswith("\r"), stripped).otherwise(text)
        # Use `_unquoted` only once. Otherwise Spark would compute it for every record, even where it is not needed.
        was_quoted = self._unquoted.rlike(rf"(?:\A|{self._delimiter})\z")
        is_fine = sf.when(~text.endswith("\r"), text).when(~raw.endswith(self._quote), stripped)
        return is_fine.when(was_quoted, text).otherwise(stripped)

    def is_plain(self) -> Column:
        """Return whether the record's raw text is exactly its fields joined by delimiters, without quotes.

        The check mainly compares lengths, which is fast.
        """
        lengths = " + ".join(f"coalesce(octet_length({text}), 0)" for text in self.texts)
        width = len(self.dialect.delimiter.encode()) * (len(self.texts) - 1)
        raw = sf.col("_raw")
        plain = sf.expr(f"octet_length(_raw) = {width} + {lengths}") & ~raw.contains("\r") & ~raw.startswith(_MARK)
        if self.line_end == "\r":
            plain &= ~raw.contains("\n")
        return plain & ~raw.contains(self._quote) if self._quote else plain

    def nulled(self, text: str) -> Column:
        """Return the field, or NULL if it is the declared text for NULL."""
        field = sf.col(text)
        return field if self.dialect.null_value is None else sf.nullif(field, sf.lit(self.dialect.null_value))

    def is_fine(self) -> Column:
        """Return whether a quick check finds the record well-formed.

        The check accepts plain records, and records with quoted fields but without doubled quotes.
        """
        raw, is_plain = sf.col("_raw"), sf.col("_is_plain")
        if self._quote is None or len(self.texts) > _SIMPLE:
            return is_plain
        return is_plain | raw.rlike(self._simple)

    def reasons(self, every: Column) -> Column:
        """Return an array with the rule that a malformed record breaks.

        For a well-formed record, return `every`, which has the reasons why single values are wrong. Spark computes an
        expression in an array only once, even if it is used twice.
        """
        raw = sf.col("_raw")
        unquoted = raw if self._quote is None else self._unquoted
        problem = sf.transform(sf.array(unquoted), lambda text: self._problem(raw, text))
        chosen = sf.transform(problem, lambda text: sf.when(text.isNotNull(), sf.array(text)).otherwise(every))
        return sf.get(chosen, sf.lit(0))

    def may_hold_odd_text(self) -> Column:
        """Return whether `odd_texts` may find a problem.

        A record can contain other, swallowed records only if it has a line break and is not plain.
        """
        raw = sf.col("_raw")
        is_broken = ~sf.col("_is_plain") & (raw.contains("\n") | raw.contains("\r"))
        odd = raw.rlike(_CONTROLS) if self.dialect.encoding == "Latin-1" else raw.contains("\ufffd")
        return is_broken | odd

    def odd_texts(self, names: Sequence[str], forms: Sequence[str | None]) -> tuple[Column, Column]:
        """Return the problems of texts of any type in two arrays: wrong encodings, and records lost in a field.

        Each array has one element for each text. The element of a correct text is NULL. The parser silently turns bytes
        of another encoding into U+FFFD, so a genuine U+FFFD is refused as well. A quote that is never closed may
        swallow the next records up to another quote. A field then contains a line that looks like a record. A genuine
        text with such a line is refused, too, because a needless reject is better than lost records.
        """
        if self.dialect.encoding == "Latin-1":
            why = "holds control characters U+0080 to U+009F: is it Windows-1252?"
            encoded = self._wrong(names, lambda text: text.rlike(_CONTROLS), why)
        else:
            encoded = self._wrong(names, lambda text: text.contains("\ufffd"), f"not {self.dialect.encoding}")
        if len(names) == 1:
            return encoded, sf.array().cast("array<string>")
        delimiter = re.escape(self.dialect.delimiter)
        pieces = delimiter.join(f"(?:{form})?" if form else rf"[^{delimiter}\r\n]*+" for form in forms)
        record = rf"[\r\n]{pieces}(?=[\r\n]|\z)"
        why = "holds what looks like another record: an unclosed quote?"
        return encoded, self._wrong(names, lambda text: text.rlike(record), why)

    @property
    def _quote(self) -> str | None:
        return self.dialect.quote

    @cached_property
    def _delimiter(self) -> str:
        return re.escape(self.dialect.delimiter)

    @cached_property
    def _mark(self) -> str:
        return re.escape(self._quote or "")

    @cached_property
    def _simple(self) -> str:
        """Return a pattern for records without NUL and without doubled quotes."""
        quoted = rf"{self._mark}[^{self._mark}{_PAIR}]*+{self._mark}"
        field = rf"(?:{quoted}|[^{self._mark}{self._delimiter}{_PAIR}\r\n]*+)"
        return rf"\A(?!{_MARK}){field}(?:{self._delimiter}{field}){{{len(self.texts) - 1}}}\z"

    @property
    def _unquoted(self) -> Column:
        """Return the record without its well-formed quoted fields.

        If a field of the result still begins with a quote, the record is malformed. Either the quote is never closed,
        or text follows the closing quote.
        """
        pairs = sf.replace(sf.col("_raw"), sf.lit((self._quote or "") * 2), sf.lit(_PAIR))
        quoted = rf"{_PAIR}*+{self._mark}[^{self._mark}]*+{self._mark}|{_PAIR}++"
        pattern = rf"(?:\A|(?<={self._delimiter}))(?:{quoted})(?={self._delimiter}|\z)"
        return sf.regexp_replace(pairs, sf.lit(pattern), sf.lit(""))

    def _without_line_end(self, raw: Column) -> Column:
        """Return the text of a record without the CR that ends it.

        Put back an LF that Spark has removed at the end of the file.
        """
        last, raw = sf.col(self.texts[-1]), _without_cr(raw)
        is_without = last.endswith("\n") & ~raw.endswith("\n")
        if self._quote:
            is_without &= ~raw.endswith(self._quote) | last.startswith(self._quote)
        return sf.when(is_without, sf.concat(raw, sf.lit("\n"))).otherwise(raw)

    def _problem(self, raw: Column, unquoted: Column) -> Column:
        """Return the first rule that a record breaks, or NULL if it breaks none."""
        count = len(self.texts)
        has_other_count = _count(unquoted, self.dialect.delimiter) != count - 1
        joined = "a byte order mark at its beginning: were files put together?"
        cases: list[tuple[Column, str]] = [(raw.startswith(_MARK), joined)]
        if self._quote:
            at, any_quote, quote = rf"(?:\A|{self._delimiter})", f"[{self._mark}{_PAIR}]", self._quote
            begins = unquoted.rlike(at + any_quote)
            within = sf.regexp_replace(
                unquoted, sf.lit(rf"{self._mark}[^{self._mark}{self._delimiter}]*+{self._mark}"), sf.lit("")
            )
            cases += [
                (raw.contains(_PAIR) & raw.contains(quote), "a NUL character in a record with quotes"),
                (
                    unquoted.rlike(rf"{at}{_PAIR}*+{self._mark}[^{self._mark}]*+\z"),
                    "a quote that is never closed",
                ),
                (
                    (begins & raw.contains(f"\\{quote}")) | unquoted.rlike(r"\\" + any_quote),
                    rf"a backslash before a quote: expected {quote}{quote} for a quote",
                ),
                (
                    begins & raw.rlike(rf"{self._mark}[ \t]++(?:{self._delimiter}|\z)"),
                    "blanks after a closing quote",
                ),
                (
                    begins,
                    "text after a closing quote, or a quote inside a quoted field that is not written as "
                    f"{quote}{quote}",
                ),
                (unquoted.rlike(rf"{at}[ \t]++{any_quote}"), "blanks before an opening quote"),
                (within.contains(quote), "a quote within a field that is not in quotes"),
            ]
        if self.line_end == "\r":
            cases.append(
                (unquoted.contains("\n"), "a line feed outside quotes, in a file whose first record ends with CR alone")
            )
        cases += [
            (unquoted.contains("\r"), "a carriage return outside quotes"),
            (has_other_count, f"expected {count} fields"),
        ]
        first, *further = [(is_so, sf.lit(f"malformed: {why}")) for is_so, why in cases]
        return reduce(lambda condition, case: condition.when(*case), further, sf.when(*first))

    def _wrong(self, names: Sequence[str], is_bad: Callable[[Column], Column], why: str) -> Column:
        """Return an array that has `why` for each bad text.

        Java compiles one array better than separate code for each column.
        """
        named, texts = sf.array(*map(sf.lit, names)), sf.array(*map(sf.col, self.texts))
        return sf.zip_with(named, texts, lambda name, text: sf.when(is_bad(text), sf.concat(name, sf.lit(f": {why}"))))


def _without_cr(text: Column) -> Column:
    return sf.when(text.endswith("\r"), sf.substring(text, sf.lit(1), sf.length(text) - 1)).otherwise(text)


def _count(text: Column, part: str) -> Column:
    size = len(part.encode())
    return (sf.octet_length(text) - sf.octet_length(sf.replace(text, sf.lit(part), sf.lit("")))) / size
