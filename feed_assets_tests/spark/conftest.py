"""The S3 server of the Spark tests, which also run over Connect where FEED_ASSETS_SPARK_REMOTE says so."""

import os

import pytest

from feed_assets.settings import Settings
from feed_assets_tests.support.servers import S3Server


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of tests that `test_connect` repeats in a separate process over Spark Connect."""
    config.addinivalue_line("markers", "connect: also runs over Spark Connect")


@pytest.fixture(scope="session")
def seaweedfs(request: pytest.FixtureRequest) -> S3Server:
    """Return the S3 server; over Connect, the one in the configuration of the Connect server."""
    if not Settings().spark_remote:
        return request.getfixturevalue("seaweedfs")
    return S3Server(Settings().s3_endpoint or "", os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])


@pytest.fixture(scope="session")
def bucket(request: pytest.FixtureRequest, seaweedfs: S3Server) -> str:
    """Return the bucket of all blackboards on S3; the process that tests Connect has its own."""
    if not Settings().spark_remote:
        return request.getfixturevalue("bucket")
    seaweedfs.client().create_bucket(Bucket="connect")
    return "connect"
