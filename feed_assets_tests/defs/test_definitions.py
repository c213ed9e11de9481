import subprocess
import sys

import dagster as dg
import pytest

from feed_assets.defs.ads.sample import REGIONS
from feed_assets.orchestration.declare.declarations import Dataset, declaration_of

STATE_TABLES = {"ads/impressions"}
DATASETS = {
    "ads/shown": {"not_empty", "not_null_impression_id_timestamp_item_id_position", "unique_impression_id"}
    | {"within_position", "accounted"},
    "ads/clicked": {"not_null_impression_id_clicked_at", "unique_impression_id", "accounted"},
    "ads/effectiveness": {"not_empty", "unique_policy_item_id_position", "within_ctr", "clicked_in_shown"},
    "ads/effectiveness_daily": {"not_empty", "unique_campaign_policy", "within_ctr"},
    "ads/hourly": {"unique_region_campaign", "not_null_region_campaign_clicks"},
    **{f"ads/daily_{region}": {"unique_campaign", "within_ctr"} for region in REGIONS},
    "ads/daily": {"not_empty", "unique_region_campaign"},
    "fx/exchange_rate": {"unique_date", "not_null_gbp_per_eur_usd_per_eur_rate_date"},
    "retail/purchases": {"not_null_InvoiceNo_InvoiceDate_gbp", "accounted"},
    "retail/num_purchases_per_day": {"not_empty", "unique_date"},
    "retail/purchases_per_buyer": {"unique_CustomerID", "not_null_CustomerID"},
    "retail/daily_summary": {"not_empty", "unique_date", "adds_up"},
}
REJECTS = {"ads/shown_rejects", "ads/clicked_rejects", "fx/exchange_rate_rejects", "retail/purchases_rejects"}
OBSERVATIONS = {"propagation", "stale"}
"""Checks that the daemon's sensors execute: no run waits for them, and they have no partitions."""
FOREIGN = {"ads/shown_raw", "ads/clicked_raw", "fx/ecb_raw", "retail/invoices_raw"}


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    from feed_assets.definitions import defs

    return defs()


@pytest.fixture(scope="module")
def specs(definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def test_the_samples_define_exactly_the_listed_assets(specs):
    assert specs.keys() == DATASETS.keys() | REJECTS | FOREIGN | STATE_TABLES


def test_each_asset_is_described_and_in_its_group(specs):
    assert [key for key, spec in specs.items() if not spec.description] == []
    assert {key for key, spec in specs.items() if spec.group_name != key.split("/")[0]} == set()


def test_each_dataset_has_an_owner_and_is_run_again_for_late_data(specs):
    made = {key: spec for key, spec in specs.items() if key not in FOREIGN | STATE_TABLES}
    assert {key: spec.owners for key, spec in made.items()} == {key: [f"team:{key.split('/')[0]}"] for key in made}
    declared = {key: declaration_of(spec) for key, spec in made.items()}
    by_events = {key for key, each in declared.items() if isinstance(each, Dataset) and each.by_events}
    assert by_events == {"retail/daily_summary"}
    assert {key for key, spec in made.items() if spec.automation_condition is None} == by_events
    assert {frozenset(spec.kinds) for spec in made.values()} == {frozenset({"pyspark", "parquet"})}


def test_foreign_feeds_are_external_and_csv(definitions, specs):
    graph = definitions.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.external_asset_keys} == FOREIGN | STATE_TABLES
    assert {frozenset(specs[key].kinds) for key in FOREIGN} == {frozenset({"csv"})}
    assert {frozenset(specs[key].kinds) for key in STATE_TABLES} == {frozenset({"table"})}


def test_checks_are_partitioned_and_blocking(definitions):
    graph = definitions.resolve_asset_graph()
    found = {}
    for key in graph.asset_check_keys:
        if key.name in OBSERVATIONS:
            continue
        spec = graph.get_check_spec(key)
        assert spec.blocking, key
        assert spec.description, key
        assert graph.get(key).partitions_def == graph.get(key.asset_key).partitions_def, key
        found.setdefault(key.asset_key.to_user_string(), set()).add(key.name)
    assert found == DATASETS


def test_partitions_are_days_by_campaigns_and_days_and_hours(definitions):
    graph = definitions.resolve_asset_graph()
    names = {key.to_user_string(): type(graph.get(key).partitions_def).__name__ for key in graph.get_all_asset_keys()}
    daily = {key for key in names if not key.startswith("ads/")} | {"ads/effectiveness_daily", "ads/daily"}
    daily |= {f"ads/daily_{region}" for region in REGIONS}
    assert {key for key, name in names.items() if name == "DailyPartitionsDefinition"} == daily
    hourly = {key for key, name in names.items() if name == "HourlyPartitionsDefinition"}
    assert hourly == {"ads/impressions", "ads/hourly"}
    assert {names[key] for key in names.keys() - daily - hourly} == {"MultiPartitionsDefinition"}


def test_each_region_has_days_of_its_own_clock(definitions):
    graph = definitions.resolve_asset_graph()
    zones = {region: graph.get(dg.AssetKey(["ads", f"daily_{region}"])).partitions_def.timezone for region in REGIONS}
    assert zones == REGIONS


def test_each_sample_dataset_has_its_declared_inputs(definitions):
    graph = definitions.resolve_asset_graph()
    assert {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.materializable_asset_keys
    } == {
        "ads/shown": {"ads/shown_raw"},
        "ads/shown_rejects": {"ads/shown_raw"},
        "ads/clicked": {"ads/clicked_raw"},
        "ads/clicked_rejects": {"ads/clicked_raw"},
        "ads/effectiveness": {"ads/shown", "ads/clicked"},
        "ads/effectiveness_daily": {"ads/effectiveness"},
        "ads/hourly": {"ads/impressions"},
        **{f"ads/daily_{region}": {"ads/hourly"} for region in REGIONS},
        "ads/daily": {f"ads/daily_{region}" for region in REGIONS},
        "fx/exchange_rate": {"fx/ecb_raw"},
        "fx/exchange_rate_rejects": {"fx/ecb_raw"},
        "retail/purchases": {"retail/invoices_raw"},
        "retail/purchases_rejects": {"retail/invoices_raw"},
        "retail/num_purchases_per_day": {"retail/purchases"},
        "retail/purchases_per_buyer": {"retail/purchases"},
        "retail/daily_summary": {
            "fx/exchange_rate",
            "retail/num_purchases_per_day",
            "retail/purchases",
            "retail/purchases_per_buyer",
        },
    }


def test_sensors_run_by_default(definitions):
    sensors = {sensor.name: sensor.default_status for sensor in definitions.get_repository_def().sensor_defs}
    assert sensors == dict.fromkeys(("feeds", "watch", "late_data", "orphans"), dg.DefaultSensorStatus.RUNNING)


def test_runs_are_of_one_process(definitions):
    assert definitions.executor is dg.in_process_executor


def test_loading_the_definitions_imports_no_heavy_library_and_no_sample():
    program = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == 'open' else None)\n"
        "from feed_assets.definitions import defs; defs().get_repository_def()\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'boto3', 'pandas', 'alembic', 'requests', 'sqlalchemy'}\n"
        "heavy &= set(sys.modules)\n"
        "heavy |= {path for path in opened if '.csv' in path}; sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_partitions_end_where_the_data_of_the_samples_end(specs):
    ends = {spec.partitions_def.get_last_partition_key() for spec in specs.values()}
    assert {end.rpartition("|")[2][:10] for end in ends} <= {"2019-11-29", "2019-11-30", "2011-12-09"}
