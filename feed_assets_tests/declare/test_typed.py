"""Every parameter of every public declaration refuses wrong types, in one line."""

import inspect
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

import feed_assets
from feed_assets import checks
from feed_assets.core.errors import InvalidDefinition
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.public_declarations import DECLARED, NO_DECLARATIONS, PARTS, RAW, parameters

WRONG: dict[str, Any] = {
    "ByEvents.wait_for": "both",
    "ByEvents.on_incomplete": True,
    "ByEvents.merge": "yes",
    "ByEvents.pipelines": {"nightly": "t/raw"},
    "ByEvents.plans": feed_assets.Rule(feed_assets.Plan()),
    "ByEvents.stuck_after": 3600,
    "Cadence.cron": 6,
    "Cadence.tolerance": 60,
    "Cadence.timezone": None,
    "Columns.table_name": None,
    "Columns.marker": feed_assets.Constant("1"),
    "Columns.event_marker": 1,
    "Columns.correlation_id": None,
    "Columns.write_operation": ["INSERT"],
    "Columns.partition_key": 1,
    "Columns.context": {},
    "Columns.others_in_context": "all",
    "Constant.value": 1,
    "DeletesTable.url": None,
    "DeletesTable.table": 1,
    "DeletesTable.key": ["a", "b"],
    "DeletesTable.deleted_at": None,
    "DeletesTable.schema": 1,
    "EventFiles.prefix": None,
    "EventFiles.format": "json",
    "EventFiles.columns": {"marker": "at"},
    "EventFiles.blackboard": "s3://theirs",
    "EventSource.name": 1,
    "EventSource.parts": PARTS[0],
    "EventSource.out_of_order": "drop",
    "Input.feed": "shop/lines/v1.0",
    "Input.mapping": dg.TimeWindowPartitionMapping,
    "Input.ignore_quality_issue": "yes",
    "Input.tagged": 1,
    "Input.required": "other",
    "Late.growth": True,
    "Late.max_age": 2,
    "Late.files": "3",
    "Late.cut_off": 7,
    "Late.combine": "some",
    "Late.check": timedelta(days=1),
    "Late.lookback": "7",
    "Late.value_per_gb": "5",
    "LineageFile.key": 1,
    "LineageFile.pipeline": None,
    "LineageFile.table_name": ["a"],
    "LineageFile.blackboard": "s3://theirs",
    "LineageTable.url": None,
    "LineageTable.table": 1,
    "LineageTable.pipeline": None,
    "LineageTable.table_name": ["a"],
    "LineageTable.schema": 1,
    "Plan.kind": "full",
    "Plan.config": ["all"],
    "Plan.tags": {"a": 1},
    "Profile.measures": "count(1)",
    "Profile.baseline": "28 days",
    "Profile.off_by": 0,
    "RefreshView.seconds": 0.5,
    "RefreshView.view": "by_day",
    "RefreshView.warehouse": "",
    "Resources.cores": "2",
    "Resources.memory": "4 GB",
    "Resources.target": 1,
    "Resources.labels": [1],
    "Resources.priority": "high",
    "Resources.learned": "yes",
    "Retention.keep": True,
    "Retention.older_than": 30,
    "Rule.plan": "reload",
    "Rule.tables": "t/raw",
    "Rule.operations": frozenset({"DELETE"}),
    "Rule.at_least": 1.5,
    "SqlTable.url": None,
    "SqlTable.table": 1,
    "SqlTable.order_by": ["id"],
    "SqlTable.columns": {"marker": "at"},
    "SqlTable.where": {"table_name": "ORDERS"},
    "SqlTable.schema": 1,
    "checks.Check.name": 1,
    "checks.Check.description": None,
    "checks.Check.passes": True,
    "checks.Check.aggregate": len,
    "checks.Check.evidence": "rows",
    "checks.Check.measure": "count(1)",
    "checks.Check.offending": "a > 1",
    "checks.Check.finding": 1,
    "checks.Check.inputs": "raw",
    "checks.Check.severity": "warn",
    "checks.not_null.columns": ["a", "b"],
    "checks.references.child": RAW,
    "checks.references.parent": 1,
    "checks.references.on": ["k"],
    "checks.references.at_least": None,
    "checks.unique.columns": 1,
    "checks.within.column": ["a"],
    "checks.within.low": "0",
    "checks.within.high": None,
    "event_table.name": 1,
    "event_table.source": "shop",
    "event_table.table_name": ["ORDERS"],
    "event_table.partitions_def": "daily",
    "event_table.cadence": "0 6 * * *",
    "event_table.description": 1,
    "event_table.owners": "team:shop",
    "event_table.version_in_key": "v2.0",
    "feed_asset.feed": RAW,
    "feed_asset.inputs": [RAW],
    "feed_asset.deps": {"raw": RAW},
    "feed_asset.partitions_def": "daily",
    "feed_asset.checks": checks.not_empty,
    "feed_asset.profile": {"rows": "count(1)"},
    "feed_asset.deep_checks": checks.not_empty,
    "feed_asset.late": 0.05,
    "feed_asset.resources": {"cores": 2},
    "feed_asset.retention": timedelta(days=30),
    "feed_asset.appendable": "yes, please",
    "feed_asset.by_events": True,
    "feed_asset.cadence": timedelta(days=1),
    "feed_asset.event_time": dg.TimeWindow,
    "feed_asset.chart": "svg",
    "feed_asset.description": 1,
    "feed_asset.group_name": 1,
    "feed_asset.tags": ["tier"],
    "feed_asset.kinds": "parquet",
    "feed_asset.metadata": ["rows"],
    "feed_asset.owners": "team:ads",
    "feed_asset.code_version": 7,
    "feed_asset.pool": 2,
    "feed_asset.at": 2,
    "feed_asset.version_in_key": "v2.0",
    "compacted_copy.source": 1,
    "compacted_copy.feed": 1,
    "compacted_copy.sort_by": [1],
    "compacted_copy.wait": timedelta(hours=1),
    "compacted_copy.late": "5%",
    "compacted_copy.retention": 3,
    "foreign_feed.feed": 1,
    "foreign_feed.schema": {"k": "string"},
    "foreign_feed.partitions_def": dg.DailyPartitionsDefinition,
    "foreign_feed.format": "xml",
    "foreign_feed.delimiter": "||",
    "foreign_feed.quote": 1,
    "foreign_feed.encoding": "latin1",
    "foreign_feed.header": "no",
    "foreign_feed.null_value": 0,
    "foreign_feed.appendable": "yes",
    "foreign_feed.description": 1,
    "foreign_feed.group_name": 1,
    "foreign_feed.tags": ["tier"],
    "foreign_feed.kinds": "parquet",
    "foreign_feed.metadata": ["rows"],
    "foreign_feed.owners": "team:ads",
    "foreign_feed.retention": 30,
    "foreign_feed.cadence": "0 6 * * *",
    "foreign_feed.event_time": 1,
    "foreign_feed.intake": "send",
    "Pull.blackboard": "s3://theirs",
    "Pull.pattern": 1,
    "Pull.prefix": "../out",
    "Pull.cron": 6,
    "Pull.lookback": -1,
    "Pull.changed": "ignore",
    "foreign_feed.blackboard": "s3://theirs",
    "foreign_feed.version_in_key": "v2.0",
    "BatchDate.only": "apac",
    "DayToDate.only": {"region": 1},
    "Webhook.secret": "text",
    "Webhook.url": "https://cache.example",
    "Within.only": ["apac"],
    "Compact.files": 0,
    "Compact.sort_by": [1],
    "Compact.target": "256 MB",
    "Compact.when": "late",
    "Completeness.grains": "5min",
    "Completeness.ratio": 0.99995,
    "Completeness.tiers": "kafka",
    "Completeness.tz": 8,
    "Member.tz": 8,
    "Member.since": "2026-01-01",
    "Member.until": 2026,
    "Member.below": {"country": None},
    "Regions.members": ["apac"],
    "Regions.below": {"country": None},
    "Regions.name": 1,
    "Statement.seconds": "60",
    "Statement.sql": " ",
    "Statement.warehouse": "a b",
    "SubPartitions.name": 1,
    "SubPartitions.members": ["sg"],
    "SubPartitions.below": "country",
    "Watermark.upto": "end of day",
    "Input.checks": "no_bots",
    "Input.late": "5%",
    "Wait.earliest": 6,
    "Wait.tz": None,
    "Wait.delay": 60,
    "Wait.deadline": 60,
    "Wait.warn": 60,
    "Wait.at_least": "most",
    "Wait.after": 60,
    "feed_asset.wait": timedelta(hours=1),
    "feed_asset.reprocess": True,
    "feed_asset.figures": "sum(n)",
    "Input.optional": "yes",
    "Input.beyond": "end of partition",
    "foreign_feed.completeness": "99%",
    "foreign_feed.regions": {"apac": "Asia/Singapore"},
    "feed_asset.compact": True,
    "feed_asset.blackboard": "s3://ours",
    "feed_asset.completeness": "99%",
    "feed_asset.regions": {"apac": "Asia/Singapore"},
    "EventTopic.topic": 1,
    "EventTopic.format": "csv",
    "EventTopic.columns": {"marker": "id"},
    "TopicCounts.dataset": 1,
    "TopicCounts.tier": "kafka",
    "TopicCounts.grain": 5,
    "kafka_topic.counts": "t/hours",
    "kafka_topic.name": 1,
    "kafka_topic.topic": 1,
    "kafka_topic.key": "id",
    "kafka_topic.messages": "10k",
    "kafka_topic.seconds": timedelta(minutes=1),
    "kafka_topic.operation": 1,
    "kafka_topic.values": "xml",
    "kafka_topic.schema": {"id": "int"},
    "kafka_topic.keys": "varchar",
    "kafka_topic.framing": "avro",
    "kafka_topic.mask": {"email": "sha1"},
    "kafka_topic.flatten": "deep",
    "kafka_topic.format": "orc",
    "kafka_topic.gzip": "yes",
    "kafka_topic.conflicts": "ignore",
    "kafka_topic.newest_by": 1,
    "kafka_topic.snapshot_markers": 1,
    "kafka_topic.lag": "5%",
    "kafka_topic.cadence": "0 6 * * *",
    "kafka_topic.description": 1,
    "kafka_topic.owners": "team:ads",
    "kafka_topics.prefix": 1,
    "kafka_topics.pattern": 1,
    "kafka_topics.warehouses": "main",
    "kafka_topics.histories": "main",
    "kafka_topics.key": "id",
    "kafka_topics.mask": {"email": "sha1"},
    "kafka_topics.newest_by": 1,
    "kafka_topics.snapshot_markers": 1,
    "kafka_topics.messages": "10k",
    "kafka_topics.seconds": timedelta(minutes=1),
    "kafka_topics.operation": 1,
    "kafka_topics.values": "xml",
    "kafka_topics.schema": {"id": "int"},
    "kafka_topics.keys": "varchar",
    "kafka_topics.framing": "avro",
    "kafka_topics.flatten": "deep",
    "kafka_topics.format": "orc",
    "kafka_topics.gzip": "yes",
    "kafka_topics.conflicts": "ignore",
    "kafka_topics.lag": "5%",
    "kafka_topics.cadence": "0 6 * * *",
    "kafka_topics.description": 1,
    "kafka_topics.owners": "team:ads",
    "warehouse_table.name": 1,
    "warehouse_table.topic": "ads.clicks",
    "warehouse_table.dataset": "ads/clicks/v1.0",
    "warehouse_table.warehouse": 1,
    "warehouse_table.topics": "ads.clicks",
    "warehouse_table.union": 1,
    "warehouse_table.topic_in_key": "yes",
    "warehouse_table.history": "yes",
    "warehouse_table.lag": "5%",
    "warehouse_table.cadence": "0 6 * * *",
    "warehouse_table.description": 1,
    "warehouse_table.owners": "team:ads",
    "on_change.dataset": "t/raw",
    "on_change.description": 1,
    "on_change.grain": 1,
    "on_change.level": 1,
    "on_change.name": "a/b",
    "on_change.owners": ["me"],
    "on_change.to": "env:A",
    "on_change.transitions": ["gone"],
    "profiled.table": "t/raw/v1.0",
    "profiled.profile": {"rows": "count(1)"},
    "profiled.deep_checks": checks.not_empty,
    "profiled.rows": "SELECT 1",
    "profiled.retention": timedelta(days=30),
    "profiled.owners": "team:web",
    "state_table.name": 1,
    "state_table.partitions_def": "hourly",
    "state_table.completeness": "99%",
    "state_table.regions": {"apac": "Asia/Singapore"},
    "state_table.sub_partitions": {"country": None},
    "state_table.description": 1,
    "state_table.owners": "team:web",
    "state_table.version_in_key": "v2.0",
    "with_automation.definitions": [RAW],
}


def given(name: str, /, **changed: Any) -> None:
    """Declare with valid arguments, except the changed ones."""
    declaration, right = DECLARED[name]
    values = {**right, **changed}
    several = [
        each.name for each in inspect.signature(declaration).parameters.values() if each.kind is each.VAR_POSITIONAL
    ]
    declaration(*[values.pop(each) for each in several], **values)


def test_every_public_name_is_in_the_table_and_so_is_every_check():
    factories = {
        name
        for name, found in vars(checks).items()
        if name[0] != "_" and getattr(found, "__annotations__", {}).get("return") is checks.Check
    }
    assert {*feed_assets.__all__} - NO_DECLARATIONS == {name for name in DECLARED if "." not in name}
    assert {f"checks.{name}" for name in factories} | {"checks.Check"} == {name for name in DECLARED if "." in name}


def test_every_parameter_has_a_wrong_value():
    assert sorted(WRONG) == sorted(f"{name}.{each}" for name in DECLARED for each in parameters(name))


@each_case("name", DECLARED)
def test_right_argument_types_are_accepted(name):
    given(name)


@each_case("parameter", WRONG)
def test_wrong_argument_types_are_refused_with_found_and_expected(parameter):
    name, _, last = parameter.rpartition(".")
    with pytest.raises(
        InvalidDefinition,
        match=rf"\A\S+test_typed\.py:\d+: {name.split('.')[-1]}\(.*?\): {last}\S* is .+, expected .+\.\Z",
    ) as refused:
        given(name, **{last: WRONG[parameter]})
    assert len(str(refused.value)) < 300


@each_case(
    ("wrong", "said"),
    [
        (
            "shop/lines/v1.0",
            "'shop/lines/v1.0' (str), expected what @feed_asset, foreign_feed or another one gives. Write feed=orders.",
        ),
        (feed_assets.Input, "the class Input, which was not called (write Input(…)), expected"),
        (checks.not_empty, "the function not_empty, which was not called (write not_empty(…)), expected"),
        (feed_assets.SqlTable("postgresql://me@db/x", "t", "id"), "SqlTable(url='postgresql://me@db/x'"),
        ("postgresql://me:secret@db/x", "'postgresql://me:***@db/x' (str)"),
        ("two\nlines", r"'two\nlines' (str)"),
    ],
)
def test_a_wrong_argument_is_shown_shortened(wrong, said):
    with pytest.raises(InvalidDefinition) as refused:
        feed_assets.Input(wrong)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_position_inside_a_wrong_argument_is_named():
    with pytest.raises(InvalidDefinition, match=r"inputs\['raw'\] is 'x'"):
        feed_assets.feed_asset("t/sums/v1.0", inputs={"raw": "x"})
    with pytest.raises(InvalidDefinition, match=r"checks\[1\] is 5 \(int\), expected a list of checks\."):
        feed_assets.feed_asset("t/sums/v1.0", inputs={}, checks=[checks.not_empty(), 5])


def test_a_missing_argument_is_named_and_an_unknown_one_has_the_nearest_name():
    with pytest.raises(
        InvalidDefinition, match=r"foreign_feed\(.*: found no schema: expected foreign_feed\(feed, schema\)"
    ):
        feed_assets.foreign_feed("t/raw")
    with pytest.raises(InvalidDefinition, match=r"Late\(\): there is no parameter grwth: is growth meant\?"):
        feed_assets.Late(grwth=1)
