"""Number of requests that a reader needs, counted by a proxy before a real S3 server."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.feeds.read import latest, require
from feed_assets_tests.faults.many_objects import put_many

SIZES = [10, 1_000, 3_000, pytest.param(100_000, marks=pytest.mark.soak)]


@pytest.fixture(scope="module", params=SIZES)
def long_feed(request, direct):
    """Return a partition with an update every five minutes until now, and its ids in order.

    Only the newest three have files.
    """
    partition = Partition(Feed.parse(f"requests/of_{request.param}/v1.0"))
    now = datetime.now(UTC)
    ids = [update_id(now - timedelta(minutes=5 * ago)) for ago in range(request.param, 0, -1)]
    put_many(direct, [f"{partition.path}/{name}/_SUCCESS" for name in ids[:-3]], b"0")
    for name in ids[-3:]:
        direct.put(f"{partition.path}/{name}/part-0.csv", name.encode())
        direct.put(f"{partition.path}/{name}/_SUCCESS", b"1")
    return partition, ids


def test_reader_without_a_position_needs_three_listings_and_one_read(long_feed, through, s3_proxy):
    partition, ids = long_feed
    s3_proxy.begin()
    assert require(latest(through, partition)).id == ids[-1]
    asked = s3_proxy.requests
    assert asked["list"] <= 3, s3_proxy.asked
    assert (asked["get manifest"], len(s3_proxy.asked)) == (1, asked["list"] + 1)


@pytest.mark.parametrize("behind", [1, 2, 9])
def test_a_reader_with_a_known_position_needs_two_listings_and_one_read(long_feed, through, s3_proxy, behind):
    partition, ids = long_feed
    s3_proxy.begin()
    assert require(latest(through, partition, known_id=ids[-behind])).id == ids[-1]
    assert s3_proxy.asked == ["list", "get manifest", "list"]


def test_reader_finds_an_older_update_when_its_known_one_is_invalid(long_feed, through, direct, s3_proxy):
    partition, ids = long_feed
    manifest = f"{partition.path}/{ids[-1]}/_SUCCESS"
    direct.delete([manifest])
    s3_proxy.begin()
    reading = latest(through, partition, known_id=ids[-1])
    direct.put(manifest, b"1")
    assert (require(reading).id, [skipped.id for skipped in reading.skipped]) == (ids[-2], [ids[-1]])
    assert s3_proxy.requests["list"] <= 5  # One of them looks for pruned updates.
