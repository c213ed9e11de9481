"""The peer of loads: dlt merges the same rows, from Arrow tables, with its strategy delete-insert."""

from collections.abc import Iterator, Sequence
from os import environ
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dlt
import pyarrow as pa
from dlt.destinations import duckdb, postgres
from pyarrow import compute, csv
from sqlalchemy import make_url

TYPES = {
    "_operation": pa.string(),
    "_offset": pa.int64(),
    "id": pa.int64(),
    "price": pa.float64(),
    "page": pa.string(),
}


class Peer:
    """A dlt table in a separate warehouse."""

    def __init__(self, url: str, folder: Path) -> None:
        environ.update({"RUNTIME__LOG_LEVEL": "ERROR", "RUNTIME__DLTHUB_TELEMETRY": "false"})
        made: Any = duckdb(url.removeprefix("duckdb://")) if url.startswith("duckdb") else postgres(_credentials(url))
        self._pipeline = dlt.pipeline("bench", pipelines_dir=str(folder), destination=made, dataset_name="peer")

    def load(self, files: Sequence[Path]) -> None:
        """Merge the rows of files: keep the highest offset of each key, unless it is a delete."""
        self._pipeline.run(
            _tables(files),
            table_name="clicks",
            write_disposition={"disposition": "merge", "strategy": "delete-insert"},
            primary_key="id",
            columns={"_offset": {"dedup_sort": "desc"}, "is_deleted": {"hard_delete": True}},
        )


def _credentials(url: str) -> dict[str, Any]:
    """Return the credentials of a URL; dlt takes the socket folder as the host."""
    found = make_url(url)
    host = found.host or quote(str(found.query["host"]), safe="")
    return {
        "host": host,
        "port": found.port or 5432,
        "database": found.database,
        "username": found.username,
        "password": found.password,
    }


def _tables(files: Sequence[Path]) -> Iterator[pa.Table]:
    for each in files:
        read = csv.ReadOptions(column_names=[*TYPES])
        table = csv.read_csv(each, read, convert_options=csv.ConvertOptions(column_types=TYPES))
        yield table.append_column("is_deleted", compute.equal(table["_operation"], "delete"))
