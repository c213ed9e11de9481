"""Components in YAML declare the same as Python, in a project as `dg` makes it."""

from datetime import timedelta

import dagster as dg
import pytest
import yaml

from feed_assets import (
    BatchDate,
    ByEvents,
    Cadence,
    Completeness,
    EventSource,
    FeedAssetComponent,
    Input,
    Late,
    Operation,
    Plan,
    Profile,
    Regions,
    Retention,
    Rule,
    SqlTable,
    Wait,
    Watermark,
    Within,
    checks,
    event_table,
    feed_asset,
    state_table,
)
from feed_assets.orchestration.declare.declarations import KEY, declaration_of
from feed_assets.orchestration.execute.dataset_component import PartitionsModel
from feed_assets.orchestration.execute.yaml_models import CheckModel
from feed_assets_tests.orchestration.yaml_files import (
    DAYS,
    DIM,
    FILES,
    FLAT,
    HERE,
    HOURS,
    SETTLED,
    chained,
    chained_asset,
    chained_yaml,
    chart,
    report,
)

BERLIN = dg.DailyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin")
FOO = state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))
EXTRA = state_table("web/extra", partitions_def=HOURS)


def twin():
    """Declare `REPORT` in Python."""
    few = CheckModel(check="few", aggregate="count(1)", within=[1, 9], severity="WARN").value
    return feed_asset(
        "web/report/v1.0",
        partitions_def=BERLIN,
        inputs={
            "foo": Input(FOO, mapping=Within(), checks=["no_bots"]),
            "before": Input.previous_bucket(),
            "dim": Input(DIM, mapping=BatchDate(), beyond=Watermark("end of partition")),
            "extra": Input(EXTRA, optional=True, late=Late("5%", files=3, combine="all")),
        },
        deps=[Input(SETTLED, mapping=Within())],
        wait=Wait(
            earliest="0 2 * * *",
            tz="Europe/Berlin",
            delay=timedelta(minutes=30),
            deadline=timedelta(hours=6),
            warn=timedelta(hours=5),
            at_least="23 of 24",
            after=timedelta(hours=3),
        ),
        reprocess="always",
        figures={"revenue": "sum(price)"},
        checks=[checks.not_empty(), checks.references("before", "foo", "id"), few],
        profile=Profile({"rows": "count(1)"}, "7 same weekdays", 3.0),
        deep_checks=[checks.not_null("id")],
        late=Late(
            growth=0.05,
            max_age=timedelta(days=2),
            cut_off=timedelta(days=7),
            check="hourly",
            lookback=[0, 1, 7],
            value_per_gb=2.5,
        ),
        retention=Retention(keep=3, older_than=timedelta(days=30)),
        cadence=Cadence("0 6 * * *", timedelta(hours=2), "Europe/Berlin"),
        completeness=Completeness(("hour", "day"), "99%", tz="Europe/Berlin"),
        event_time="at",
        chart=chart,
        description="Visits.",
        group_name="reports",
        tags={"tier": "gold"},
        kinds={"python"},
        metadata={"runbook": "wiki/7"},
        owners=["team:web"],
        code_version="7",
        pool="web",
    )(report)


def contents_of(definition):
    """Return everything in a dataset's specs except the declaring file; comparison ignores `declared_at`."""
    specs = {
        spec.key: (
            declaration_of(spec),
            {name: value for name, value in spec.metadata.items() if not name.startswith(("dagster/", KEY))},
            {dep.asset_key: dep.partition_mapping for dep in spec.deps},
            (
                spec.partitions_def,
                spec.automation_condition is None,
                spec.code_version,
                spec.description,
                spec.group_name,
            ),
            ([*spec.owners], spec.kinds, dict(spec.tags)),
        )
        for spec in definition.specs
    }
    checks = {each.name: (each.blocking, each.description) for each in definition.check_specs}
    return specs, checks, definition.op.pool


def test_a_dataset_and_a_foreign_feed_in_yaml_equal_those_in_python(project):
    graph = project(FILES).resolve_asset_graph()
    assert contents_of(graph.get(dg.AssetKey(["web", "report"])).assets_def) == contents_of(twin())
    settled = graph.get(SETTLED.key)
    shown = SETTLED.description, SETTLED.group_name, SETTLED.tags, [*SETTLED.owners]
    assert (settled.description, settled.group_name, settled.tags, [*settled.owners]) == shown
    assert settled.metadata["runbook"] == SETTLED.metadata["runbook"] == "wiki/8"


def test_the_schema_that_dg_shows_has_durations():
    schema = FeedAssetComponent.get_model_cls().model_json_schema()
    assert schema["$defs"]["Wait"]["properties"]["deadline"]["anyOf"][0] == {"format": "duration", "type": "string"}


def test_a_dataset_in_yaml_reads_another_one_in_yaml(project):
    partitions = 'partitions: {start: 2026-01-01, tz: "Europe/Berlin"}'
    found = chained_asset(project, f"{partitions}, inputs: {{raw: {{asset: web/report, at: reports}}}}")
    (spec,) = found.specs
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["web", "report"])]


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("[-6, 0]", dg.TimeWindowPartitionMapping(start_offset=-6, end_offset=0)),
        ("all", dg.AllPartitionMapping()),
        ("last", dg.LastPartitionMapping()),
    ],
)
def test_yaml_may_use_dagsters_mappings_for_feeds_of_a_python_file(project, mapping, expected):
    raw = f"{{asset: {HERE}.DIM, mapping: {mapping}}}"
    found = chained_asset(project, f"partitions: {{start: 2026-01-01}}, inputs: {{raw: {raw}}}")
    assert [dep.partition_mapping for spec in found.specs for dep in spec.deps] == [expected] * 2


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("{start: 2026-01-01, every: hour}", HOURS),
        ("{start: 2026-01-01, every: week}", dg.WeeklyPartitionsDefinition("2026-01-01")),
        (
            "{start: 2026-01-01, every: month, tz: UTC+8}",
            dg.MonthlyPartitionsDefinition("2026-01-01", timezone="Etc/GMT-8"),
        ),
        ("{keys: {campaign: [a, b]}}", dg.StaticPartitionsDefinition(["a", "b"])),
        (
            "{start: 2026-01-01, keys: {campaign: [a, b]}}",
            dg.MultiPartitionsDefinition({"time": DAYS, "campaign": dg.StaticPartitionsDefinition(["a", "b"])}),
        ),
    ],
)
def test_partitions_in_yaml_equal_dagsters_definitions(said, expected):
    assert PartitionsModel.model_validate(yaml.safe_load(said)).value({}) == expected


def test_a_dataset_in_yaml_has_its_tables_in_warehouses(project):
    attributes = f"warehouses: [main, other], inputs: {{raw: {{asset: {HERE}.FLAT}}}}"
    graph = project({"chain/defs.yaml": chained_yaml(attributes)}).resolve_asset_graph()
    tables = {name: graph.get(dg.AssetKey([name, "t", "chained"])) for name in ("main", "other")}
    assert {name: declaration_of(each).loaded.name for name, each in tables.items()} == {
        "main": "t/chained/v1.0",
        "other": "t/chained/v1.0",
    }
    assert all(each.parent_keys == {dg.AssetKey(["t", "chained"])} for each in tables.values())


def test_a_feed_named_by_its_python_path_in_yaml_is_declared(project):
    graph = project({"chain/defs.yaml": chained_yaml(f"inputs: {{raw: {{asset: {HERE}.FLAT}}}}")}).resolve_asset_graph()
    assert declaration_of(graph.get(FLAT.key)) == declaration_of(FLAT)


def test_an_object_named_by_path_in_yaml_may_be_declared_elsewhere_too(project):
    read = (
        chained_yaml(f"inputs: {{raw: {{asset: {HERE}.{at}}}}}").replace("chained/", f"{at}/")
        for at in ("FLAT", "PASSED")
    )
    files = {
        "flat/defs.yaml": next(read),
        "passed/defs.yaml": next(read),
        "again.py": f"from {HERE} import FLAT, PASSED",
    }
    keys = {key.to_user_string() for key in project(files).resolve_asset_graph().get_all_asset_keys()}
    assert {key for key in keys if not key.endswith("_rejects")} == {"flat", "t/passed", "t/FLAT", "t/PASSED"}


def test_regions_in_yaml_are_a_dimension(project):
    found = chained_asset(
        project,
        "partitions: {start: 2026-01-01}, regions: {apac: Asia/Singapore, emea: UTC}, completeness: {}, "
        "event_time: at, inputs: {raw: {asset: shop/dim, at: dims, mapping: within}}",
    )
    regions = Regions({"apac": "Asia/Singapore", "emea": "UTC"})
    expected = feed_asset(
        "t/chained/v1.0",
        partitions_def=dg.MultiPartitionsDefinition(
            {"time": DAYS, "region": dg.StaticPartitionsDefinition(["apac", "emea"])}
        ),
        inputs={"raw": Input(DIM, mapping=Within())},
        completeness=Completeness(),
        regions=regions,
        event_time="at",
    )(chained)
    assert contents_of(found) == contents_of(expected)


def test_a_dataset_by_events_in_yaml_equals_python(project):
    source = "{name: shop, parts: [{url: 'env:U', table: e, order_by: id}]}"
    given = f"{{source: {source}, tables: [{{table: shop/orders}}]}}"
    events = f"type: feed_assets.EventTableComponent\nattributes: {given}\n"
    plans = "by_events: {wait_for: all, plans: [{plan: {kind: reload}, operations: [OVERWRITE]}], stuck_after: PT2H}"
    found = chained_asset(
        project, f"{plans}, inputs: {{raw: {{asset: shop/orders, at: shop}}}}", **{"shop/defs.yaml": events}
    )
    by_events = ByEvents(
        wait_for="all",
        plans=[Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))],
        stuck_after=timedelta(hours=2),
    )
    shop = EventSource("shop", (SqlTable("env:U", "e", "id"),))
    expected = feed_asset(
        "t/chained/v1.0", inputs={"raw": event_table("shop/orders", source=shop)}, by_events=by_events
    )
    assert contents_of(found) == contents_of(expected(chained))
