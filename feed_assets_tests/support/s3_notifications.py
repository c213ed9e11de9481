"""Buckets and queues of moto: the queue reports each write to the bucket, in S3's own format."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.sqs import sqs_backends

REGION, QUEUE = "eu-west-1", "manifests"
EVENTS = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]
AWS = {"core": {"mock_credentials": False}}
"""Keys are the test's own, which must also reach a real S3 server."""


@dataclass
class NotifyingBucket:
    """A bucket that notifies a queue. Its objects have no data: a test reads those from its own store."""

    s3: Any
    sqs: Any
    bucket: str
    url: str

    def write(self, *keys: str) -> None:
        """Write objects with these keys."""
        for key in keys:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=b"1")

    def remove(self, *keys: str) -> None:
        """Remove the objects with these keys."""
        for key in keys:
            self.s3.delete_object(Bucket=self.bucket, Key=key)

    def send(self, *bodies: str) -> None:
        """Send messages with these bodies, as any sender could."""
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def take(self) -> list[str]:
        """Receive all visible messages, and delete them from the queue. Return their bodies."""
        found: list[str] = []
        while some := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            for each in some:
                found.append(each["Body"])
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=each["ReceiptHandle"])
        return found

    def again(self) -> None:
        """Make received messages that were not deleted visible again, as half a minute later."""
        for message in sqs_backends[DEFAULT_ACCOUNT_ID][REGION].queues[QUEUE]._messages:
            message.visible_at = 0

    def have_dead_letters(self) -> None:
        """Move messages that are received too often to a dead-letter queue."""
        dead = self.sqs.create_queue(QueueName=f"{QUEUE}-dead")["QueueUrl"]
        found = self.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = json.dumps({"deadLetterTargetArn": found["QueueArn"], "maxReceiveCount": "5"})
        self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes={"RedrivePolicy": policy})

    @property
    def left(self) -> int:
        """Return the number of messages on the queue, including those that are hidden now."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@contextmanager
def notifying_bucket(bucket: str) -> Iterator[NotifyingBucket]:
    """Run a bucket and a queue of moto that reports every object; boto3 still reaches other servers."""
    with mock_aws(config=AWS):
        s3 = boto3.client("s3", region_name=REGION, endpoint_url=f"https://s3.{REGION}.amazonaws.com")
        sqs = boto3.client("sqs", region_name=REGION, endpoint_url=f"https://sqs.{REGION}.amazonaws.com")
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        url = sqs.create_queue(QueueName=QUEUE)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        told = {"QueueConfigurations": [{"QueueArn": arn, "Events": EVENTS}]}
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=told)
        yield NotifyingBucket(s3, sqs, bucket, url)


def by_sns(body: str) -> str:
    """Return the message as SNS forwards it without raw delivery."""
    return json.dumps({"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:1:t", "Message": body})


def by_event_bridge(bucket: str, key: str, kind: str = "Object Created") -> str:
    """Return EventBridge's message about an object."""
    detail = {"version": "0", "bucket": {"name": bucket}, "object": {"key": key, "size": 1}}
    return json.dumps({"version": "0", "source": "aws.s3", "detail-type": kind, "detail": detail})
