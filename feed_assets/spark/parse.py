"""Strict conversion of text to values. A text that is not exactly of the declared type is rejected, never guessed.

| declared type | accepted text | refused, with a reason |
|---|---|---|
| string | any | U+FFFD in CSV (what bytes that are not UTF-8 become) |
| tinyint, smallint, int, bigint | `-?[0-9]+` in range, leading zeros | ` 7 `, `+7`, `7.0`, `1e3`, out of range |
| float, double | `-?0[.0][e±0]`, the nearest value | `NaN`, `Infinity`, `1e999`, `.5`, `5.`, `1d`, padding |
| decimal(p,s) | `-?0[.0]` in range, to 1,000 bytes | `1e3`, out of range, over s digits after the point (`1.50`: one) |
| boolean | `true`, `false` in any case | `1`, `yes`, `t` |
| date | `YYYY-MM-DD`, a day that exists | `2020`, `2020-1-1`, `2020-02-30` |
| timestamp | `YYYY-MM-DD[ T]HH:MM:SS[.f][offset]` | `2020`, over 6 digits after the point, `24:00:00`, zone names |
| timestamp_ntz | the same without an offset | an offset |

In this table `0` stands for one or more digits. A timestamp's fraction has 1 to 6 digits. Its offset is `Z`, `±HH:MM`,
`±HHMM` or `±HH`. Without an offset it is UTC. Empty CSV fields, quoted or not, and JSON null become NULL, which means
missing. Only `required` refuses NULL.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from feed_assets.core import text_forms
from feed_assets.core.message_words import with_article
from feed_assets.core.schemas import quoted

META = ("_raw", "_file", "_reasons")
"""The columns of a tagged frame after those of the schema."""

EXACT_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Options of `to_json` that keep NULLs and microseconds. By default, `to_json` drops both."""

# An SQL text costs one call to the JVM instead of twenty.
_REASONS = "coalesce(_reasons, cast(array() AS array<string>))"

LONGEST_DECIMAL = 1_000
"""Most bytes of a text that is cast to a decimal. The time of a cast grows with the square of the digits."""

SCHEMAS = 128
"""Greatest number of schemas that a cache keeps, with the columns made from them."""

_FORMS: dict[type[st.DataType], str] = {
    st.IntegralType: text_forms.INTEGER,
    st.DecimalType: text_forms.DECIMAL,
    st.FractionalType: text_forms.FRACTION,
    st.BooleanType: text_forms.BOOLEAN,
    st.DateType: text_forms.DAY,
    st.TimestampType: text_forms.TIMESTAMP,
    st.TimestampNTZType: text_forms.TIMESTAMP_NTZ,
}


def column(name: str) -> Column:
    """Return the column with exactly this name."""
    return sf.col(quoted(name))


def matches(text: Column, pattern: str) -> Column:
    r"""Return whether the whole text matches a pattern.

    The pattern ends with `\z`, because `$` would accept a line break at the end.
    """
    return text.rlike(rf"\A(?:{pattern})\z")


def value(text: Column, kind: st.DataType) -> Column:
    """Return a text as a value of the type `kind`. Return NULL if the text is NULL or not exactly of this type."""
    form = form_of(kind)
    if form is None:
        return text
    typed = converted(text, kind)
    fits = matches(text, form)
    if isinstance(kind, st.DecimalType):  # The patterns of other types allow only as many digits as the type keeps.
        fits = (sf.octet_length(text) <= LONGEST_DECIMAL) & fits & ~_too_fine(text, kind)
    elif isinstance(kind, st.FractionalType):
        fits = fits & (sf.abs(typed) != sf.lit(float("inf")))
    return sf.when(fits, typed)


def converted(text: Column, kind: st.DataType) -> Column:
    """Return the value of a text that has the form of this type.

    Return NULL if no such value exists, such as 30 February.
    """
    moment = sf.when(_has_offset(text), text).otherwise(sf.concat(text, sf.lit("Z")))
    return (moment if _is_moment(kind) else text).try_cast(kind)


def complaint(name: str, text: Column, kind: st.DataType, typed: Column) -> Column:
    """Return `<column>: …` with the reason why a text is not of this type. Otherwise return NULL.

    `typed` is the text's `value`.
    """
    is_number = matches(text, text_forms.DECIMAL) if isinstance(kind, st.DecimalType) else sf.lit(True)
    fine = sf.when(
        is_number & _too_fine(text, kind), sf.lit(f"{name}: more than {_digits(kind)} digits after the point")
    )
    wrong = sf.coalesce(fine, sf.lit(f"{name}: not {with_article(kind.simpleString())}"))
    return sf.when(text.isNotNull() & typed.isNull(), wrong)


def missing(name: str, text: Column) -> Column:
    """Return a reason where a required value is missing, otherwise NULL."""
    return sf.when(text.isNull(), sf.lit(f"{name}: missing"))


def collected(complaints: Sequence[Column]) -> Column:
    """Return an array of the complaints that are not NULL. The array itself is never NULL."""
    none = sf.array().cast("array<string>")
    if not complaints:
        return none
    return sf.when(sf.coalesce(*complaints).isNull(), none).otherwise(sf.array_compact(sf.array(*complaints)))


def once(column: Column, use: Callable[[Column], Column]) -> Column:
    """Return the result of `use` on a column. The column is computed once, and only where the result is needed.

    For this, the column becomes the only element of an array, which is then transformed. The array also keeps rarely
    used code out of the Java method that Spark generates for all rows. Java does not compile very long methods.
    """
    return sf.get(sf.transform(sf.array(column), use), sf.lit(0))


def reasons() -> Column:
    """Return a column with the reasons to reject a row of a tagged frame (see `rejects`).

    It is never NULL: a row without reasons has an empty array.
    """
    return sf.expr(_REASONS)


def is_clean() -> Column:
    """Return the condition that a row has no reasons to reject it. The condition is never NULL.

    Returns:
        The condition.
    """
    return sf.expr(f"size({_REASONS}) = 0")


def form_of(kind: st.DataType) -> str | None:
    """Return the pattern for texts of this type. Return None if every text is valid."""
    return next((form for types, form in _FORMS.items() if isinstance(kind, types)), None)


def _is_moment(kind: st.DataType) -> bool:
    return isinstance(kind, st.TimestampType)


def _has_offset(text: Column) -> Column:
    """Return whether a text in timestamp form has an offset. A pattern would take ten times as long."""
    return text.endswith("Z") | text.contains("+") | (sf.locate("-", text, len("YYYY-MM-DD ")) > 0)


def _digits(kind: st.DataType) -> int:
    return kind.scale if isinstance(kind, st.DecimalType) else 6


def _too_fine(text: Column, kind: st.DataType) -> Column:
    """Return whether a text has more fraction digits than the type keeps.

    A cast would silently round the decimal or cut the timestamp. A text for a decimal must have the
    form of a decimal. Its last zeros are trimmed, because a pattern for them would take quadratic time.
    """
    if isinstance(kind, st.DecimalType):
        fraction = sf.substring_index(text, ".", -1)
        return text.contains(".") & (sf.length(sf.rtrim(fraction, sf.lit("0"))) > kind.scale)
    if isinstance(kind, (st.TimestampType, st.TimestampNTZType)):
        return matches(text, rf"{text_forms.MOMENT}\.[0-9]{{7,}}{text_forms.OFFSET}?")
    return sf.lit(False)
