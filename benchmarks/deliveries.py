"""Changes of a dataset through the outbox to a local webhook, against a bare loop of the same POSTs."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import requests

from benchmarks import Benchmark, Goal, Pair, at_home
from feed_assets import Webhook, foreign_feed
from feed_assets.core.delivery_targets import DEFAULT_TRANSITIONS, Subscription
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.webhooks import SIGNATURE
from feed_assets.deliveries.changes import DatasetChange
from feed_assets.deliveries.sender import deliver, fill
from feed_assets.ledger import log
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.change_events import event_of
from feed_assets.settings import settings
from feed_assets_tests.support.alert_channels import SECRET, web_server

CHANGES = 200
FEED = Feed.parse("shop/sales/v1.0")
DAYS = dg.DailyPartitionsDefinition("2000-01-01")
SUBSCRIPTION = Subscription("cache", FEED, DEFAULT_TRANSITIONS, Webhook("env:BENCH_URL", "env:BENCH_SECRET"))


@contextmanager
def to_a_webhook() -> Iterator[Pair]:
    """Publish `CHANGES` partitions and deliver them. The floor posts as many signed events of the same size."""
    with ExitStack() as stack:
        stack.enter_context(at_home(Path(stack.enter_context(TemporaryDirectory()))))
        receiver = stack.enter_context(web_server())
        stack.enter_context(_environment({"BENCH_URL": receiver.url, "BENCH_SECRET": SECRET}))
        ledger, numbers = open_ledger(settings().ledger), count()
        graph = Graph(dg.Definitions(assets=[_sales()]).resolve_asset_graph())

        def describe(change: DatasetChange) -> Any:
            return event_of(graph, SUBSCRIPTION, change)

        def publish() -> None:
            receiver.posted.clear()
            keys = DAYS.get_partition_keys()[:CHANGES]
            at = datetime.now(UTC)
            update_id = f"20260101.{next(numbers):06}"
            changes = [log.Change(Partition(FEED, key), log.UPDATE, update_id, at, after=log.PUBLISHED) for key in keys]
            with ledger.change() as connection:
                log.append(connection, changes)

        def through_the_outbox() -> None:
            fill(ledger, SUBSCRIPTION, describe, datetime.now(UTC), lambda: False)
            sent = deliver(ledger, SUBSCRIPTION, lambda: datetime.now(UTC), lambda: False)
            if sent != CHANGES:
                raise RuntimeError(f"{sent} changes were delivered, expected {CHANGES}.")

        def bare() -> None:
            change = DatasetChange(
                1, Partition(FEED, "2000-01-01"), log.PUBLISHED, datetime.now(UTC), "20260101.000000"
            )
            for _ in range(CHANGES):
                body = json.dumps({**describe(change), "sent": datetime.now(UTC).isoformat()}).encode()
                signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
                requests.post(receiver.url, body, headers={SIGNATURE: f"sha256={signature}"}, timeout=5)

        fill(ledger, SUBSCRIPTION, describe, datetime.now(UTC), lambda: False)
        yield Pair(through_the_outbox, bare, publish)
        ledger.engine.dispose()


def _sales() -> dg.AssetSpec:
    return foreign_feed(str(FEED), schema="id string", partitions_def=DAYS)


@contextmanager
def _environment(named: dict[str, str]) -> Iterator[None]:
    environ.update(named)
    try:
        yield
    finally:
        for name in named:
            environ.pop(name)


BENCHMARKS = [
    Benchmark(
        "deliveries",
        f"{CHANGES} changes through the outbox to a local webhook",
        "a bare loop of the same POSTs",
        Goal(4),
        20,
        5,
        to_a_webhook,
    )
]
