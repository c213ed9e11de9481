"""Subscriptions in YAML declare the same as Python, and errors name the file and line."""

import re
from textwrap import dedent

import dagster as dg
import pytest

from feed_assets import (
    Completeness,
    RefreshView,
    Statement,
    SubscriptionsComponent,
    Webhook,
    foreign_feed,
    on_change,
    state_table,
)
from feed_assets.orchestration.declare.declarations import specs_of
from feed_assets.orchestration.declare.on_change import KEY

TABLES = dedent(
    """
    type: feed_assets.StateTablesComponent
    attributes:
      start: "2026-01-01"
      tables: [{table: web/foo, completeness: {grains: [5min, hour], tiers: [kafka]}}]
    """
)
SHOP = dedent(
    """
    import dagster as dg
    from feed_assets import foreign_feed

    days = dg.DailyPartitionsDefinition("2026-01-01")
    sales = foreign_feed("shop/sales/v1.0", schema="id string", partitions_def=days)
    """
)
SUBSCRIPTIONS = dedent(
    """
    type: feed_assets.SubscriptionsComponent
    attributes:
      subscriptions:
        - dataset: web/foo
          at: tables
          name: cache
          to: {url: "env:CACHE_URL", secret: "env:CACHE_SECRET"}
          transitions: [complete, invalid]
          grain: hour
          description: Visits of an hour.
          owners: ["team:web"]
        - {dataset: shop/sales, at: shop.py, name: by_day, to: {view: reports.by_day, warehouse: main}}
        - dataset: shop/sales
          at: shop.py
          name: totals
          to: {sql: "CALL reports.recompute(:start)", warehouse: main, seconds: 60}
    """
)
FILES = {"tables/defs.yaml": TABLES, "shop.py": SHOP, "subscriptions/defs.yaml": SUBSCRIPTIONS}


def shown(spec):
    subscription = spec.metadata[KEY].instance
    return subscription, spec.description, spec.group_name, spec.kinds, [*spec.owners], [*spec.deps]


def test_subscriptions_in_yaml_equal_those_in_python(project):
    foo = state_table(
        "web/foo",
        partitions_def=dg.HourlyPartitionsDefinition("2026-01-01-00:00"),
        completeness=Completeness(("5min", "hour"), tiers=("kafka",)),
    )
    days = dg.DailyPartitionsDefinition("2026-01-01")
    sales = foreign_feed("shop/sales/v1.0", schema="id string", partitions_def=days)
    in_python = [
        on_change(
            foo,
            name="cache",
            to=Webhook("env:CACHE_URL", "env:CACHE_SECRET"),
            transitions=["complete", "invalid"],
            grain="hour",
            description="Visits of an hour.",
            owners=["team:web"],
        ),
        on_change(sales, name="by_day", to=RefreshView("reports.by_day", "main")),
        on_change(sales, name="totals", to=Statement("CALL reports.recompute(:start)", "main", seconds=60)),
    ]
    definitions = project(FILES)
    by_key = {spec.key: spec for spec in specs_of(definitions)}
    assert [shown(by_key[each.key]) for each in in_python] == [shown(each) for each in in_python]
    assert "subscriptions" in {each.name for each in definitions.get_repository_def().sensor_defs}


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("grain: hour", "grian: hour", r"grian at .*defs\.yaml:10.*no such key: is grain meant\?"),
        ("grain: hour", "grain: day", "grain is 'day': expected one of '5min', 'hour'"),
        (
            "{url: ",
            "{urls: ",
            "expected a mapping with `url` and `secret`, `view` and `warehouse`, or `sql` and `warehouse`",
        ),
        ("env:CACHE_SECRET", "text", "it is 'text' .*expected env:NAME"),
        (', secret: "env:CACHE_SECRET"', "", r"to\.secret at .*it is missing"),
        ("view: reports.by_day", "view: by_day", r"to\.view at .*it is 'by_day' .*expected schema\.view"),
        ("[complete, invalid]", "[gone]", "it is 'gone' .*expected one of published"),
        ("dataset: web/foo", "dataset: web/fo", "web/fo at 'tables': no asset there has this key"),
        ("at: tables", "at: subscriptions", "a separate folder"),
        ("name: cache", "name: totals", "the subscription totals is declared twice: rename one"),
    ],
)
def test_a_mistake_in_the_yaml_of_a_subscription_names_its_place(project, right, wrong, words):
    assert right in SUBSCRIPTIONS
    with pytest.raises(Exception, match=r"Error while|declared twice") as refused:
        project(FILES | {"subscriptions/defs.yaml": SUBSCRIPTIONS.replace(right, wrong, 1)})
    text = " ".join(f"{refused.value} {refused.value.__cause__}".split())
    assert re.search(words, text)


def test_the_subscriptions_component_has_a_schema_of_its_attributes():
    schema = SubscriptionsComponent.get_model_cls().model_json_schema()
    assert {"dataset", "at", "name", "to", "transitions"} <= schema["$defs"]["SubscriptionModel"]["properties"].keys()
