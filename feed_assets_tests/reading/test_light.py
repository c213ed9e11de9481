"""Reading imports neither Dagster nor Spark nor the ledger, and pandas only for a frame."""

import json
import subprocess
import sys

from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.parquet_lake import DAILY, MONDAY

PROGRAM = f"""
import json, sys
import feed_assets

def loaded():
    heavy = ("dagster", "pandas", "py4j", "pyspark", "sqlalchemy")
    return [name for name in heavy if name in sys.modules]

url = sys.argv[1]
found = feed_assets.read("{DAILY}", "{MONDAY}", blackboard=url)
rows = found.to_arrow(partition_column="day").to_pylist()
between = loaded()
frame = found.to_pandas()
print(json.dumps([rows, between, loaded(), len(frame), "boto3" in sys.modules]))
"""


@each_case("module", ["feed_assets.reading.reader", "feed_assets.reading.data"])
def test_the_modules_alone_are_light(module):
    shown = f"import sys, {module}; print(*(sys.modules.keys() & {{'dagster', 'pandas', 'pyspark', 'sqlalchemy'}}))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_reading_program_imports_only_needed_packages(lake):
    lake.put(MONDAY, {"n": [1]})
    done = subprocess.run([sys.executable, "-c", PROGRAM, lake.board.url], capture_output=True, text=True, check=True)
    rows, between, after, count, by_boto3 = json.loads(done.stdout)
    assert rows == [{"n": 1, "day": MONDAY}]
    assert (between, after, count) == ([], ["pandas"], 1)
    assert by_boto3 is lake.board.url.startswith("s3:")
