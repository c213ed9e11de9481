"""Inferred declarations read their sample files: in a run, with Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal

import dagster as dg
import pyarrow as pa
from pyarrow import parquet as pq

from feed_assets import feed_asset, with_automation
from feed_assets.infer.declaration import infer
from feed_assets.testing import Harness

CSV = (
    (
        'id;amount;at;zip;flag;said\r\n1;1,5;2024-01-01 10:00:00;00123;TRUE;"ä;b"\r\n'
        "2;NA;2024-01-01T11:00:00.5+01:00;10115;false;\r\n"
    )
    .replace("1,5", "1.50")
    .encode("latin-1")
)
JSON = b'{"id": 1, "price": 2.5, "on": "2024-01-01", "ok": true}\n{"id": 2, "price": 1, "on": null}\n'
EXPECTED = {
    "t/csv/v1.0": [
        (1, Decimal("1.50"), datetime(2024, 1, 1, 10, tzinfo=UTC), "00123", True, "ä;b"),
        (2, None, datetime(2024, 1, 1, 10, 0, 0, 500_000, tzinfo=UTC), "10115", False, None),
    ],
    "t/json/v1.0": [(1, 2.5, date(2024, 1, 1), True), (2, 1.0, None, None)],
    "t/parquet/v1.0": [(1, Decimal("1.50"), datetime(2024, 1, 1, tzinfo=UTC), ["x"])],
}


def copied(name, feed, waited_for):
    @feed_asset(name, inputs={"raw": feed}, deps=[waited_for])
    def copy(raw):
        """Return all rows that parse."""
        return raw

    return copy


def test_an_inferred_schema_reads_every_row_of_its_files(home, spark, tmp_path):
    (tmp_path / "orders.csv").write_bytes(CSV)
    (tmp_path / "prices.jsonl").write_bytes(JSON)
    at = pa.array([1704067200 * 10**9], pa.timestamp("ns", "UTC"))
    table = pa.table({"id": pa.array([1], pa.uint8()), "amount": [Decimal("1.50")], "at": at, "s": [["x"]]})
    pq.write_table(table, tmp_path / "p.parquet")
    files = [tmp_path / name for name in ("orders.csv", "prices.jsonl", "p.parquet")]
    feeds: list[dg.AssetSpec] = []
    for file in files:
        names: dict[str, object] = {}
        found = infer([file])
        exec(found.imports + found.code, names)  # noqa: S102  (what the test has just made)
        feeds.append(names[found.name])
    others = [*feeds[1:], feeds[0]]
    made = [copied(name, *pair) for name, pair in zip(EXPECTED, zip(feeds, others, strict=True), strict=True)]
    with Harness(with_automation(dg.Definitions(assets=[*feeds, *made]))) as harness:
        for file, feed in zip(files, ("orders/v1.0", "prices/v1.0", "p/v1.0"), strict=True):
            harness.drop(feed, "", {file.name: file.read_bytes()})
        assert [run.error for run in harness.run_until_idle()] == [None] * len(made)
        rows = {name: sorted(tuple(row.values()) for row in harness.rows(name)) for name in EXPECTED}
        rejects = [harness.rows(f"t/{name}_rejects/v1.0") for name in ("csv", "json")]
    assert (rows, rejects) == (EXPECTED, [[], []])
