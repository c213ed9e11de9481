"""Fixtures: a source and a place on each pair of stores."""

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.replication.two_ends import Ends, place_on

PAIRS = ("local-local", "local-s3", "s3-local", "s3-s3", "s3-bucket")


@pytest.fixture
def local_place(tmp_path) -> Blackboard:
    """Return a second local blackboard."""
    return Blackboard.open((tmp_path / "place b").as_uri(), create=True)


@pytest.fixture
def ends(local_board, local_place, ledger) -> Ends:
    """Return two local ends."""
    return Ends(local_board, place_on(local_place), ledger)


@pytest.fixture(params=PAIRS)
def any_ends(request: pytest.FixtureRequest, local_place, ledger) -> Ends:
    """Return ends on each pair of stores; `bucket` is another bucket of the same service."""
    source, place = request.param.split("-")
    boards = {"local": local_place}
    if place != "local":
        server = request.getfixturevalue("s3_env")
        url = f"{request.getfixturevalue('s3_url')}-b" if place == "s3" else request.getfixturevalue("partner_url")
        boards[place] = Blackboard.open(url, endpoint=server.endpoint)
    return Ends(request.getfixturevalue(f"{source}_board"), place_on(boards[place]), ledger)
