"""A proxy before the S3 server, and a blackboard whose requests go through it."""

from collections.abc import Iterator

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.faults.proxied_boards import HASTY, QUICK, credentials_of, open_through, url_of
from feed_assets_tests.support.s3_proxy import Proxy, proxied
from feed_assets_tests.support.servers import S3Server


@pytest.fixture(scope="session")
def s3_proxy(seaweedfs: S3Server) -> Iterator[Proxy]:
    """Yield the proxy; each test starts with `begin()`."""
    with proxied(seaweedfs) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def direct(seaweedfs: S3Server, bucket: str) -> Blackboard:
    """Return a blackboard without the proxy."""
    return Blackboard.open(url_of(bucket), endpoint=seaweedfs.endpoint, credentials=credentials_of(seaweedfs))


@pytest.fixture(scope="session")
def through(s3_proxy: Proxy, bucket: str) -> Blackboard:
    """Return the blackboard as seen through the proxy."""
    return open_through(s3_proxy, bucket, QUICK)


@pytest.fixture(scope="session")
def hasty(s3_proxy: Proxy, bucket: str) -> Blackboard:
    """Return the blackboard through the proxy, with a client of short patience: for timeouts."""
    return open_through(s3_proxy, bucket, HASTY)
