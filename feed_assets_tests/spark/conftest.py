"""The S3 server of the Spark tests, which also run over Connect where FEED_ASSETS_SPARK_REMOTE says so."""

import os
from itertools import count

import pytest

from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.settings import Settings
from feed_assets_tests.support.servers import S3Server

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


def put_update(board: Blackboard, files: dict[str, str | bytes]) -> Update:
    """A fresh update of PARTITION with these files, as a reader pins it."""
    update_id = f"20191124.{next(_SECONDS):06d}"
    path = f"{PARTITION.path}/{update_id}"
    for name, content in files.items():
        board.put(f"{path}/{name}", content if isinstance(content, bytes) else content.encode())
    return Update(PARTITION, update_id, board.files(path))
