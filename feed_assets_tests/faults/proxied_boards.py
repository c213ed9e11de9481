"""Blackboards whose requests go through the proxy."""

import os

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import RequestLimits
from feed_assets_tests.support.s3_proxy import Proxy
from feed_assets_tests.support.servers import S3Server

QUICK = RequestLimits(retries=2, timeout=30, backoff=0.005)
HASTY = RequestLimits(retries=2, timeout=0.5, backoff=0.005)


def credentials_of(server: S3Server):
    """Return a credential provider with the admin's keys."""
    found = {"access_key_id": server.access_key, "secret_access_key": server.secret_key}
    return lambda: {**found, "token": None, "expires_at": None}


def open_through(proxy: Proxy, bucket: str, patience: RequestLimits) -> Blackboard:
    """Open the blackboard through the proxy."""
    endpoint, keys = proxy.server.endpoint, credentials_of(proxy.server)
    return Blackboard.open(url_of(bucket), endpoint=endpoint, credentials=keys, patience=patience)


def url_of(bucket: str) -> str:
    """Return the URL of this process's blackboard: other processes use the bucket, too."""
    return f"s3://{bucket}/faults-{os.getpid()}"
