"""S3 notifications in each form, and the partition to which an object belongs."""

import json

import pytest

from feed_assets.core.errors import InvalidNotification
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.limits import SEGMENTS
from feed_assets.core.s3_events import ObjectAddress, parse_objects, partition_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.s3_notifications import by_event_bridge, by_sns

RECORD = {"eventSource": "aws:s3", "s3": {"bucket": {"name": "b"}, "object": {"key": "lake/a+b%3D1%2Fc", "size": 1}}}
PLAIN = json.dumps({"Records": [RECORD, {**RECORD, "eventName": "ObjectRemoved:Delete"}]})
TEST = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})
FEEDS = {str(feed): feed for feed in map(Feed.parse, ("ads/shown", "ads/shown/v1.0", "ads/clicked/v2.3"))}
AT = "20260101.000000"


class CountedLookups(dict[str, Feed]):
    """Feeds by name, with the number of lookups."""

    lookups = 0

    def __contains__(self, name):
        self.lookups += 1
        return super().__contains__(name)


@each_case(
    ("body", "keys"),
    [
        (PLAIN, ["lake/a b=1/c"] * 2),
        (by_sns(PLAIN), ["lake/a b=1/c"] * 2),
        (by_event_bridge("b", "lake/a+b/c"), ["lake/a+b/c"]),
        (by_sns(by_event_bridge("b", "lake/c")), ["lake/c"]),
        (json.dumps({"EventName": "s3:ObjectCreated:Put", "Key": "b/c", "Records": [RECORD]}), ["lake/a b=1/c"]),
        (TEST, []),
        (by_sns(TEST), []),
        ('{"Records": []}', []),
    ],
)
def test_each_form_of_notification_names_its_objects(body, keys):
    assert parse_objects(body) == tuple(ObjectAddress("b", key) for key in keys)


@each_case(
    "body",
    [
        "",
        "a job of somebody else",
        "null",
        "[]",
        "3",
        "[" * 100_000,
        '{"Records": 3}',
        '{"Records": [{"s3": {"bucket": {"name": "b"}}}]}',
        '{"Records": [{"eventSource": "aws:ses", "ses": {}}]}',
        by_sns("hello"),
        by_sns(by_sns(PLAIN)),
        json.dumps({"source": "aws.ec2", "detail": {"bucket": {"name": "b"}, "object": {"key": "k"}}}),
        json.dumps({"Event": "s3:Other"}),
        '{"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": null}}}]}',
    ],
)
def test_messages_not_from_s3_are_refused_with_their_beginning(body):
    with pytest.raises(InvalidNotification, match="expected a notification of S3") as refused:
        parse_objects(body)
    assert len(str(refused.value)) < 300


@each_case(
    ("key", "feed", "partition"),
    [
        (f"ads/shown/v1.0/2026-01-01/men/{AT}/_SUCCESS", "ads/shown/v1.0", "2026-01-01/men"),
        (f"ads/shown/v1.0/{AT}/_SUCCESS", "ads/shown/v1.0", ""),
        (f"ads/shown/v1.0/2026-01-01/{AT}/deep/part-1.csv", "ads/shown/v1.0", "2026-01-01"),
        (f"ads/shown/2026-01-01/{AT}/_SUCCESS", "ads/shown", "2026-01-01"),
    ],
)
def test_an_object_below_an_update_is_of_its_partition(key, feed, partition):
    assert partition_of(key, FEEDS) == Partition(Feed.parse(feed), partition)


@each_case(
    "key",
    [
        f"ads/shown/v2.0/2026-01-01/{AT}/_SUCCESS",  # a version below a feed without one is another feed's
        f"ads/clicked/2026-01-01/{AT}/_SUCCESS",
        "/" * 1000,  # in a message of 256 KiB, a sender to the queue could have 250,000
        f"ads/shown/v1.0/2026-01-01/{AT}",  # an object that is called like an update
        "ads/shown/v1.0/2026-01-01/_SUCCESS",
        "ads/shown/v1.0",
        f"ads/shown/v1.0/a\N{REPLACEMENT CHARACTER}b/{AT}/_SUCCESS",
        f"ads/shown/v1.0/../{AT}/_SUCCESS",
        f"ads/shown/v1.0//{AT}/_SUCCESS",
        f"ads/shown/v1.0/{'/'.join('abcdefghijk')}/{AT}/_SUCCESS",
        f"_feed_assets/claims/ads/shown/v1.0/2026-01-01/{AT}",
        "",
        "/",
    ],
)
def test_objects_outside_of_the_feeds_have_no_partition(key):
    feeds = CountedLookups(FEEDS)
    assert partition_of(key, feeds) is None
    assert feeds.lookups <= SEGMENTS + 1
