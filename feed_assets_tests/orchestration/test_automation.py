"""Late data: a partition built from older inputs is requested again, once, whenever newer ones land."""

from datetime import timedelta

import dagster as dg
import pytest

from feed_assets import Late
from feed_assets.runs.services import utc_now
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    chain,
    end_waits,
    harness,
    inputs_of,
    outcomes,
    raw_feed,
    rows,
    short,
    sums_of,
    until_given_up,
)

SUMS_OF_THE_DAY = [("t/sums", DAY), ("t/sums_rejects", DAY)]


class Conditions:
    """The conditions, evaluated with a fresh cursor and with the carried one; both must agree.

    Earlier requests that never began do not count.
    """

    def __init__(self) -> None:
        self._cursor = None

    def requested(self, world: Harness) -> list[tuple[str, str | None]]:
        """Tick, and return the requests of the conditions as (asset, partition)."""
        world.ask()
        end_waits(world)
        carried = dg.evaluate_automation_conditions(
            world.definitions, world.instance, cursor=self._cursor, evaluation_time=world.now()
        )
        self._cursor = carried.cursor
        end_waits(world)
        fresh = dg.evaluate_automation_conditions(world.definitions, world.instance, evaluation_time=world.now())
        assert _requests(fresh) == _requests(carried)
        return _requests(fresh)


def _requests(found) -> list[tuple[str, str | None]]:
    return sorted(
        (result.key.to_user_string(), partition)
        for result in found.results
        for partition in found.get_requested_partitions(result.key)
    )


def built(world: Harness) -> Harness:
    """Build DAY from one row."""
    world.drop(RAW, DAY, rows(1))
    assert all(run.succeeded for run in world.run_until_idle())
    return world


def test_conditions_request_no_first_run():
    world = short()
    world.drop(RAW, DAY, rows(1))
    assert Conditions().requested(world) == []


def test_conditions_request_exactly_the_partition_with_a_newer_input_each_time():
    world = short()
    world.drop(RAW, NEXT_DAY, rows(1))
    built(world)
    conditions = Conditions()
    assert conditions.requested(world) == []
    world.drop(RAW, DAY, rows(1, 2))
    assert [conditions.requested(world) for _ in range(3)] == [SUMS_OF_THE_DAY] * 3


def test_a_tick_requests_at_most_max_requests_late_runs_and_the_next_the_rest(setting):
    setting(max_requests=1, partitions_per_run=1)
    world = short()
    for numbers in ((1,), (1, 2)):
        for day in (DAY, NEXT_DAY):
            world.drop(RAW, day, rows(*numbers))
        late = [world.tick() for _ in range(2)]
        world.run_until_idle()
    assert [outcomes(runs) for runs in late] == [[("sums", DAY, True)], [("sums", NEXT_DAY, True)]]


def test_dataset_and_rejects_are_rebuilt_in_one_run_and_once():
    world = built(short())
    world.drop(RAW, DAY, rows(1, 2))
    (run,) = world.run_until_idle()
    assert run.assets == ("t/sums", "t/sums_rejects")
    assert Conditions().requested(world) == []


def drop(world: Harness, *numbers: int) -> None:
    world.drop(RAW, DAY, rows(*numbers))


def between_two_ticks(world: Harness) -> None:
    drop(world, 1, 2)


def twice_between_two_ticks(world: Harness) -> None:
    drop(world, 1, 2)
    drop(world, 1, 2, 3)


def right_after_the_tick_that_asked(world: Harness) -> None:
    drop(world, 1, 2)
    world.ask()
    drop(world, 1, 2, 3)


def right_after_the_run(world: Harness) -> None:
    drop(world, 1, 2)
    world.tick()
    drop(world, 1, 2, 3)


def seen_by_the_sensor_as_the_run_ended(world: Harness) -> None:
    right_after_the_run(world)
    world.ask()


def quiet_ticks_before(world: Harness) -> None:
    world.tick()
    world.tick()
    drop(world, 1, 2)


@pytest.mark.parametrize(
    ("land", "newest_sum"),
    [
        (between_two_ticks, 3),
        (twice_between_two_ticks, 6),
        (right_after_the_tick_that_asked, 6),
        (right_after_the_run, 6),
        (seen_by_the_sensor_as_the_run_ended, 6),
        (quiet_ticks_before, 3),
    ],
)
def test_no_update_is_lost_whenever_it_lands(land, newest_sum):
    world = built(short())
    land(world)
    world.run_until_idle()
    assert world.reported("t/sums", DAY)[0].metadata["preview"].endswith(f"| a | {newest_sum} |")
    assert Conditions().requested(world) == []


def test_an_update_that_lands_during_a_run_causes_one_more_run():
    late = []

    def land():
        if not late:
            late.append(world.drop(RAW, DAY, rows(1, 2)))

    world = short(during=land)
    world.drop(RAW, DAY, rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)] * 2
    assert inputs_of(world.reported("t/sums", DAY)[0])[f"t/raw/v1.0/{DAY}"] == late[0]


def test_conditions_do_not_request_a_partition_in_progress():
    asked = []
    world = short(during=lambda: asked.append(Conditions().requested(world)))
    built(world)
    world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    assert asked == [[], []]


def test_a_partition_rebuilt_by_hand_is_not_built_again():
    world = built(short())
    world.drop(RAW, DAY, rows(1, 2))
    job = world.definitions.resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=world.instance, partition_key=DAY, asset_selection=[dg.AssetKey(["t", "sums"])])
    assert world.run_until_idle() == []


def test_rebuild_with_the_same_rows_requests_nothing_downstream():
    world = built(chain())
    world.drop(RAW, DAY, rows(1, 0))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_a_rebuild_with_other_rows_rebuilds_downstream():
    world = built(chain())
    world.drop(RAW, DAY, rows(1, 2))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True), ("picked", DAY, True)]


def test_a_roll_back_is_rebuilt_from_the_older_input():
    world = built(short())
    newer = world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    world.invalidate(RAW, DAY, newer)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert world.reported("t/sums", DAY)[0].metadata["preview"].endswith("| a | 1 |")


def test_a_roll_back_before_the_first_build_is_built_from_the_older_input(setting):
    setting(max_attempts=1)
    world = short()
    world.drop(RAW, DAY, rows(1))
    newer = world.drop(RAW, DAY, rows(13))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    world.invalidate(RAW, DAY, newer)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_a_failed_late_run_does_not_loop_and_heals_on_another_input(setting):
    setting(max_attempts=2)
    world = built(short())
    world.drop(RAW, DAY, rows(13))
    assert outcomes(until_given_up(world)) == [("sums", DAY, False)] * 2
    assert Conditions().requested(world) == []
    world.drop(RAW, DAY, rows(14))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_a_failed_late_audit_is_not_tried_again_on_the_same_input():
    world = built(short())
    world.drop(RAW, DAY, rows(101))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    assert Conditions().requested(world) == []


def test_late_data_below_the_threshold_wait_until_they_have_grown_enough():
    world = built(short(late=Late(growth=1.0)))  # 8 bytes
    world.drop(RAW, DAY, rows(1, 2))  # 12 bytes
    assert Conditions().requested(world) == []
    world.drop(RAW, DAY, rows(1, 2, 3))  # 16 bytes
    assert Conditions().requested(world) == SUMS_OF_THE_DAY


def test_condition_requests_small_late_data_once_they_have_waited_long_enough():
    world = built(short(late=Late(growth=1.0, max_age=timedelta(days=2))))
    world.drop(RAW, DAY, rows(1, 2))
    conditions = Conditions()
    assert conditions.requested(world) == []
    world.now = lambda: utc_now() + timedelta(days=2, minutes=1)
    assert conditions.requested(world) == SUMS_OF_THE_DAY


def test_a_dataset_without_partitions_is_rebuilt():
    raw = raw_feed(partitions_def=None)
    world = harness(raw, sums_of(raw, partitions_def=None))
    world.drop(RAW, "", rows(1))
    world.run_until_idle()
    world.drop(RAW, "", rows(1, 2))
    assert Conditions().requested(world) == [("t/sums", None), ("t/sums_rejects", None)]
    assert outcomes(world.run_until_idle()) == [("sums", None, True)]
    assert world.newest(SUMS) is not None


def test_the_late_data_sensor_requests_what_the_conditions_request():
    world = built(short())
    world.drop(RAW, DAY, rows(1, 2))
    assert Conditions().requested(world) == SUMS_OF_THE_DAY
    end_waits(world)
    sensor = world.definitions.resolve_sensor_def("late_data")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="late_data") as context:
        (request,) = sensor(context).run_requests
    assert request.partition_key == DAY
    assert sorted(key.to_user_string() for key in request.asset_selection) == ["t/sums", "t/sums_rejects"]
