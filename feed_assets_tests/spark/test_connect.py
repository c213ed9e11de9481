"""The essential tests again, over Spark Connect: in a process of their own, for a process has one kind of session."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from feed_assets.settings import Settings
from feed_assets.spark.session import conf
from feed_assets_tests.servers import JARS, S3Server, free_ports, stop, wait_until

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def environment(seaweedfs: S3Server) -> dict[str, str]:
    """Settings for a blackboard on S3: what users of it have, and no other test's session."""
    names = {"BLACKBOARD": "s3://connect/lake", "S3_ENDPOINT": seaweedfs.endpoint, "SPARK_JARS": str(JARS)}
    return {**os.environ, **seaweedfs.env, **{f"FEED_ASSETS_{name}": value for name, value in names.items()}}


@pytest.fixture(scope="module")
def connect_url(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[str]:
    """A Spark Connect server with the project's configuration, from the installed PySpark."""
    home, folder, (port,) = Path(pyspark.__file__).parent, tmp_path_factory.mktemp("connect"), free_ports(1)
    grpc = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    settings = Settings(
        blackboard=environment["FEED_ASSETS_BLACKBOARD"],
        s3_endpoint=environment["FEED_ASSETS_S3_ENDPOINT"],
        spark_jars=environment["FEED_ASSETS_SPARK_JARS"],
    )
    options = [f"--conf={key}={value}" for key, value in {**conf(settings), **grpc}.items()]
    command = ["bash", str(home / "sbin" / "start-connect-server.sh"), "--wait", *options]
    env = {**environment, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "TZ": "Asia/Tokyo"}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: _answers(port, server), f"Spark Connect; see {folder / 'server.log'}")
        yield f"sc://127.0.0.1:{port}"
    finally:
        stop(server)


def _answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    if server.poll() is not None:
        raise RuntimeError(f"Spark Connect ended with {server.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_essential_tests_pass_over_connect(connect_url, environment):
    env = {**environment, "FEED_ASSETS_SPARK_REMOTE": connect_url, "TZ": "America/New_York"}
    command = [sys.executable, "-m", "pytest", "-m", "connect", "-p", "no:cacheprovider", str(HERE)]
    done = subprocess.run(command, env=env, cwd=HERE.parents[1], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
