"""Declarations of assets: their metadata carries them, and two declarations of one feed must agree."""

import re
from datetime import timedelta
from time import process_time

import dagster as dg
import pytest

from feed_assets import (
    ByEvents,
    Cadence,
    Completeness,
    EventSource,
    Input,
    Late,
    LineageTable,
    Plan,
    Pull,
    Retention,
    Rule,
    SqlTable,
    event_table,
    feed_asset,
    foreign_feed,
    with_automation,
)
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.declare.declarations import KEY, STATUS_LINK, declarations_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import DAYS

WEEK = dg.TimeWindowPartitionMapping(start_offset=-6)
DAILY = Cadence("0 6 * * *")
SHOP = EventSource("shop", (SqlTable("sqlite:///shop.db", "events", "id"),))
OTHER_SHOP = EventSource("shop", (SqlTable("sqlite:///shop.db", "events", "number"),))


def foreign(**options):
    return foreign_feed("t/raw/v1.0", **{"schema": "k string", "partitions_def": DAYS, **options})


def table(**options):
    return event_table("t/orders", **{"source": SHOP, **options})


FOREIGN = {
    "schema": "k int",
    "partitions_def": dg.DailyPartitionsDefinition("2021-01-01"),
    "format": "json",
    "appendable": True,
    "description": "another",
    "group_name": "other",
    "tags": {"tier": "gold"},
    "kinds": {"sftp"},
    "metadata": {"runbook": "wiki/7"},
    "owners": ["team:other"],
    "retention": Retention(keep=3),
    "cadence": DAILY,
    "completeness": Completeness(ratio="99%"),
    "intake": Pull("partner", "%Y-%m-%d/*"),
}
TABLE = {
    "source": OTHER_SHOP,
    "table_name": "ORDERS",
    "partitions_def": DAYS,
    "cadence": DAILY,
    "description": "another",
    "owners": ["team:other"],
}


@each_case(
    ("declare", "name", "value"),
    [(declare, *item) for declare, options in ((foreign, FOREIGN), (table, TABLE)) for item in options.items()],
)
def test_two_different_declarations_are_refused_with_the_difference(declare, name, value):
    twice = dg.Definitions(assets=[declare(), declare(**{name: value})])
    with pytest.raises(InvalidDefinition, match=rf"is declared twice, and differs in .*\b{name}\b") as refused:
        with_automation(twice)
    assert "\n" not in str(refused.value)
    assert not re.search(r"[A-Z]\w+\(", str(refused.value))


@each_case(("declare", "options"), [(foreign, FOREIGN), (table, TABLE)])
def test_two_equal_declarations_are_one_asset(declare, options):
    for name, value in options.items():
        found = with_automation(dg.Definitions(assets=[declare(**{name: value}), declare(**{name: value})]))
        assert len([*found.assets]) == 1


def dataset(**options):
    @feed_asset(
        "t/sums/v1.0",
        **{"inputs": {"raw": Input(foreign(), mapping=WEEK, required="own", ignore_quality_issue=True)}, **options},
        partitions_def=DAYS,
    )
    def sums(raw): ...

    return sums


OF_A_DATASET = {
    "late": Late(0.05, timedelta(days=2)),
    "retention": Retention(older_than=timedelta(days=30)),
    "cadence": Cadence("*/5 * * * *", timedelta(minutes=2, microseconds=1), "Europe/Berlin"),
    "by_events": ByEvents(
        wait_for="all",
        on_incomplete="block",
        merge=False,
        pipelines=LineageTable("env:LINEAGE", "lineage"),
        plans=[
            Rule(
                Plan("reload", {"all": [1, None]}, {"a": "b"}),
                frozenset({"t/raw/v1.0"}),
                frozenset({Operation.DELETE}),
                5,
            )
        ],
        stuck_after=timedelta(hours=3),
    ),
}


def in_dagsters_graph(definitions):
    graph = Graph(definitions.resolve_asset_graph())
    return {str(feed): node.declaration for feed, node in graph.by_feed.items()}


def test_a_dataset_s_declaration_survives_dagsters_graph():
    found = in_dagsters_graph(with_automation(dg.Definitions(assets=[foreign(), dataset(**OF_A_DATASET)])))
    sums, rejects = found["t/sums/v1.0"], found["t/sums_rejects/v1.0"]
    assert {name: getattr(sums, name) for name in OF_A_DATASET} == OF_A_DATASET
    assert (sums.requires_own_of, sums.ignores_quality_of) == ((Feed.parse("t/raw/v1.0"),),) * 2
    assert (rejects.outputs, rejects.retention) == (sums.outputs, sums.retention)


@each_case(("declare", "options"), [(foreign, FOREIGN), (table, TABLE)])
def test_a_foreign_declaration_survives_dagsters_graph(declare, options):
    (found,) = in_dagsters_graph(dg.Definitions(assets=[declare(**options)])).values()
    names = vars(found).keys() & options.keys()
    assert len(names) >= 3
    assert {name: getattr(found, name) for name in names} == {name: options[name] for name in names}


def test_an_asset_has_its_declaration_and_a_link_as_metadata_of_ours():
    specs = [foreign(**FOREIGN), table(**TABLE), *dataset(**OF_A_DATASET).specs]
    assert {name for spec in specs for name in spec.metadata if name.startswith("feed_assets/")} == {KEY, STATUS_LINK}


def test_a_plan_that_json_has_no_form_for_is_refused():
    by_events = ByEvents(plans=[Rule(Plan("reload", {"what": object()}))])
    with pytest.raises(InvalidDefinition, match=r"t/sums/v1\.0: .* expected plans with values that JSON supports"):
        dataset(by_events=by_events)


def test_a_thousand_declarations_are_read_in_a_fraction_of_a_second():
    specs = [event_table(f"t/t{number}", source=SHOP, cadence=DAILY) for number in range(500)]
    specs += [foreign_feed(f"t/f{number}", schema="k int", retention=Retention(keep=3)) for number in range(500)]
    definitions, seconds = dg.Definitions(assets=specs), list[float]()
    for _ in range(5):
        began = process_time()
        assert len(declarations_of(definitions)) == 1000
        seconds.append(process_time() - began)
    assert min(seconds) < 0.1
