"""Buckets and queues of moto: what is put into the bucket is told through the queue, in S3's own words."""

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
"""Keys are the test's own, which also reach a real S3 server."""


@dataclass
class NotifyingBucket:
    """A bucket that tells a queue. Its objects have no data: these are on the store that a test reads."""

    s3: Any
    sqs: Any
    bucket: str
    url: str

    def write(self, *keys: str) -> None:
        """Objects of these keys are written."""
        for key in keys:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=b"1")

    def remove(self, *keys: str) -> None:
        """Objects of these keys are removed."""
        for key in keys:
            self.s3.delete_object(Bucket=self.bucket, Key=key)

    def send(self, *bodies: str) -> None:
        """Messages of whoever."""
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def take(self) -> list[str]:
        """The bodies of what is told now, which is told no longer."""
        found: list[str] = []
        while some := self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages"):
            for each in some:
                found.append(each["Body"])
                self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=each["ReceiptHandle"])
        return found

    def again(self) -> None:
        """What was received and not deleted comes again, as it would half a minute later."""
        for message in sqs_backends[DEFAULT_ACCOUNT_ID][REGION].queues[QUEUE]._messages:
            message.visible_at = 0

    def have_dead_letters(self) -> None:
        """What is received often goes to another queue."""
        dead = self.sqs.create_queue(QueueName=f"{QUEUE}-dead")["QueueUrl"]
        found = self.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
        policy = json.dumps({"deadLetterTargetArn": found["QueueArn"], "maxReceiveCount": "5"})
        self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes={"RedrivePolicy": policy})

    @property
    def left(self) -> int:
        """Messages on the queue, those that are hidden now too."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@contextmanager
def notifying_bucket(bucket: str) -> Iterator[NotifyingBucket]:
    """A bucket of moto that tells a queue of moto of every object; boto3 reaches other servers as ever."""
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
    """The same message through a topic of SNS without raw delivery."""
    return json.dumps({"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:1:t", "Message": body})


def by_event_bridge(bucket: str, key: str, kind: str = "Object Created") -> str:
    """What EventBridge says of an object."""
    detail = {"version": "0", "bucket": {"name": bucket}, "object": {"key": key, "size": 1}}
    return json.dumps({"version": "0", "source": "aws.s3", "detail-type": kind, "detail": detail})
