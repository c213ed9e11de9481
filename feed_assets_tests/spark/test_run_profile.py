"""A profile applies to its run only, or is refused: with a session of each kind."""

import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.settings import Settings
from feed_assets.spark.run_profile import profiled

PARTITIONS, WINDOW = "spark.sql.shuffle.partitions", "spark.sql.windowExec.buffer.spill.threshold"
OWN = dedent(
    """
    import json
    from feed_assets.core.errors import InvalidSetting
    from feed_assets.settings import Settings
    from feed_assets.spark.run_profile import profiled

    profile, said = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "7"}, {}

    def heap(spark):
        return spark._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20

    with profiled(Settings(), profile, may_start=True) as spark:
        said["during"] = [heap(spark), spark.conf.get("spark.sql.shuffle.partitions")]
    said["after"] = spark.conf.get("spark.sql.shuffle.partitions")
    with profiled(Settings(), profile, may_start=True) as spark:
        said["again"] = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        with profiled(Settings(), {"spark.driver.memory": "900m"}, may_start=True):
            said["more"] = "nothing was said"
    except InvalidSetting as error:
        said["more"] = str(error)
    print(json.dumps(said))
    """
)


def values(spark):
    return {key: spark.conf.getAll.get(key) for key in (PARTITIONS, WINDOW)}


@pytest.mark.connect
def test_runtime_spark_settings_are_set_for_a_run_and_restored(spark):
    before = values(spark)
    with profiled(Settings(), {PARTITIONS: "7", WINDOW: "99"}, may_start=True) as profiled_:
        assert values(profiled_) == values(spark) == {PARTITIONS: "7", WINDOW: "99"}
    assert values(spark) == before
    assert before[WINDOW] is None


@pytest.mark.connect
@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_runtime_spark_settings_are_restored_after_a_failed_run(spark, error):
    before = values(spark)
    with pytest.raises(error), profiled(Settings(), {PARTITIONS: "7", WINDOW: "99"}, may_start=True):
        raise error
    assert values(spark) == before


@pytest.mark.connect
@pytest.mark.parametrize("may_start", [True, False])
@pytest.mark.parametrize("key", ["spark.driver.memory", "spark.executor.memory", "spark.sql.warehouse.dir", "my.own"])
def test_startup_settings_of_spark_are_refused_in_a_running_session(spark, key, may_start):
    before = values(spark)
    with (
        pytest.raises(InvalidSetting, match=rf"sets {key}, which Spark reads only when it starts"),
        profiled(Settings(), {PARTITIONS: "7", key: "9g"}, may_start=may_start),
    ):
        pytest.fail("it was not refused")
    assert values(spark) == before


@pytest.mark.connect
def test_startup_settings_equal_to_the_session_s_are_accepted(spark):
    with profiled(Settings(), {"spark.app.name": spark.conf.get("spark.app.name")}, may_start=False) as same:
        assert same.conf.get("spark.app.name") == spark.conf.get("spark.app.name")


@pytest.mark.connect
def test_a_value_that_spark_does_not_take_is_refused_and_the_others_taken_back(spark):
    before = values(spark)
    with (
        pytest.raises(InvalidSetting, match=f"sets {PARTITIONS} to a value that Spark refuses: .*Correct it"),
        profiled(Settings(), {WINDOW: "99", PARTITIONS: "many"}, may_start=True),
    ):
        pytest.fail("it was not refused")
    assert values(spark) == before


def test_a_process_of_its_own_starts_spark_with_the_whole_profile():
    env = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    done = subprocess.run([sys.executable, "-c", OWN], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert 600 < said["during"][0] <= 700
    assert said["during"][1] == said["again"] == "7"
    assert said["after"] == "1"
    assert "sets spark.driver.memory, which Spark reads only when it starts" in said["more"]
