"""The policies of docs/policies on a real S3 server: each suffices for its role, and for nothing more."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.core.errors import BlackboardRefused
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads import sample
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate, publish
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import BUCKET, BY_POLICY, POLICIES, UNDER, S3Server, policy

KEY, URL = "2019-11-24/men", f"s3://{BUCKET}/{UNDER}"
RAW, CLICKED_RAW, SHOWN, MADE = (
    Partition(Feed.parse(f"ads/{name}/v1.0"), KEY) for name in ("shown_raw", "clicked_raw", "shown", "effectiveness")
)


@pytest.fixture
def as_(s3_env: S3Server, monkeypatch: pytest.MonkeyPatch):
    """Yield a function that opens the blackboard as a user with a policy, or as the admin."""

    def board(identity: str = s3_env.access_key) -> Blackboard:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", identity)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{identity}-secret")
        return Blackboard.open(URL, endpoint=s3_env.endpoint)

    yield board
    board().sweep("ads")
    board().sweep("_feed_assets")


def drop(board: Blackboard, partition: Partition, content: bytes) -> str:
    return publish(board, partition, {"part-1.csv": content}, datetime.now(UTC)).id


def test_policy_of_producers_publishes_their_feed_and_nothing_else(as_):
    drop(as_(), SHOWN, b"ours")
    board = as_("producer")
    update_id = drop(board, RAW, b"a\n1\n")
    assert read.require(read.latest(board, RAW)).id == update_id
    for refused in (
        lambda: drop(board, SHOWN, b"forged"),
        lambda: board.get(f"{SHOWN.path}/x/part-1.csv"),
        lambda: board.files(SHOWN.path),
        lambda: invalidate(board, RAW, update_id),
        lambda: board.put("_feed_assets/pruned/ads/shown_raw/v1.0/x", b""),
    ):
        with pytest.raises(BlackboardRefused):
            refused()


def test_policy_of_readers_reads_and_writes_nothing(as_):
    update_id = drop(as_(), SHOWN, b"ours")
    board = as_("reader-of-all")
    assert read.require(read.latest(board, SHOWN)).id == update_id
    for refused in (
        lambda: drop(board, SHOWN, b"forged"),
        lambda: drop(board, RAW, b"forged"),
        lambda: invalidate(board, SHOWN, update_id),
    ):
        with pytest.raises(BlackboardRefused):
            refused()


def test_policy_of_runs_suffices_for_a_run_and_forges_no_foreign_feed(as_, s3_env, s3a_jars, tmp_path):
    producer = as_("producer")
    drop(producer, RAW, sample.shown_csv(*KEY.split("/")))
    raw = drop(producer, CLICKED_RAW, sample.clicked_csv(*KEY.split("/")))
    board = as_("runs")
    run(s3_env, s3a_jars, tmp_path)
    made = read.require(read.latest(board, MADE))
    assert made.files != ()
    invalidate(board, MADE, made.id)
    for refused in (lambda: drop(board, CLICKED_RAW, b"forged"), lambda: invalidate(board, CLICKED_RAW, raw)):
        with pytest.raises(BlackboardRefused):
            refused()


def run(server: S3Server, jars: Path, home: Path) -> None:
    """Run `feed-assets run` with the keys of the environment, and a Spark of its own."""
    own = {
        "DAGSTER_HOME": str(home / "home"),
        "FEED_ASSETS_BLACKBOARD": URL,
        "FEED_ASSETS_S3_ENDPOINT": server.endpoint,
        "FEED_ASSETS_SPARK_JARS": str(jars),
        "FEED_ASSETS_SPARK_CONF": json.dumps({"spark.hadoop.fs.s3a.fast.upload.buffer": "array"}),
    }
    program = str(Path(sys.executable).with_name("feed-assets"))
    command = [program, "run", "-m", "feed_assets.definitions", "--until-idle"]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False, cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "built   ads/effectiveness men|2019-11-24" in done.stdout


@each_case("identity", BY_POLICY)
def test_no_policy_of_the_documentation_allows_everything(identity):
    statements = json.loads(policy(identity, ("a/b",)))["Statement"]
    assert [each["Effect"] for each in statements] == ["Allow"] * len(statements)
    assert "*" not in "".join(action for each in statements for action in each["Action"])
    assert {path.stem for path in POLICIES.glob("*.json")} == {name.partition("-")[0] for name in BY_POLICY}
