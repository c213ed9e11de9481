"""The script of a job of EMR Serverless, as `spark-submit` starts it: with its own Spark, and with Pipes over S3."""

import json
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.orchestration.execute import emr_maker
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.emr_doubles import REGION, WAY, emr_double, environment_of
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, raw_feed, sums_of

ROOT = Path(__file__).parents[2]
SUBMIT = "--master local[1] --conf spark.driver.memory=512m --conf spark.driver.host=127.0.0.1 pyspark-shell"
raw = raw_feed()
sums = sums_of(raw)
defs = dg.Definitions(assets=[raw, sums])
"""Module-level definitions for the job."""


def started_as_in_aws(folder: Path):
    """Return the work of a job: its script in a process of its own, whose master `spark-submit` has chosen."""
    script, empty = folder / "job.py", folder / "empty"
    script.write_text("from feed_assets.cli.emr_job import main\n\nmain()\n")
    empty.mkdir(0o700)

    def work(job):
        own = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
        own |= {"PYSPARK_SUBMIT_ARGS": SUBMIT, "PYTHONPATH": str(ROOT), "DAGSTER_HOME": str(empty)}
        command = [sys.executable, str(script), *job.job_driver["sparkSubmit"]["entryPointArguments"]]
        done = subprocess.run(command, env={**own, **environment_of(job)}, cwd=empty, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return "RUNNING"

    return work


def test_the_script_of_a_job_makes_writes_and_audits_rows_with_its_own_spark(
    home, seaweedfs, bucket, tmp_path, monkeypatch
):
    monkeypatch.setattr(emr_maker, "POLL_SECONDS", 0)
    with emr_double(monkeypatch) as double, dg.DagsterInstance.ephemeral() as instance:
        for name, value in seaweedfs.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", f"https://emr-serverless.{REGION}.amazonaws.com")
        targets = {"aws": double.target(module=__name__, bucket=bucket)}
        monkeypatch.setenv("FEED_ASSETS_TARGETS", json.dumps(targets))
        settings.cache_clear()
        content = b"k,n\na,1\na,2\nb,3\nb,x\n"
        publish(open_board(settings()), Partition(Feed.parse(RAW), DAY), {"part-0.csv": content}, utc_now())
        double.script = [*WAY, started_as_in_aws(tmp_path), "SUCCESS"]
        assert dg.materialize([sums], partition_key=DAY, instance=instance).success
    board = open_board(settings())
    (update,) = read.history(board, Partition(Feed.parse(SUMS), DAY))
    rows = [row for file in update.files for row in pq.read_table(BytesIO(board.get(file.key))).to_pylist()]
    assert sorted((row["k"], row["n"]) for row in rows) == [("a", 3), ("b", 3)]
    (rejects,) = read.history(board, Partition(Feed.parse("t/sums_rejects/v1.0"), DAY))
    assert len(rejects.files) == 1
