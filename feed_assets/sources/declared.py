"""Event sources as they are declared: plain values, which travel as an asset's metadata."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import check_segment
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.settings import expand
from feed_assets.sources.contract import Reader
from feed_assets.sources.files import FileEvents
from feed_assets.sources.rows import Columns
from feed_assets.sources.sql import SqlEvents


@dataclass(frozen=True)
class SqlTable:
    """Events in a table at a SQLAlchemy `url`, or `env:NAME` for that of a variable: see `SqlEvents`."""

    url: str
    table: str
    order_by: str
    columns: Columns = field(default_factory=Columns)
    where: Mapping[str, Sequence[str | int]] = field(default_factory=dict[str, Sequence[str | int]])
    schema: str | None = None

    def reader(self, _board: Blackboard) -> Reader:
        """What reads it."""
        url, where = expand(self.url), self.where
        return SqlEvents(url, self.table, self.columns, order_by=self.order_by, where=where, schema=self.schema)


@dataclass(frozen=True)
class EventFiles:
    """Events in the files below a `prefix` of the blackboard: see `FileEvents`."""

    prefix: str
    format: Literal["csv", "jsonl", "parquet"]
    columns: Columns = field(default_factory=Columns)

    def reader(self, board: Blackboard) -> Reader:
        """What reads it."""
        return FileEvents(board, self.prefix, self.format, self.columns)


@dataclass(frozen=True)
class EventSource:
    """A table of events that others own, in one part or split into several, by table or pipeline.

    An event whose marker comes before its table's last one is recorded with a flag, or refused and kept as a reject.
    """

    name: str
    parts: tuple[SqlTable | EventFiles, ...]
    out_of_order: Literal["flag", "refuse"] = "flag"

    def __post_init__(self) -> None:
        check_segment(self.name, "event source")
        if not self.name.isidentifier():
            raise InvalidDefinition(f"event source {self.name!r}: expected letters, digits and '_': it names a sensor.")
        if not self.parts:
            raise InvalidDefinition(f"event source {self.name} has no parts: expected a SqlTable or EventFiles.")


_ADAPTER = TypeAdapter(EventSource)


def to_json(source: EventSource) -> dict[str, Any]:
    """A declaration as JSON values."""
    return _ADAPTER.dump_python(source, mode="json")


def of_json(values: Any) -> EventSource:
    """The declaration that JSON values hold."""
    return _ADAPTER.validate_python(values)
