"""Declarations of subscriptions, and the mistakes in them that are refused."""

import dagster as dg
import pytest

from feed_assets import (
    Statement,
    Webhook,
    on_change,
    with_automation,
)
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets_tests.deliveries.subscribed import HOOK, web_table
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import SUMS, raw_feed, sums_of


def test_a_subscription_is_an_asset_below_its_dataset():
    sums = sums_of(raw_feed())
    spec = on_change(sums, name="cache", to=HOOK)
    assert [each.asset_key for each in spec.deps] == [dg.AssetKey(["t", "sums"])]
    assert spec.kinds == {"webhook"}
    assert Feed.parse(SUMS) == spec.metadata["feed_assets/subscription"].instance.dataset


def by_start():
    """Declare a feed with a dimension that has the name of a parameter."""
    starts = dg.StaticPartitionsDefinition(["a"])
    return raw_feed(partitions_def=dg.MultiPartitionsDefinition({"date": sum_projects.DAYS, "start": starts}))


@each_case(
    ("options", "message"),
    [
        ({"to": Statement("CALL f(:region)", "main")}, "has the parameter :region, expected some of :dataset, "),
        ({"to": Webhook("env:A", "env:B"), "transitions": []}, "transitions is"),
        ({"to": Webhook("env:A", "env:B"), "transitions": ["gone"]}, "one of published, invalidated, open"),
        ({"to": "env:A"}, "to is 'env:A'"),
        ({"to": HOOK, "transitions": ["complete"]}, "has no windows: expected some of published, invalidated."),
        ({"to": HOOK, "grain": "hour"}, "grain is 'hour': expected none: the dataset has no grains."),
        ({"to": HOOK, "level": "region"}, "level is 'region': expected none: the dataset has no levels."),
        (
            {"dataset": web_table(), "to": HOOK, "transitions": ["published"]},
            "web/foo has no updates: expected some of open",
        ),
        ({"dataset": web_table(), "to": HOOK, "grain": "day"}, "grain is 'day': expected one of '5min', 'hour'."),
        (
            {"dataset": web_table(), "to": HOOK, "level": "city"},
            "level is 'city': expected one of 'region', 'country', ''.",
        ),
        ({"dataset": by_start(), "to": Statement("CALL f(:start)", "main")}, "the parameter :start has two meanings"),
    ],
)
def test_a_wrong_subscription_is_refused_when_it_is_declared(options, message):
    with pytest.raises(InvalidDefinition) as refused:
        on_change(**{"dataset": raw_feed(), "name": "cache", **options})
    assert message in str(refused.value)


def test_two_subscriptions_of_one_name_are_refused():
    raw = raw_feed()
    twice = [on_change(raw, name="cache", to=HOOK), on_change(raw, name="cache", to=Webhook("env:A", "env:B"))]
    with pytest.raises(Exception, match="cache"):
        with_automation(dg.Definitions(assets=[raw, *twice]))


def test_a_subscription_to_a_dataset_that_is_not_declared_is_refused_with_the_names_that_are_near():
    raw, sums = raw_feed(), sums_of(raw_feed())
    subscription = on_change(raw_feed("t/rows/v1.0"), name="cache", to=HOOK)
    with pytest.raises(InvalidDefinition) as refused:
        with_automation(dg.Definitions(assets=[raw, sums, subscription]))
    assert "the subscription cache is to t/rows/v1.0, which nobody declares here: is t/raw/v1.0 meant?" in str(
        refused.value
    )
    with pytest.raises(InvalidDefinition, match=r"which nobody declares here: add the dataset to the definitions\."):
        with_automation(dg.Definitions(assets=[subscription]))
