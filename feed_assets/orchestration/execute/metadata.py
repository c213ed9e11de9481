"""Metadata of an update for Dagster's UI: URL, inputs, columns and rejects."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dagster as dg

from feed_assets.core.events import in_words
from feed_assets.core.feeds import Partition
from feed_assets.core.markdown import as_text, table
from feed_assets.core.pins import Pin
from feed_assets.core.secrets import masked
from feed_assets.runs.maker import Output
from feed_assets.settings import settings

INPUTS_SHOWN = 100
"""Greatest number of rows in the table of a run's inputs. A partition may have thousands of inputs."""

VERSION_DIGITS = 12
"""Number of digits of a data version in this table. This is enough to distinguish two versions."""

PageOf = Callable[[Partition], str]
"""A function that returns the path of Dagster's page for an input's partition."""


def url_of(partition: Partition, update_id: str = "", blackboard: str | None = None) -> dg.UrlMetadataValue:
    """Return the URL of an update or a partition, on the default blackboard or on the named one."""
    path = "/".join([partition.path, update_id] if update_id else [partition.path])
    return dg.MetadataValue.url(f"{masked(settings().place(blackboard).url).rstrip('/')}/{quote(path, safe='/~=@:')}")


def inputs_of(pins: Sequence[Pin], page_of: PageOf) -> dg.MarkdownMetadataValue:
    """Return a table of the updates and slices that a run read, with links to the pages of their partitions."""
    head = ["input", "partition", "read", "data version", "files", "bytes"]
    rows = ([*_named(pin, page_of), *map(as_text, _read(pin))] for pin in pins[:INPUTS_SHOWN])
    omitted = [f"\nand {len(pins) - INPUTS_SHOWN} more"] if len(pins) > INPUTS_SHOWN else []
    return dg.MetadataValue.md("\n".join([table(head, rows), *omitted]))


def _named(pin: Pin, page_of: PageOf) -> tuple[str, str]:
    at = pin.partition
    return f"[{at.feed}]({page_of(at)})", as_text(at.key)


def _read(pin: Pin) -> tuple[str, str, str, str]:
    """Return the table cells of a pin: the update that was read, or the slice of an event table.

    A slice has no files.
    """
    if pin.files:
        return pin.update_id, pin.version[:VERSION_DIGITS], str(pin.files), str(pin.size)
    return f"after {in_words(pin.start)} up to {in_words(pin.update_id)}", "", "", ""


def columns_of(output: Output) -> Mapping[str, Any]:
    """Return the written columns in Dagster's form. Return {} if the columns are unknown."""
    columns = [dg.TableColumn(name, kind) for name, kind in output.written.columns]
    return {"dagster/column_schema": dg.TableSchema(columns)} if columns else {}


def rejected_of(outputs: Sequence[Output]) -> Mapping[str, Any]:
    """Return the number of rejected records and their share of all records, for plots."""
    *rejects, main = outputs
    if not rejects:
        return {}
    rejected = sum(each.written.records for each in rejects)
    total = rejected + main.written.records
    return {"rejected": rejected, "rejected share": rejected / total if total else 0.0}
