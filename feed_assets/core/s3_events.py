"""Notifications of S3 about objects, in the forms in which a queue delivers them.

A notification is only a hint: the store itself shows what exists. Notifications may be lost, repeated or out of order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote_plus

from pydantic import BaseModel, Field, TypeAdapter

from feed_assets.core.errors import InvalidName, InvalidNotification
from feed_assets.core.feeds import Feed, Partition, Version, is_update_id
from feed_assets.core.limits import SEGMENTS, check_partition


@dataclass(frozen=True, order=True)
class ObjectAddress:
    """The address of a written or removed object: its bucket and its whole key there."""

    bucket: str
    key: str


class _NamedBucket(BaseModel):
    name: str


class _Object(BaseModel):
    key: str


class _S3Object(BaseModel):
    bucket: _NamedBucket
    object: _Object


class _Record(BaseModel):
    s3: _S3Object


class _FromS3(BaseModel):
    """A notification directly from a bucket. Its keys are encoded as in a web form, with `+` for a blank."""

    records: list[_Record] = Field(alias="Records")


class _Test(BaseModel):
    """The message that S3 sends once, when a notification is set up."""

    event: Literal["s3:TestEvent"] = Field(alias="Event")


class _FromSns(BaseModel):
    """A notification through an SNS topic without raw delivery. It contains the bucket's message as text."""

    message: str = Field(alias="Message")


class _FromEventBridge(BaseModel):
    """A notification through EventBridge. Its keys are not encoded."""

    source: Literal["aws.s3"]
    detail: _S3Object


_Inner = _FromS3 | _Test | _FromEventBridge
_INNER, _OUTER = TypeAdapter[_Inner](_Inner), TypeAdapter[_Inner | _FromSns](_Inner | _FromSns)


def parse_objects(body: str) -> tuple[ObjectAddress, ...]:
    """Return the objects that a message names; () for S3's test message.

    Raise InvalidNotification if the message is not from S3.
    """
    try:
        outer = _OUTER.validate_json(body)
        inner = _INNER.validate_json(outer.message) if isinstance(outer, _FromSns) else outer
    except ValueError:
        raise InvalidNotification(f"found {body[:200]!r}, expected a notification of S3.") from None
    if isinstance(inner, _FromS3):
        return tuple(ObjectAddress(each.s3.bucket.name, unquote_plus(each.s3.object.key)) for each in inner.records)
    return (
        (ObjectAddress(inner.detail.bucket.name, inner.detail.object.key),)
        if isinstance(inner, _FromEventBridge)
        else ()
    )


def partition_of(key: str, feeds: Mapping[str, Feed]) -> Partition | None:
    """Return the partition to which an object on the blackboard belongs. `feeds` are the possible feeds, by name.

    Return None if the object belongs to no partition of these feeds, or is not in an update's folder. An object in a
    folder such as `v1.0` below a feed without a version belongs to another feed.
    """
    # A feed has at most SEGMENTS and a version. A sender to the queue may name an object with 100,000 segments.
    segments = key.split("/")
    at = next((at for at in range(min(len(segments), SEGMENTS + 1), 0, -1) if "/".join(segments[:at]) in feeds), 0)
    below = segments[at:]
    depth = next((depth for depth, name in enumerate(below[:-1]) if is_update_id(name)), None)
    if not at or depth is None or "" in below[:depth]:
        return None
    feed = feeds["/".join(segments[:at])]
    if feed.version is None and Version.parse(below[0]):
        return None
    try:
        return check_partition(Partition(feed, "/".join(below[:depth])))
    except InvalidName:
        return None
