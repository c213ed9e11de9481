"""A proxy before the S3 server, and a blackboard whose requests go through it."""

import os
from collections.abc import Iterator

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import Patience
from feed_assets_tests.faults.proxy import Proxy, proxied
from feed_assets_tests.support.servers import S3Server

QUICK = Patience(retries=2, timeout=30, backoff=0.005)
HASTY = Patience(retries=2, timeout=0.5, backoff=0.005)


@pytest.fixture(scope="session")
def s3_proxy(seaweedfs: S3Server) -> Iterator[Proxy]:
    """The proxy; each test begins with `begin()`."""
    with proxied(seaweedfs) as proxy:
        yield proxy


def keys_of(server: S3Server):
    """A credential provider with the admin's keys."""
    found = {"access_key_id": server.access_key, "secret_access_key": server.secret_key}
    return lambda: {**found, "token": None, "expires_at": None}


@pytest.fixture(scope="session")
def direct(seaweedfs: S3Server, bucket: str) -> Blackboard:
    """A blackboard with no proxy between."""
    return Blackboard.open(_url(bucket), endpoint=seaweedfs.endpoint, credentials=keys_of(seaweedfs))


@pytest.fixture(scope="session")
def through(s3_proxy: Proxy, bucket: str) -> Blackboard:
    """The same blackboard through the proxy."""
    return open_through(s3_proxy, bucket, QUICK)


@pytest.fixture(scope="session")
def hasty(s3_proxy: Proxy, bucket: str) -> Blackboard:
    """The same, by a client that does not wait long: for timeouts."""
    return open_through(s3_proxy, bucket, HASTY)


def open_through(proxy: Proxy, bucket: str, patience: Patience) -> Blackboard:
    """The blackboard through the proxy."""
    endpoint, keys = proxy.server.endpoint, keys_of(proxy.server)
    return Blackboard.open(_url(bucket), endpoint=endpoint, credentials=keys, patience=patience)


def _url(bucket: str) -> str:
    """The blackboard of this process: others use the bucket, too."""
    return f"s3://{bucket}/faults-{os.getpid()}"
