"""Records of runs in the ledger: the Spark cluster, and the parameters beside the partition."""

import json

import dagster as dg
import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.run_config import RunConfig, SliceConfig, parameters_of
from feed_assets.orchestration.execute.makers import SPARK_PROFILE, cluster_of
from feed_assets.settings import Settings, settings
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, short

pytestmark = pytest.mark.usefixtures("home")


def last_run():
    with open_ledger(settings().ledger).read() as connection:
        found = runs.last(connection, Partition(Feed.parse(SUMS), DAY))
    assert found
    return found


def test_a_run_by_hand_records_its_parameters_and_a_plain_run_none():
    world = short()
    first = world.drop(RAW, DAY, "k,n\na,1\n")
    world.drop(RAW, DAY, "k,n\na,2\n")
    assert [ran.succeeded for ran in world.tick()] == [True]
    assert (last_run().parameters, last_run().cluster) == (None, None)
    asset = next(each for each in world.definitions.assets or () if isinstance(each, dg.AssetsDefinition))
    told = {"updates": {f"{RAW}/{DAY}": first}}
    config = {"ops": {asset.node_def.name: {"config": told}}}
    assert dg.materialize([asset], partition_key=DAY, instance=world.instance, run_config=config).success
    assert json.loads(last_run().parameters or "") == told


def test_run_parameters_are_recorded_without_secrets():
    slices = [SliceConfig(table="shop/orders", upto="7")]
    config = RunConfig(slices=slices, plan_config={"from": "postgresql://bob:hunter22@host/db"})
    text = parameters_of(config) or ""
    assert json.loads(text)["slices"] == [{"table": "shop/orders", "upto": "7"}]
    assert "hunter22" not in text
    assert parameters_of(RunConfig()) is None


@each_case(
    ("given", "profile", "expected"),
    [
        ({}, None, "local[2]"),
        ({"spark_master": "spark://cluster:7077"}, None, "spark://cluster:7077"),
        ({"spark_conf": {"spark.master": "yarn"}}, None, "yarn"),
        ({"spark_conf": {"spark.master": "yarn"}}, "big", "k8s://https://big"),
        ({"spark_remote": "sc://spark.example.com:15002/;token=hunter22"}, None, "sc://spark.example.com:15002"),
        ({"spark_remote": "sc://spark.example.com"}, "big", "sc://spark.example.com"),
    ],
)
def test_the_recorded_cluster_is_the_spark_master_without_secrets(given, profile, expected):
    found = Settings(**given, spark_profiles={"big": {"spark.master": "k8s://https://big"}})
    tags = {SPARK_PROFILE: profile} if profile else {}
    run = dg.DagsterRun(job_name="a", tags=tags)
    with dg.DagsterInstance.ephemeral() as instance:
        assert cluster_of(run, instance, found) == expected
