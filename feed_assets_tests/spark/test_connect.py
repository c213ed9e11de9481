"""The essential tests again, over Spark Connect: in a separate process, as a process has one kind of session."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.settings import Settings
from feed_assets.spark.session import conf
from feed_assets_tests.support.servers import S3Server, connect_server

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def environment(seaweedfs: S3Server, s3a_jars: Path) -> dict[str, str]:
    """Return settings for a blackboard on S3, as users have them, and without the session of another test."""
    names = {"BLACKBOARD": "s3://connect/lake", "S3_ENDPOINT": seaweedfs.endpoint, "SPARK_JARS": str(s3a_jars)}
    return {**os.environ, **seaweedfs.env, **{f"FEED_ASSETS_{name}": value for name, value in names.items()}}


@pytest.fixture(scope="module")
def connect_url(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[str]:
    """Start a Spark Connect server with the project's configuration, from the installed PySpark."""
    settings = Settings(
        blackboard=environment["FEED_ASSETS_BLACKBOARD"],
        s3_endpoint=environment["FEED_ASSETS_S3_ENDPOINT"],
        spark_jars=environment["FEED_ASSETS_SPARK_JARS"],
    )
    env = {**environment, "TZ": "Asia/Tokyo"}
    with connect_server(tmp_path_factory.mktemp("connect"), conf(settings), env) as url:
        yield url


def test_the_essential_tests_pass_over_connect(connect_url, environment):
    env = {**environment, "FEED_ASSETS_SPARK_REMOTE": connect_url, "TZ": "America/New_York"}
    command = [sys.executable, "-m", "pytest", "-m", "connect", "-p", "no:cacheprovider", str(HERE)]
    done = subprocess.run(command, env=env, cwd=HERE.parents[1], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
