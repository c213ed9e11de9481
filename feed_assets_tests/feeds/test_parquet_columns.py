"""Names and annotations of Parquet's groups, read from pyarrow's text of a schema."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from feed_assets.feeds.parquet_columns import _name_and_note, _Shape
from feed_assets_tests.support.each_case import each_case

NAMES = ["plain", "two words", "list (of names)", "a (x(y))", "a;", "brace {", " (Map)"]


@each_case("name", NAMES)
def test_names_and_annotations_of_groups_are_those_that_were_written(name):
    columns = {
        name: pa.list_(pa.int64()),
        f"{name} 2": pa.map_(pa.string(), pa.int64()),
        f"{name} 3": pa.timestamp("us"),
    }
    pq.write_table(pa.schema(columns).empty_table(), file := io.BytesIO())
    text = str(pq.ParquetFile(file).schema)
    found = {_name_and_note(line.split("field_id=-1 ")[1]) for line in text.splitlines() if "field_id=-1 " in line}
    assert {(name, "List"), (f"{name} 2", "Map"), (f"{name} 3", "Timestamp")} <= found
    assert [*_Shape(text, maps=1).wrong()] == []


def test_name_full_of_brackets_is_read_in_one_pass():
    """Use a text for which quadratic time would take years."""
    line = f"  optional group field_id=-1 {' (a(' * 2_000_000};"
    assert [*_Shape(f"\n\n{line}", maps=0).wrong()] == []
