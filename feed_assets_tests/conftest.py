"""Fixtures for all tests: a real S3 server, and one blackboard on each kind of store."""

from collections.abc import Iterator
from itertools import count

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.servers import S3Server, seaweedfs_server

_BUCKETS = count(1)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A SeaweedFS server for the whole session."""
    with seaweedfs_server(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def s3_env(seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with its address and its admin's keys in the environment."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)
    return seaweedfs


@pytest.fixture
def bucket(s3_env: S3Server) -> str:
    """The name of a fresh bucket."""
    name = f"bucket-{next(_BUCKETS)}"
    s3_env.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_board(bucket: str, s3_env: S3Server) -> Blackboard:
    """A blackboard in a fresh bucket, below a prefix."""
    return Blackboard.open(f"s3://{bucket}/lake", endpoint=s3_env.endpoint)


@pytest.fixture
def local_board(tmp_path) -> Blackboard:
    """A blackboard in a fresh folder, with a space in its name."""
    return Blackboard.open((tmp_path / "black board").as_uri(), create=True)


@pytest.fixture(params=["local", "memory", "s3"])
def board(request: pytest.FixtureRequest) -> Blackboard:
    """The same behaviour is expected of each."""
    if request.param == "memory":
        return Blackboard.open("memory://")
    return request.getfixturevalue(f"{request.param}_board")
