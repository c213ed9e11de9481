"""One manifest of a thousand files: the rows are correct, and the loader stays small."""

import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest

from feed_assets_tests.support.forked_processes import Forks, forks
from feed_assets_tests.warehouse.volume import differences, expected, loaded, signalled

MOST_MB = {"duckdb": 1400, "postgresql+psycopg": 110}
"""It takes 1200 and 72: some chunks, and what DuckDB may have. DuckDB alone would take most of the machine's memory."""


@pytest.fixture
def fork() -> Iterator[Forks]:
    with forks() as made:
        yield made


@pytest.mark.parametrize(
    ("files", "rows"), [(20, 1_000), pytest.param(1_000, 10_000, marks=pytest.mark.soak, id="1000 x 10000")]
)
def test_one_manifest_of_many_files(engine, url, local_board, fork, tmp_path, files, rows):
    name, total = f"many.{uuid4().hex[:12]}", files * rows
    keys = total * 9 // 10
    signals = signalled(local_board, name, files, rows, keys)
    assert fork.run(loaded, url, local_board.url, name, signals, tmp_path / "peak") == 0
    assert differences(engine, name, total, keys) == expected(total, keys)
    (manifest,) = local_board.files(f"manifests/{name}")
    assert (local_board.get(manifest.key) or b"").count(b'"mandatory": true') == files
    peak = float((tmp_path / "peak").read_text())
    sys.stdout.write(f"{total:,} rows in {files:,} files: the loader takes {peak:.0f} MB at most\n")
    assert peak < MOST_MB[url.partition(":")[0]]
