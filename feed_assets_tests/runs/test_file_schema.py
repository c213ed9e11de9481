"""Files checked before their publication: a short answer in little memory for any content."""

import gzip
import tracemalloc

import pytest

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.limits import READ_BYTES
from feed_assets.runs.file_schema import check_file


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_a_packed_line_without_end_is_refused_and_not_kept_whole(tmp_path, kind):
    file = tmp_path / f"a.{kind}.gz"
    with gzip.open(file, "wb", compresslevel=1) as packed:
        for _ in range(300):
            packed.write(b"x" * 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableUpdate, match=f"a line has more than {READ_BYTES} characters"):
            check_file(file, kind, "id string")
        assert tracemalloc.get_traced_memory()[1] < 5 * READ_BYTES
    finally:
        tracemalloc.stop()


def test_json_that_is_too_deep_is_no_object_and_no_traceback(tmp_path):
    (tmp_path / "a.json").write_text('{"a":' * 100_000)
    with pytest.raises(UnreadableUpdate, match="expected a JSON object with 'id'"):
        check_file(tmp_path / "a.json", "json", "id string")
