"""The slow sensor, tick by tick, with an injected clock."""

import os
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from feed_assets.feeds.write import CLAIMS
from feed_assets.runs.services import utc_now
from feed_assets.spark.scratch import make_scratch, scratch
from feed_assets.testing import Harness
from feed_assets_tests.orchestration.kept import keep, restore
from feed_assets_tests.support.harness_queries import evaluate_orphans
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, THIRD_DAY, outcomes, rows, short


def objects(world: Harness, prefix: str) -> int:
    return len(world.board.files(prefix))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build one day, and have another one refused by its audit."""

    def build() -> None:
        world = short()
        for day, number in ((DAY, 1), (THIRD_DAY, 1000)):
            world.drop(RAW, day, rows(number))
        assert sorted(outcomes(world.run_until_idle())) == [("sums", DAY, True), ("sums", THIRD_DAY, False)]

    return keep(tmp_path_factory.mktemp("kept"), build)


@pytest.fixture
def refused(kept: Path, home: Path) -> Harness:
    """Return the same world in the test's own home."""
    restore(kept, home)
    return short()


def test_files_of_a_refused_update_are_kept_for_a_day_and_then_removed(refused):
    partition, claims = f"{SUMS}/{THIRD_DAY}", f"{CLAIMS}/t"
    parts = objects(refused, partition)
    assert evaluate_orphans(refused, hours=23) == "No orphans."
    assert (objects(refused, partition), objects(refused, claims)) == (parts, 6)
    message = evaluate_orphans(refused, hours=25).splitlines()
    assert message[0].startswith(f"swept {SUMS} {THIRD_DAY} 20")
    assert ": 1 objects without a valid manifest: " in message[0]
    assert "within_n" in message[0]
    assert message[-1] == "4 old claims removed"
    assert objects(refused, partition) == 0
    assert [refused.newest(SUMS, day) is not None for day in (DAY, THIRD_DAY)] == [True, False]


def test_claims_of_foreign_feeds_are_not_removed(refused):
    evaluate_orphans(refused, hours=25)
    assert objects(refused, f"{CLAIMS}/{RAW}") == objects(refused, CLAIMS) == 2


def test_the_orphan_sensor_rests_for_an_hour_after_a_complete_pass(refused):
    assert evaluate_orphans(refused, hours=25) != "No orphans."
    assert evaluate_orphans(refused, hours=25.9).startswith("The next search for orphans is at ")
    assert evaluate_orphans(refused, hours=26.1) == "No orphans."


def test_an_orphan_tick_out_of_time_says_so_and_the_next_one_goes_on(refused, setting):
    setting(tick_seconds=1e-9)
    messages = [evaluate_orphans(refused, hours=25) for _ in range(5)]
    assert all(message.endswith("the time was over: the next tick continues") for message in messages[:4])
    assert messages[4] == "No orphans."
    assert evaluate_orphans(refused, hours=25).startswith("The next search for orphans is at ")
    assert objects(refused, CLAIMS) == 2


def test_the_orphan_sensor_requests_nothing_and_lets_the_loop_become_idle(refused):
    refused.now = lambda: utc_now() + timedelta(hours=25)
    assert refused.run_until_idle(max_ticks=3) == []
    assert objects(refused, CLAIMS) == 2


def test_dagster_shows_the_orphan_sensors_work_as_the_ticks_message(refused):
    sensor = refused.definitions.resolve_sensor_def("orphans")
    with dg.build_sensor_context(refused.instance, definitions=refused.definitions, sensor_name="orphans") as context:
        message = sensor.evaluate_tick(context).skip_message
    assert message.startswith("The next search for orphans is at ")


def test_scratch_files_of_a_killed_spark_are_removed_and_of_a_living_one_kept(refused, home):
    with scratch({}) as living:
        os.close((killed := make_scratch({})).locks[0])
        message = evaluate_orphans(refused, hours=25).splitlines()
        assert f"removed {killed.folders[0]}: scratch files of a killed Spark process" in message
        assert [*(home / "scratch").iterdir()] == [*living.folders]
