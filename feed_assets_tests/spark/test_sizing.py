"""Spark's configuration follows the input bytes of a run, and user settings are kept."""

import pytest

from feed_assets.settings import Settings
from feed_assets.spark import heap
from feed_assets.spark.run_profile import profiled
from feed_assets.spark.session import conf, heap_in_words
from feed_assets.spark.sizing import SMALL, SMALL_BYTES, conf_for
from feed_assets_tests.support.each_case import each_case

PARTITIONS, ADAPTIVE, BROADCAST = SMALL
DEFAULTS = {PARTITIONS: "200", ADAPTIVE: "true", BROADCAST: "10485760b"}


@each_case(
    ("size", "partitions"),
    [(SMALL_BYTES + 1, "8"), (210 << 20, "8"), (1 << 30, "32"), (20 << 30, "640"), (5 << 40, "2000")],
)
def test_large_data_have_partitions_by_their_bytes(size, partitions):
    assert conf_for(size, SMALL, ()) == {**DEFAULTS, PARTITIONS: partitions}


@each_case("current", [SMALL, DEFAULTS])
def test_small_data_have_one_partition_wherever_spark_is(current):
    """A cluster and a Connect server start with Spark's defaults."""
    changed = conf_for(SMALL_BYTES, current, ())
    assert {**current, **changed} == SMALL
    assert not changed.items() & current.items()


@each_case("size", [0, 1 << 40])
def test_spark_settings_of_the_user_are_kept(size):
    assert PARTITIONS not in conf_for(size, SMALL, {PARTITIONS})
    assert PARTITIONS not in conf_for(size, {**DEFAULTS, PARTITIONS: "48"}, ())


@pytest.mark.connect
def test_a_run_sets_and_restores_spark_settings_for_its_size(spark):
    before = {key: spark.conf.get(key) for key in SMALL}
    with profiled(Settings(), {BROADCAST: "-1"}, may_start=True, size=1 << 30) as sized:
        assert {key: sized.conf.get(key) for key in SMALL} == {PARTITIONS: "32", ADAPTIVE: "true", BROADCAST: "-1"}
    assert {key: spark.conf.get(key) for key in SMALL} == before
    with pytest.raises(ZeroDivisionError), profiled(Settings(), {}, may_start=True, size=1 << 30):
        raise ZeroDivisionError
    assert {key: spark.conf.get(key) for key in SMALL} == before


def test_the_session_follows_the_largest_of_the_runs_that_work_on_it_at_a_time(spark):
    def partitions():
        return {key: spark.conf.get(key) for key in SMALL}

    before, large = partitions(), {**DEFAULTS, PARTITIONS: "32"}
    with profiled(Settings(), {}, may_start=True, size=1 << 30):
        with profiled(Settings(), {}, may_start=True, size=1000):
            assert partitions() == large
        assert partitions() == large
        with profiled(Settings(), {}, may_start=True, size=20 << 30):
            assert partitions() == {**DEFAULTS, PARTITIONS: "640"}
        with pytest.raises(ZeroDivisionError), profiled(Settings(), {}, may_start=True, size=20 << 30):
            raise ZeroDivisionError
        assert partitions() == large
    assert partitions() == before


GIB = 1 << 30


@each_case(
    ("machine", "container", "expected"),
    [
        (24 * GIB, None, "6144m"),
        (24 * GIB, "max\n", "6144m"),
        (64 * GIB, f"{8 * GIB}\n", "2048m"),
        (2 * GIB, None, "1024m"),
        (512 * GIB, None, "16384m"),
    ],
)
def test_the_default_heap_is_a_quarter_of_the_memory(monkeypatch, tmp_path, machine, container, expected):
    limit = tmp_path / "memory.max"
    limit.unlink(missing_ok=True)
    if container:
        limit.write_text(container)
    monkeypatch.setattr(heap, "_CGROUP", limit)
    monkeypatch.setattr(heap.psutil, "virtual_memory", lambda: type("", (), {"total": machine}))
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    assert conf(Settings())[heap.HEAP] == expected
    assert heap.in_words(conf(Settings())).startswith(f"a heap of {expected} (spark.driver.memory in ")


def test_the_heap_of_a_local_spark_is_printed(monkeypatch):
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "5g")
    assert (
        heap_in_words(Settings()) == " with a heap of 5g (spark.driver.memory in FEED_ASSETS_SPARK_CONF sets another)"
    )
    assert heap_in_words(Settings(spark_master="spark://cluster:7077")) == ""
    assert heap_in_words(Settings(spark_remote="sc://elsewhere:15002")) == ""


def test_a_configured_heap_is_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    assert conf(Settings(spark_conf={heap.HEAP: "3g"}))[heap.HEAP] == "3g"
    assert heap.HEAP not in conf(Settings(spark_master="spark://cluster:7077"))
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "5g")
    assert heap.HEAP not in conf(Settings())
    assert heap.in_words(conf(Settings())).startswith("a heap of 5g ")
    monkeypatch.delenv("SPARK_DRIVER_MEMORY")
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.parent.mkdir()
    for text, is_named in (("# none\nspark.driver.memory\t12g\n", True), ("spark.driver.memoryOverhead 1g", False)):
        defaults.write_text(text)
        for name, folder in (("SPARK_CONF_DIR", defaults.parent), ("SPARK_HOME", tmp_path)):
            with monkeypatch.context() as patch:
                patch.setenv(name, str(folder))
                assert (heap.HEAP not in conf(Settings())) == is_named
