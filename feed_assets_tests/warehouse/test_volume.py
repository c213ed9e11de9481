"""One manifest of a thousand files: the rows are what they have to be, and the loader stays small."""

import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from feed_assets.warehouse.shapes import shape_of
from feed_assets_tests.faults.forks import Forks, forks
from feed_assets_tests.warehouse.stream import ID, Registry
from feed_assets_tests.warehouse.volume import SCHEMA, differences, loaded, signalled

MOST_MB = {"duckdb": 1400, "postgresql+psycopg": 110}
"""It takes 1200 and 61: a chunk, and what DuckDB may have. DuckDB alone would take most of the machine's memory."""

FIELDS = [ID, {"name": "n", "type": "long"}, {"name": "text", "type": "string"}]


@pytest.fixture
def fork() -> Iterator[Forks]:
    with forks() as made:
        yield made


@pytest.mark.parametrize(
    ("files", "rows"), [(20, 1_000), pytest.param(1_000, 10_000, marks=pytest.mark.soak, id="1000 x 10000")]
)
def test_one_manifest_of_many_files(engine, url, local_board, fork, tmp_path, files, rows):
    name, total = f"many.{uuid4().hex[:12]}", files * rows
    keys, schemas = total * 9 // 10, Registry()
    assert schemas.add(*FIELDS) == SCHEMA
    signals = signalled(local_board, name, files, rows, keys)
    job = url, local_board.url, name, signals, shape_of(schemas.get(SCHEMA), ("id",)), tmp_path / "peak"
    assert fork.run(loaded, *job) == 0
    gone = sum(at % 10 == 0 for at in range(keys, total))
    assert differences(engine, name, total, keys) == (keys - gone, 0, gone)
    (manifest,) = local_board.files(f"manifests/{name}")
    assert (local_board.get(manifest.key) or b"").count(b'"mandatory": true') == files
    peak = float((tmp_path / "peak").read_text())
    sys.stdout.write(f"{total:,} rows in {files:,} files: the loader takes {peak:.0f} MB at most\n")
    assert peak < MOST_MB[url.partition(":")[0]]
