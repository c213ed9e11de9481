"""Plain lines of JSON: one pattern proves that they are clean. Reading them takes a third of the time of other lines.

A line is plain if its fields have a known order and each value is written in the usual way. The pattern leaves nothing
to check: no repeated or unknown field, no number out of range, no day that does not exist. `json_lines` judges all
other lines, clean or not.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from feed_assets.core.feeds import File
from feed_assets.core.packed import ending_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.text_files import first_part
from feed_assets.spark.parse import converted

_SIMPLE = 64
"""Greatest number of fields that one pattern checks. Java's patterns recurse for each field."""

_HEAD_BYTES = 65_536
"""Number of bytes at a file's beginning in which the first line is searched."""

_LONGEST = 1 << 22
"""Greatest number of bytes of a plain line. Spark's parser refuses texts of 20 million characters."""

_BLANKS = r"[ \t]*+"
_ESCAPE = r'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
_TEXT = rf'"[^"\\\x00-\x1f]*+(?:{_ESCAPE}[^"\\\x00-\x1f]*+){{0,100}}+"'
_DAY = (
    "(?!0000)[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_TIME = r"[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET = "(?:Z|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?)?"
_FORMS: dict[type[st.DataType], str] = {
    st.StringType: _TEXT,
    st.BooleanType: "(?:true|false)",
    st.DoubleType: r"(?!-0(?:\.0*+)?[eE])-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,2})?",
    st.FloatType: r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,300})?",
    st.DateType: f'"{_DAY}"',
    st.TimestampType: f'"{_DAY}{_TIME}{_OFFSET}"',
    st.TimestampNTZType: f'"{_DAY}{_TIME}"',
}
_DIGITS: dict[type[st.DataType], int] = {st.ByteType: 2, st.ShortType: 4, st.IntegerType: 9, st.LongType: 18}
"""Number of decimal digits that always fit the type, in any combination."""

_FROM_TEXT = (st.DateType, st.TimestampType, st.TimestampNTZType)
"""Types whose values Spark's JSON parser must return as text.

Numbers must not be returned as text, because the parser would make the text from a double.
"""

_OPTIONS = {
    # If the pattern wrongly accepts a line, fail the run. Without this mode, the line would become NULL.
    "mode": "FAILFAST",
    "columnNameOfCorruptRecord": "\0",  # No schema has a column with this name.
}


def order_of(board: Blackboard, files: Sequence[File]) -> list[str]:
    """Return the order of the fields in the first line of one uncompressed file.

    `is_plain` expects this order in all lines. Return [] if there is no such file, or its first line is no JSON object.
    Raise UpdateChanged if the file is not as it was listed. Raise UnreadableUpdate if the content does not fit the
    file's name.
    """
    file = next((each for each in files if each.size and not ending_of(each.key)), None)
    if file is None:
        return []
    line = first_part(board, file, _HEAD_BYTES).decode(errors="replace").lstrip("\ufeff").lstrip()
    try:
        first, _ = json.JSONDecoder().raw_decode(line)
    except (ValueError, RecursionError):
        return []
    return [*first] if isinstance(first, dict) else []


def is_plain(line: Column, schema: st.StructType, required: Sequence[str], order: Sequence[str]) -> Column:
    """Return whether a text is a plain line. Its fields must have the order `order`. Optional fields may be absent.

    The result for a NULL text is NULL.
    """
    forms = {field.name: _form(field.dataType) for field in schema}
    if len(forms) > _SIMPLE or None in forms.values():
        return sf.lit(False)
    names = [name for name in order if name in forms]
    every = [*names, *(name for name in forms if name not in names)]
    fields = "".join(_field(name, forms[name] or "", is_required=name in required) for name in every)
    return (sf.octet_length(line) <= _LONGEST) & line.rlike(rf"\A\{{{_BLANKS}{fields}\}}\r?\z")


def values(line: Column, schema: st.StructType) -> Column:
    """Return the values of a plain line as a struct of the schema's columns. Return NULL for a NULL line."""
    kinds = [st.StringType() if isinstance(each.dataType, _FROM_TEXT) else each.dataType for each in schema]
    texts = st.StructType([st.StructField(each.name, kind) for each, kind in zip(schema, kinds, strict=True)])
    return sf.from_json(line, texts, _OPTIONS)


def typed(struct: Column, field: st.StructField) -> Column:
    """Return one column of the struct returned by `values`."""
    inner = struct.getField(field.name)
    result = converted(inner, field.dataType) if isinstance(field.dataType, _FROM_TEXT) else inner
    # The sum turns -0.0 into 0.0, as `json_lines` does.
    return (
        result + sf.lit(0).cast(field.dataType) if isinstance(field.dataType, (st.DoubleType, st.FloatType)) else result
    )


def _field(name: str, form: str, *, is_required: bool) -> str:
    """Return a pattern for a field and for what must follow it: a comma and another field, or the end of the object."""
    value = form if is_required else rf"(?:{form}|null)"
    text = rf'"\Q{name}\E"{_BLANKS}:{_BLANKS}{value}{_BLANKS}(?:,{_BLANKS}(?=")|(?=\}}))'
    return text if is_required else f"(?:{text})?+"


def _form(kind: st.DataType) -> str | None:
    """Return a pattern for values of a type. Return None for a type that only `json_lines` can judge."""
    if isinstance(kind, st.DecimalType):
        number = rf"-?{_integer_pattern(kind.precision - kind.scale)}{_fraction(kind.scale)}"
        return rf'(?:{number}|"{number}")'
    if digits := _DIGITS.get(type(kind)):
        return rf"-?{_integer_pattern(digits)}"
    return _FORMS.get(type(kind))


def _integer_pattern(digits: int) -> str:
    return rf"(?:0|[1-9][0-9]{{0,{digits - 1}}})" if digits else "0"


def _fraction(digits: int) -> str:
    return rf"(?:\.[0-9]{{1,{digits}}})?" if digits else ""
