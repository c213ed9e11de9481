"""A Spark that runs out of memory: the run that caused it says so, with the remedy."""

import json
import subprocess
import sys
from textwrap import dedent

from feed_assets_tests.support.servers import ROOT

ENDS = dedent(
    """
    import json
    from feed_assets.core.attempts import end_of
    from feed_assets.core.errors import FeedAssetsError
    from feed_assets.settings import Settings
    from feed_assets.spark.run_profile import profiled

    def ended(size):
        try:
            with profiled(Settings(), {"spark.driver.memory": "512m"}, may_start=True, size=size) as spark:
                spark.range(2).selectExpr("array_max(sequence(id, 300000000))").collect()
        except FeedAssetsError as error:
            return type(error).__name__, str(error), end_of(error)

    print(json.dumps([ended(210 << 20), ended(0)]))
    """
)


def test_a_spark_that_ends_for_want_of_memory_is_an_attempt_with_a_cure(tmp_path):
    run = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, capture_output=True, text=True, check=True)
    (first, said, attempt), (second, _, no_attempt) = json.loads(run.stdout)
    assert (first, attempt) == ("SparkDied", "failed")
    assert "the run needs more memory: Spark had a heap of 0.5 GiB for 210.0 MiB of input. Set spark.driver.mem" in said
    assert (second, no_attempt) == ("SparkUnavailable", "abandoned")


BOMB = dedent(
    """
    import bz2, json, sys
    from pathlib import Path
    from feed_assets.core.attempts import end_of, is_death
    from feed_assets.core.errors import FeedAssetsError
    from feed_assets.core.feeds import Feed, File, Partition, Update
    from feed_assets.runs.spark_maker import naming_packed
    from feed_assets.settings import Settings
    from feed_assets.spark.run_profile import profiled

    path = Path(sys.argv[1])
    path.write_bytes(bz2.compress(b"id\\n" + bytes(1 << 30)))
    file = File("ads/clicks/v1.0/2024-02-29/1/a.csv.bz2", path.stat().st_size, "")
    update = Update(Partition(Feed.parse("ads/clicks/v1.0"), "2024-02-29"), "1", (file,))
    try:
        with naming_packed([update]), profiled(Settings(), {"spark.driver.memory": "512m"}, may_start=True) as spark:
            spark.read.csv(str(path), schema="id string").selectExpr("sum(length(id))").collect()
    except FeedAssetsError as error:
        print(json.dumps([file.size, str(error), end_of(error), is_death(f"{type(error).__name__}: {error}")]))
    """
)


def test_a_packed_file_that_unpacks_to_a_gigabyte_is_named_by_the_run_that_it_ends(tmp_path):
    command = [sys.executable, "-c", BOMB, str(tmp_path / "a.csv.bz2")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    size, message, end, is_counted = json.loads(run.stdout)
    assert size < 4096
    assert "Spark had a heap of 0.5 GiB" in message
    assert f"ads/clicks/v1.0/2024-02-29/1/a.csv.bz2 ({size:,} bytes)" in message
    assert (end, is_counted) == ("failed", True)
