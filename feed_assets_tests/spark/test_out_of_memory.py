"""A Spark that ends for want of memory: the run that had it end says so, and what to do."""

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
