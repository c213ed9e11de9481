"""Parts of the reference that are tables in the code: the ledger, states of windows, events, signals, tags."""

import ast
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from reference_text import item
from sqlalchemy.dialects import sqlite

import feed_assets
from feed_assets.core.completeness import WindowState
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.transitions import TRANSITIONS
from feed_assets.kafka.signal_message import SCHEMA
from feed_assets.ledger.tables import metadata

_PACKAGE = Path(feed_assets.__file__).parent
_TAG = re.compile("feed_assets/[a-z_0-9]+")
_AVRO = {"string": "string", "int": "integer", "long": "integer", "null": "null", "boolean": "boolean"}


def columns() -> str:
    """Return the columns of each table of the ledger."""
    return "\n\n".join(_table(table) for name, table in sorted(metadata.tables.items()) if table.columns)


def _table(table: Any) -> str:
    rows = [item(_column(each)) for each in table.columns]
    return f"### `{table.name}`\n\n" + "\n".join(rows)


def _column(column: Any) -> str:
    kind = str(column.type.compile(dialect=sqlite.dialect())).partition("(")[0].lower()
    facts = [kind, *["primary key"] * column.primary_key, *["may be NULL"] * bool(column.nullable)]
    return f"`{column.name}` ({', '.join(facts)})" + (f": {column.comment}" if column.comment else "")


def window_states() -> str:
    """Return each state of a window with its meaning."""
    lines = (WindowState.__doc__ or "").partition("Attributes:\n")[2].strip().splitlines()
    meanings = dict(line.strip().split(": ", 1) for line in lines)
    return "\n".join(item(f"**`{each.value}`**: {meanings[each.name]}") for each in WindowState)


def transitions() -> str:
    """Return the changes between states of windows."""
    rows = [
        f"| `{before.value}` | `{after.value}` | {why} |"
        for before, to in TRANSITIONS.items()
        for after, why in to.items()
    ]
    return "\n".join(["| from | to | when |", "|---|---|---|", *rows])


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema of a write event, as sinks publish it."""
    marker = "2010-12-01T06:00:00.000000Z, or a version with 20 digits; sorts like its value"
    about = {
        "table_name": {"description": "name of the table or feed"},
        "marker": {"description": marker},
        "event_marker": {"description": "the time of the event itself, in the form of a marker"},
        "correlation_id": {"description": "id of the original change, carried along"},
        "write_operation": {"enum": [each.value for each in Operation]},
        "partition_key": {"description": "'' for a table without partitions"},
        "context": {"description": "JSON: code_version, run, records, bytes, no_new_data, parents, and others"},
    }
    fields = {name: {"type": "string", **about[name]} for name in WriteEvent.__dataclass_fields__}
    number = {"type": "integer", "description": "number of the event in our log; it grows"}
    return _schema("Write event", {"sequence": number, **fields}, required=["sequence", *fields])


def signal_schema() -> dict[str, Any]:
    """Return the JSON Schema of a signal, from its Avro schema."""
    fields = {each["name"]: _of_avro(each) for each in SCHEMA["fields"]}
    return _schema("Signal of a chunk", fields, required=[*fields])


def _of_avro(field: dict[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    if isinstance(kind, dict):
        found: dict[str, Any] = {"type": "object", "additionalProperties": {"type": _AVRO[kind["values"]]}}
    else:
        found = {"type": [_AVRO[each] for each in kind] if isinstance(kind, list) else _AVRO[kind]}
    return found | ({"description": field["doc"]} if "doc" in field else {})


def _schema(title: str, fields: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "type": "object"}
    return {**head, "properties": fields, "required": required}


def event_part() -> str:
    """Return the JSON Schema of a write event as a block."""
    return _block(event_schema())


def signal_part() -> str:
    """Return the JSON Schema of a signal as a block."""
    return _block(signal_schema())


def _block(schema: dict[str, Any]) -> str:
    fields = ",\n".join(f"    {json.dumps(name)}: {_lines(each)}" for name, each in schema["properties"].items())
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(schema[key])}" for key in ("$schema", "title", "type"))
    required = ",\n".join(f"    {json.dumps(each)}" for each in schema["required"])
    return f'```json\n{{\n{head},\n  "properties": {{\n{fields}\n  }},\n  "required": [\n{required}\n  ]\n}}\n```'


def _lines(field: dict[str, Any]) -> str:
    """Return a field's schema in one line, or with its description in a second one."""
    text = json.dumps(field)
    return text if len(text) < 120 else text.replace(', "description"', ',\n      "description"')


_TAGS_IN_PLACE = {
    "feed_assets/correlation": "The tag with the correlation ids of the updates that a run by events processes.",
    "feed_assets/output": "The tag with the partition that a run builds.",
    "feed_assets/plan": "The tag with the kind of the plan that a run by events has.",
    "feed_assets/slices": "The tag with the slices of event tables that a run reads.",
}
"""Texts about tags that the code writes without a constant of their own."""
_NO_TAGS = {"feed_assets/1", "feed_assets/defs", "feed_assets/doctor"}


def tags() -> str:
    """Return the names of our tags and metadata, `feed_assets/…`, with what the code says of each.

    Raise KeyError if nothing is said of one.
    """
    trees = [ast.parse(path.read_text("utf-8")) for path in sorted(_PACKAGE.rglob("*.py"))]
    texts = {name: text for tree in trees for name, text in _constants(tree)} | _TAGS_IN_PLACE
    names = {name for tree in trees for name in _names_in(tree)} - _NO_TAGS
    return "\n".join(item(f"`{name}`: {texts[name]}") for name in sorted(names))


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for statement, following in pairwise(tree.body):
        if isinstance(statement, ast.Assign) and isinstance(following, ast.Expr):
            text = str(getattr(following.value, "value", "")).partition("\n\n")[0]
            yield from ((name, " ".join(text.split())) for name in _names_in(statement.value))


def _names_in(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and _TAG.fullmatch(each.value):
            yield each.value
