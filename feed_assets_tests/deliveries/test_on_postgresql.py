"""Owners, turns and positions with the ledger on PostgreSQL. A row that a statement leaves as it was must not count."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.delivery_targets import Subscription, Webhook
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.deliveries import outbox, owners, positions
from feed_assets.ledger.database import open_ledger
from feed_assets_tests.support.sum_projects import RAW

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def ledger(postgresql):
    opened = open_ledger(postgresql.database())
    yield opened
    opened.engine.dispose()


def test_the_second_of_two_never_gets_what_the_first_has(ledger):
    one, other = (
        Subscription("cache", Feed.parse(RAW), ("published",), Webhook(url, "env:B")) for url in ("env:A", "env:C")
    )
    owners.check(ledger, one, "shop", NOW)
    with pytest.raises(InvalidDefinition, match="declared differently by the code location shop"):
        owners.check(ledger, other, "web", NOW)
    owners.check(ledger, other, "web", NOW + owners.LIVE_FOR)

    until = NOW + timedelta(minutes=1)
    with ledger.write() as connection:
        taken = [outbox.take_turn(connection, "cache", holder, NOW, until) for holder in ("a", "b", "a")]
        assert taken == [True, False, True]
        assert [positions.advance(connection, "cache", Feed.parse(RAW), None, 7) for _ in range(2)] == [True, False]
        assert positions.position(connection, "cache", Feed.parse(RAW)) == 7
