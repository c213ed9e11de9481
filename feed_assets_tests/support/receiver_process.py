"""A receiver of the settings, to be killed; `answer` and `remove` are wrong variants that act too early.

Run as `python receiver_process.py SPOOL PORT [answer|remove]`.
"""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from feed_assets.core.feeds import Feed
from feed_assets.intake import flush, receiver
from feed_assets.intake.event_calls import Calls
from feed_assets.intake.pushed import PushedFeed
from feed_assets.intake.serve import serve
from feed_assets.runs.services import Services
from feed_assets.settings import settings

FEEDS = [
    PushedFeed(Feed.parse(name), "id string, at timestamp, n int", "at", datetime.now(UTC) - timedelta(days=30))
    for name in ("partners/men/v1.0", "partners/women/v1.0")
]


def answer_before_the_disk() -> None:
    """Patch a wrong control: a call is answered before its frame is synced, which takes a minute here."""

    class Early(receiver.Together):
        async def __call__(self, item):
            self.later = asyncio.create_task(self._in_the_end(item))

        async def _in_the_end(self, item):
            await asyncio.sleep(60)
            await super().__call__(item)

    receiver.Together = Early


def remove_before_the_ledger() -> None:
    """Patch a wrong control: a segment is removed before its first batch is published, and then the process ends."""

    def removed(_services, batch, _who):
        for segment in Path(sys.argv[1]).glob(f"{batch.partition.name}*"):
            segment.unlink()
        os._exit(9)

    flush.publish = removed


if __name__ == "__main__":
    {"answer": answer_before_the_disk, "remove": remove_before_the_ledger}.get("".join(sys.argv[3:]), lambda: None)()
    feeds = {str(each.feed): each for each in FEEDS}
    serve(Calls(Services.of(settings())), feeds, Path(sys.argv[1]), "127.0.0.1", int(sys.argv[2]))
