"""The code of docs/reading.md, on a lake like the one it describes."""

import re
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from feed_assets import is_clean
from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets.reading.data import FeedData
from feed_assets.reading.reader import read
from feed_assets.settings import settings
from feed_assets_tests.support.parquet_lake import parquet

TEXT = (Path(__file__).parents[1] / "docs" / "reading.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
(ON_S3,) = re.findall(r"^```python title=on_s3.py\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
(SHOWN,) = re.findall(r"^```text\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
FIRST = datetime(2026, 6, 2, 3, 15, tzinfo=UTC)


def filled(board: Blackboard) -> Blackboard:
    """Fill seven days of two plants, events in batches, and readings in CSV."""
    for day in range(1, 8):
        rows = [{"plant": ["a"], "temperature": [day * 10.0]}, {"plant": ["b"], "temperature": [0.5]}]
        files = {f"part-{number}.parquet": parquet(row) for number, row in enumerate(rows)}
        publish(board, Partition(Feed.parse("plant/daily/v1.0"), f"2026-06-0{day}"), files, FIRST)
    for batch in ("b00000001", "b00000002"):
        at = Partition(Feed.parse("plant/events/v1.0"), f"2026-06-01/{batch}")
        publish(board, at, {"part.parquet": parquet({"event": [batch]})}, FIRST)
    readings = Partition(Feed.parse("plant/readings/v1.0"), "2026-06-01")
    publish(board, readings, {"part.csv": b"plant,temperature\na,21.5\n"}, FIRST)
    return board


@pytest.fixture
def page(home: Path, local_board: Blackboard, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names that the page's code has made, block after block."""
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", filled(local_board).url)
    settings.cache_clear()
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "<docs/reading.md>", "exec"), names)  # noqa: S102
    return names


def test_the_page_reads_the_rows_that_it_shows(page, local_board):
    assert [*page["frame"].columns] == ["plant", "temperature"]
    assert len(page["week"].updates) == 7
    assert {*page["rows"]["day"].to_pylist()} == {f"2026-06-0{day}" for day in range(1, 8)}
    assert page["before"].update_id == "20260602.031500"
    assert [left.id for left in page["some"].left_out] == ["2026-06-08", "2026-06-09", "2026-06-10"]
    assert page["events"].to_arrow() == pa.table({"event": ["b00000001", "b00000002"]})
    assert page["warm"] == 5
    assert page["largest"] == [(70.0,)]
    assert page["by_plant"] == [("a", 7), ("b", 7)]
    assert page["hot"]["temperature"].to_list() == [30.0, 40.0, 50.0, 60.0, 70.0]
    assert page["found"] == [("a", 21.5)]
    assert page["total"](local_board.url) == 2


def test_a_reading_is_shown_as_on_the_page(page, local_board):
    shown = repr(page["data"]).replace(local_board.url, "file:///lake")
    assert re.sub(r"[\d,]+ bytes", "bytes", shown) == re.sub(r"[\d,]+ bytes", "bytes", SHOWN.strip())


def test_spark_reads_the_rows_that_the_page_shows(page, spark):
    week, readings = page["by_spark"](spark)
    assert (week.count(), week.columns) == (14, ["plant", "temperature"])
    assert [tuple(row)[:2] for row in readings.where(is_clean()).collect()] == [("a", 21.5)]


def test_polars_reads_on_s3_as_the_page_says(home, s3_board, s3_env, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", filled(s3_board).url)
    monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", s3_env.endpoint)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # The server of the tests.
    settings.cache_clear()
    names: dict[str, Any] = {}
    exec(ON_S3.replace("https://s3.example.com", s3_env.endpoint), names)  # noqa: S102
    assert names["hot"].equals(pl.DataFrame({"plant": ["a", "b"], "temperature": [10.0, 0.5]}))


def test_the_page_names_all_arguments_and_only_existing_errors():
    given = [*signature(read).parameters][3:]
    assert [name for name in given if f"| `{name}=" not in TEXT] == []
    public = [name for name in vars(FeedData) if not name.startswith("_")]
    assert [name for name in public if not re.search(rf"`data\.{name}\b", TEXT)] == []
    kinds = {kind.__name__ for kind in _below(FeedAssetsError)}
    rows = re.findall(r"^\| (`[A-Z]\w+`.*?) \|", TEXT.partition("## What is refused")[2], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 8
    assert named <= kinds


def _below(kind: type) -> list[type]:
    return [each for below in kind.__subclasses__() for each in (below, *_below(below))]
