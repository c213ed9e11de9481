"""The lake on local disk and on S3, whose endpoint comes from the settings alone."""

import pytest

from feed_assets.settings import settings
from feed_assets_tests.support.parquet_lake import Lake


@pytest.fixture(params=["local", "s3"])
def lake(request, home, monkeypatch) -> Lake:
    """Return a lake on local disk and on S3: both must behave alike."""
    board = request.getfixturevalue(f"{request.param}_board")
    if request.param == "s3":
        monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", request.getfixturevalue("s3_env").endpoint)
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        settings.cache_clear()
    return Lake(board)


@pytest.fixture
def local_lake(home, local_board) -> Lake:
    """Return a lake on local disk, where the store makes no difference."""
    return Lake(local_board)
