"""SQS queues through which a bucket reports its objects.

A received message is hidden from other receivers for a while (30 s by default). Unless it is deleted, it is then
delivered again.
"""

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import boto3  # pyright: ignore[reportMissingTypeStubs]
from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
from botocore.exceptions import BotoCoreError, ClientError  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import QueueUnavailable
from feed_assets.core.message_words import sentence
from feed_assets.feeds.answers import answers_of

MESSAGES_PER_REQUEST = 10
"""The most messages that SQS delivers, or deletes, in one request."""

LONGEST_WAIT = 4
"""The most seconds that a request waits for a message."""

PATIENCE_SECONDS = 2
"""Seconds after LONGEST_WAIT until a request fails. A slow queue must not delay the listings of a tick."""

_REGION = re.compile(r"sqs(?:-fips)?\.([a-z0-9-]+)\.|([a-z0-9-]+)\.queue\.")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueueMessage:
    """A message as it was received; a request to delete it needs its `receipt`."""

    id: str
    body: str
    receipt: str


@dataclass(frozen=True)
class Queue:
    """A queue at a URL, which contains the endpoint and region.

    Without a profile, boto3's default credentials are used.

    Each request is tried once. If it fails, it raises QueueUnavailable. If there is no whole answer in time, the queue
    gets no request for a while (`answers.py`), so that later ticks do not wait for it.
    """

    url: str
    profile: str | None = None

    def receive(self, seconds: int = 0) -> list[QueueMessage]:
        """Return up to ten messages. If there is none, wait for up to `seconds`, at most `LONGEST_WAIT`."""
        wait = min(seconds, LONGEST_WAIT)
        response = self._answer("receive_message", MaxNumberOfMessages=MESSAGES_PER_REQUEST, WaitTimeSeconds=wait)
        return [
            QueueMessage(each["MessageId"], each["Body"], each["ReceiptHandle"])
            for each in response.get("Messages", ())
        ]

    def delete(self, messages: Sequence[QueueMessage]) -> None:
        """Delete messages, ten in a request. SQS delivers undeleted messages again."""
        for first in range(0, len(messages), MESSAGES_PER_REQUEST):
            batch = messages[first : first + MESSAGES_PER_REQUEST]
            entries = [{"Id": str(number), "ReceiptHandle": each.receipt} for number, each in enumerate(batch)]
            response = self._answer("delete_message_batch", Entries=entries)
            for each in response.get("Failed", ()):
                _log.warning("%s: a message was not deleted: %s", self.url, each.get("Message") or each["Code"])

    def attributes(self, names: Collection[str]) -> dict[str, str]:
        """Return attributes of the queue by name."""
        return self._answer("get_queue_attributes", AttributeNames=[*names]).get("Attributes", {})

    def _answer(self, request: str, **values: Any) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            return getattr(_client(self.url, self.profile), request)(QueueUrl=self.url, **values)

        try:
            return answers_of(self.url, self.profile).within(ask)
        except (BotoCoreError, ClientError, ValueError, OSError, RecursionError) as error:
            # Credentials may have been renewed. The next request makes a new client, which reads them again.
            _client.cache_clear()
            raise QueueUnavailable(
                f"{self.url} cannot be read: {sentence(str(error))} Listings find the new objects, but later. Check "
                "the URL, the credentials, and that they may receive and delete messages."
            ) from error


@lru_cache(maxsize=16)
def _client(url: str, profile: str | None) -> Any:
    """Return a cached client: creating one takes 0.1 s, and its connection stays open."""
    session: Any = boto3.Session(profile_name=profile)
    parts = urlsplit(url)
    match = _REGION.search(parts.netloc)
    region = next(filter(None, match.groups())) if match else session.region_name
    timeouts = {"connect_timeout": PATIENCE_SECONDS, "read_timeout": LONGEST_WAIT + PATIENCE_SECONDS}
    config = Config(**timeouts, retries={"mode": "standard", "total_max_attempts": 1})
    at = f"{parts.scheme}://{parts.netloc}"
    return session.client("sqs", endpoint_url=at, region_name=region or "us-east-1", config=config)
