"""Several code locations on one ledger: names of subscriptions, and their alerts."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets import Webhook, on_change
from feed_assets.core.delivery_targets import Subscription
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.deliveries import owners
from feed_assets.ledger.subscriptions import GONE_AFTER
from feed_assets_tests.deliveries.subscribed import HOOK, alert_names, alerts, posted
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, SUMS, harness, later, raw_feed, sums_of

OTHER = Webhook("env:OTHER_URL", "env:CACHE_SECRET")


def test_two_locations_that_declare_one_name_differently_never_share_its_changes(hook):
    raw = raw_feed()
    first = harness(raw, on_change(raw, name="cache", to=HOOK))
    second = harness(raw, on_change(raw, name="cache", to=OTHER))
    for each in (first, second):
        each.tick()
    assert alert_names() == ["cache"]
    (alert,) = alerts()
    assert f"the subscription cache of {RAW} is declared differently by another code location" in alert
    assert "rename one of them" in alert
    first.drop(RAW, DAY, "k,n\na,1\n")
    second.tick()
    first.tick()
    assert [each["subject"] for each in posted(hook)] == [DAY]


def test_a_changed_declaration_goes_on_where_the_one_before_ended(hook, monkeypatch):
    monkeypatch.setenv("OTHER_URL", hook.url)
    raw = raw_feed()
    first = harness(raw, on_change(raw, name="cache", to=HOOK))
    first.tick()
    first.drop(RAW, DAY, "k,n\na,1\n")
    changed = harness(raw, on_change(raw, name="cache", to=OTHER))
    later(changed, owners.LIVE_FOR)
    changed.tick()
    assert [each["subject"] for each in posted(hook)] == [DAY]
    assert alerts() == []


def test_a_location_may_change_its_own_declaration_at_once(ledger):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    before, after = (Subscription("cache", Feed.parse(RAW), ("published",), to) for to in (HOOK, OTHER))
    owners.check(ledger, before, "shop", now)
    owners.check(ledger, after, "shop", now)
    owners.check(ledger, after, "web", now)
    with pytest.raises(InvalidDefinition, match="declared differently by the code location web, whose last tick was"):
        owners.check(ledger, before, "shop", now + owners.LIVE_FOR - timedelta(seconds=1))
    owners.check(ledger, before, "shop", now + owners.LIVE_FOR)


def test_a_name_of_another_location_s_subscription_is_refused_and_loses_nothing(hook):
    raw = raw_feed()
    sums = sums_of(raw)
    first = harness(raw, sums, on_change(sums, name="cache", to=HOOK))
    first.tick()
    second = harness(raw, sums, on_change(raw, name="cache", to=HOOK))
    second.drop(RAW, DAY, "k,n\na,1\n")
    second.run_until_idle()
    (alert,) = alerts()
    assert f"the subscription cache of {RAW} has the name of one of {SUMS}: rename it." in alert
    first.run_until_idle()
    assert [each["source"] for each in posted(hook)] == [f"feed_assets:{SUMS}"]


def test_an_alert_belongs_to_the_location_that_declares_the_subscription(hook):
    raw = raw_feed()
    first = harness(raw, on_change(raw, name="cache", to=HOOK))
    second = harness(raw, on_change(raw, name="other", to=HOOK, transitions=["invalidated"]))
    for each in (first, second):
        each.tick()
    hook.answers += [404]
    first.drop(RAW, DAY, "k,n\na,1\n")
    first.tick()
    second.tick()
    assert alert_names() == ["cache"]
    without = harness(raw)
    without.tick()
    assert alert_names() == ["cache"]
    for _ in range(2):  # A change that the subscription does not read shows that nobody declares it.
        later(without, 2 * GONE_AFTER)
        without.drop(RAW, NEXT_DAY, "k,n\na,1\n")
        without.tick()
    assert alert_names() == []
