"""One Spark session for all Spark tests: local with s3a, or over Connect if FEED_ASSETS_SPARK_REMOTE says so."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.settings import Settings
from feed_assets.spark.session import session
from feed_assets_tests.servers import S3Server

JARS = Path(__file__).parents[2] / ".cache" / "jars" / "s3a"
PARTITION = Partition(Feed.parse("ads/shown_raw/v1.0"), "2019-11-24/men + more")
_SECONDS = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Tests that also run in a process of their own over Spark Connect, by `test_connect`."""
    config.addinivalue_line("markers", "connect: also runs over Spark Connect")


@pytest.fixture(scope="session")
def seaweedfs(request: pytest.FixtureRequest) -> S3Server:
    """The S3 server; over Connect the one that the Connect server was configured for."""
    if not Settings().spark_remote:
        return request.getfixturevalue("seaweedfs")
    return S3Server(Settings().s3_endpoint or "", os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])


@pytest.fixture(scope="session")
def bucket(request: pytest.FixtureRequest, seaweedfs: S3Server) -> str:
    """The bucket of all blackboards on S3; the process that tests Connect has its own."""
    if not Settings().spark_remote:
        return request.getfixturevalue("bucket")
    seaweedfs.client().create_bucket(Bucket="connect")
    return "connect"


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session; its JVM finds the keys of the S3 server where users' are: in the environment."""
    if Settings().spark_remote:
        yield session(Settings())
        return
    server: S3Server = request.getfixturevalue("seaweedfs")
    # This one session writes to folders without checksum files, so for S3 it cannot buffer on disk.
    more = {"spark.log.level": "OFF", "spark.hadoop.fs.s3a.fast.upload.buffer": "array"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        made = session(Settings(s3_endpoint=server.endpoint, spark_jars=str(JARS), spark_conf=more))
    yield made
    made.stop()


def put_update(board: Blackboard, files: dict[str, str | bytes]) -> Update:
    """A fresh update of PARTITION with these files, as a reader pins it."""
    update_id = f"20191124.{next(_SECONDS):06d}"
    path = f"{PARTITION.path}/{update_id}"
    for name, content in files.items():
        board.put(f"{path}/{name}", content if isinstance(content, bytes) else content.encode())
    return Update(PARTITION, update_id, board.files(path))
