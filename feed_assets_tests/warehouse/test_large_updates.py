"""An update whose lines are larger than the memory that DuckDB may take is loaded."""

import pyarrow as pa
import pytest

from feed_assets.core.feeds import Partition
from feed_assets.core.sql_text import quoted
from feed_assets.feeds import write
from feed_assets.warehouse import dataset_state, duck
from feed_assets_tests.support.parquet_lake import parquet
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import load

ROWS = 200_000
LINE = 1_000
MEMORY = "150MB"
"""Memory limit, smaller than the lines of one file."""


def large() -> bytes:
    """Write numbers, and a long text that Parquet stores once."""
    text = pa.repeat(pa.scalar("x" * LINE), ROWS)
    return parquet(pa.table({"id": pa.array(range(ROWS), pa.int64()), "text": text}))


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_an_update_with_more_lines_than_fit_into_the_memory_of_duckdb_is_loaded(target, dataset, monkeypatch):
    monkeypatch.setitem(duck._SETTINGS, "memory_limit", MEMORY)
    write.publish(dataset.board, Partition(dataset.feed, "1"), {"part.parquet": large()}, dataset.now)
    dataset.look("1")
    assert load(target, dataset) == 1
    with opened(target.engine) as connection:
        assert [each.records for each in dataset_state.loads(connection, target.engine)] == [ROWS]
        found = connection.execute(f"SELECT count(*), sum(id), min(length(text)) FROM {quoted(dataset.name)}")
    assert found == [(ROWS, ROWS * (ROWS - 1) // 2, LINE)]
