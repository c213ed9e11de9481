"""Lines of an update's files: without columns of folder names, and independent of the machine's time zone."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from feed_assets.warehouse import parquet_lines as module
from feed_assets.warehouse.duck import opened_at
from feed_assets.warehouse.parquet_lines import Rows
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.warehouse_datasets import parquet


def written(folder, content: bytes, name: str = "part-0.parquet") -> Rows:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Rows([path])


def test_folders_are_no_columns(tmp_path):
    rows = written(tmp_path, parquet([{"id": 1}]), "country=de/part-0.parquet")
    assert [*rows.types] == ["id"]


@each_case("name", ["a*.parquet", "?.parquet", "[ab].parquet", "**.parquet", "{a,b}.parquet"])
def test_a_file_named_like_a_pattern_is_read_alone(tmp_path, name):
    """DuckDB once read `a*.parquet` for each file that it matches, so that rows came twice."""
    for each in ("a.parquet", "ab.parquet", name):
        rows = written(tmp_path, parquet([{"id": 1}]), each)
    assert rows.write(["id"], tmp_path / f"of {name}")[0] == 1


@pytest.fixture
def _elsewhere(monkeypatch):
    def opened(path):
        connection = opened_at(path)
        connection.execute("SET TimeZone = 'America/New_York'")
        return connection

    monkeypatch.setattr(module, "opened_at", opened)


@pytest.mark.usefixtures("_elsewhere")
def test_moments_are_utc_wherever_the_machine_is(tmp_path):
    """Keep timestamps in JSON as they are written."""
    at = datetime(2026, 1, 31, 23, 59, 59, 5, tzinfo=UTC)
    moments = pa.schema([("at", pa.timestamp("us", "UTC")), ("list", pa.list_(pa.timestamp("us", "UTC")))])
    rows = written(tmp_path, parquet([{"at": at, "list": [at]}], moments))
    count, (lines,) = rows.write(["at", "list"], tmp_path / "lines")
    assert count == 1
    text = "2026-01-31 23:59:59.000005+00"
    assert lines.read_text() == f'"{text}","[""{text}""]"\n'
