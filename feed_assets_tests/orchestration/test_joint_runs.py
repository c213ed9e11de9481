"""One run for many partitions that are ready together; each partition keeps its own record."""

import warnings

import dagster as dg
import pytest
from dagster._core.storage import tags as dagsters
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import due, runs, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.request_budget import grouped
from feed_assets.orchestration.decide.requests import joined
from feed_assets.orchestration.decide.run_blocks import PARTITION, RANGE_END, RANGE_START, in_blocks, joint, named_by
from feed_assets.orchestration.declare.partitions import to_key, to_path
from feed_assets.runs.reconcile import GONE
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.orchestration.range_runs import materialize
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    chain,
    end_waits,
    harness,
    inputs_read,
    raw_feed,
    requested,
    rows,
    short,
    sums_of,
)

SUMS_OF_DAY = Partition(Feed.parse(SUMS), DAY)
FOURTH_DAY, FIFTH_DAY = "2020-01-04", "2020-01-05"
CAMPAIGNS = dg.StaticPartitionsDefinition(["men", "all", "women", "kids"])


def test_range_tags_equal_those_of_dagster():
    assert (PARTITION, RANGE_START, RANGE_END) == (
        dagsters.PARTITION_NAME_TAG,
        dagsters.ASSET_PARTITION_RANGE_START_TAG,
        dagsters.ASSET_PARTITION_RANGE_END_TAG,
    )


KINDS = {
    "days": DAYS,
    # 2020-03-29 has 23 hours here.
    "hours": dg.HourlyPartitionsDefinition("2020-03-28-20:00", end_date="2020-03-29-20:00", timezone="Europe/Berlin"),
    "weekdays": dg.TimeWindowPartitionsDefinition(
        cron_schedule="0 0 * * *", start="2020-01-01", end="2020-01-30", fmt="%Y-%m-%d", exclusions=["0 0 * * 6"]
    ),
    "names": CAMPAIGNS,
    "days and names": dg.MultiPartitionsDefinition({"date": DAYS, "campaign": CAMPAIGNS}),
}


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_dagster_reads_exactly_the_ready_partitions_from_blocks(kind, data):
    parts, limit = KINDS[kind], data.draw(st.integers(1, 9))
    every = [to_path(parts, str(key)) for key in parts.get_partition_keys()]
    ready = data.draw(st.lists(st.sampled_from(every), unique=True))
    found = in_blocks(parts, ready, limit)
    assert sorted(path for block in found for path in block) == sorted(ready)
    for block in found:
        assert len(block) <= limit
        one = joint([dg.RunRequest(partition_key=to_key(parts, path)) for path in block])
        read = named_by(parts, {**one.tags, **({PARTITION: one.partition_key} if one.partition_key else {})})
        assert sorted(to_path(parts, key) for key in read) == sorted(block)


def test_dynamic_partitions_are_neighbours_in_the_order_in_which_they_came():
    parts = dg.DynamicPartitionsDefinition(name="shops")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("shops", ["z", "a", "m", "b"])
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            assert in_blocks(parts, ["a", "b", "z"], 9) == [["z", "a"], ["b"]]


def test_a_range_that_dagster_misreads_is_requested_one_by_one():
    """At this clock change Dagster confuses two hours, depending on earlier requests."""
    parts = dg.HourlyPartitionsDefinition("2020-10-25-00:00", end_date="2020-10-25-06:00", timezone="Europe/Berlin")
    midnight, one, two = (f"2020-10-25-0{hour}:00" for hour in range(3))
    for last in (one, two):
        read = parts.get_partition_keys_in_range(dg.PartitionKeyRange(midnight, last))
    assert read == [midnight, one]
    assert in_blocks(parts, [midnight, one, two], 9) == [[midnight], [one], [two]]


def test_partitions_beside_a_removed_one_are_requested_one_by_one():
    """A partition was removed after it was decided."""
    parts = dg.DynamicPartitionsDefinition(name="shops")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("shops", ["a", "b"])
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            assert in_blocks(parts, ["b", "gone", "a"], 9) == [["b"], ["gone"], ["a"]]


def test_a_joint_request_keeps_common_tags_and_no_single_partition():
    tags = [
        {"dagster/priority": "10", "feed_assets/output": key, "dagster/partition/campaign": "men", PARTITION: key}
        for key in (DAY, NEXT_DAY)
    ]
    with warnings.catch_warnings(action="ignore"):  # Dagster warns about its own tags.
        requests = [dg.RunRequest(partition_key=each[PARTITION], tags=each, run_key=each[PARTITION]) for each in tags]
    found = joint(requests)
    assert found.tags == {"dagster/priority": "10", RANGE_START: DAY, RANGE_END: NEXT_DAY}
    assert found.partition_key is None
    assert joint(requests[:1]) is requests[0]


# Requests of the sensor


def dropped(*days: str):
    world = short()
    for day in days:
        world.drop(RAW, day, rows(1))
    return world


def test_neighbours_that_are_ready_are_one_run(setting):
    setting(partitions_per_run=3)
    asked = dropped(DAY, NEXT_DAY, THIRD_DAY, FOURTH_DAY).ask()
    first, second = asked.requests
    assert asked.targets == [(BOTH, day) for day in (DAY, NEXT_DAY, THIRD_DAY, FOURTH_DAY)]
    assert (first.tags[RANGE_START], first.tags[RANGE_END]) == (DAY, THIRD_DAY)
    assert first.tags["feed_assets/why"] == "it has no valid update, and every input is there"
    assert "feed_assets/output" not in first.tags
    assert second.partition_key == FOURTH_DAY
    assert second.tags["feed_assets/output"] == f"t/sums/v1.0/{FOURTH_DAY}"


def test_a_gap_of_unready_partitions_splits_the_run(setting):
    setting(partitions_per_run=9)
    asked = dropped(DAY, NEXT_DAY, FOURTH_DAY, FIFTH_DAY).ask()
    assert [(each.tags[RANGE_START], each.tags[RANGE_END]) for each in asked.requests] == [
        (DAY, NEXT_DAY),
        (FOURTH_DAY, FIFTH_DAY),
    ]


def test_max_requests_counts_runs_and_the_next_tick_requests_the_rest(setting):
    setting(partitions_per_run=2, max_requests=1)
    world = dropped(DAY, NEXT_DAY, THIRD_DAY)
    first = world.ask()
    assert [first.targets, world.ask(first.cursor).targets] == [[(BOTH, DAY), (BOTH, NEXT_DAY)], [(BOTH, THIRD_DAY)]]


def test_a_repeated_request_of_the_same_partitions_has_another_key(setting):
    setting(partitions_per_run=9)
    world = dropped(DAY, NEXT_DAY)
    (first,) = world.ask().requests
    end_waits(world)
    (again,) = world.ask().requests
    assert first.tags == again.tags
    assert first.run_key != again.run_key


def test_partitions_of_two_dimensions_are_requested_as_rectangles(setting):
    setting(partitions_per_run=9)
    raw = raw_feed(partitions_def=KINDS["days and names"])
    world = harness(raw, sums_of(raw, partitions_def=KINDS["days and names"]))
    for day in (DAY, NEXT_DAY):
        for campaign in ("men", "all"):
            world.drop(RAW, f"{day}/{campaign}", rows(1))
    (request,) = world.ask().requests
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == (f"men|{DAY}", f"all|{NEXT_DAY}")


# Partitions in progress


def under_way(world, *tags):
    """Create a run of many partitions that is in progress."""
    job = world.definitions.resolve_implicit_global_asset_job_def()
    return world.instance.create_run_for_job(
        job,
        asset_selection={dg.AssetKey(["t", "sums"])},
        tags=dict(zip((RANGE_START, RANGE_END), tags, strict=True)),
        status=dg.DagsterRunStatus.STARTED,
    )


def test_all_partitions_of_a_run_are_in_progress():
    world = dropped(DAY, NEXT_DAY, THIRD_DAY, FOURTH_DAY)
    under_way(world, NEXT_DAY, THIRD_DAY)
    assert requested(world) == [DAY, FOURTH_DAY]


def test_a_run_with_an_invalid_range_holds_up_no_partition():
    world = dropped(DAY)
    under_way(world, DAY, "2031-01-01")
    assert requested(world) == [DAY]


def test_a_partition_whose_build_ended_does_not_wait_for_its_neighbours():
    world = dropped(DAY, NEXT_DAY)
    run = under_way(world, DAY, NEXT_DAY)
    build = runs.Run("1", SUMS_OF_DAY, runs.RUNNING, "here:1:1", utc_now(), dagster_run=run.run_id)
    end_build(open_ledger(settings().ledger), build, "canceled")
    assert requested(world) == [DAY]


@pytest.mark.parametrize(("reason", "alone"), [(GONE, [[NEXT_DAY]]), ("canceled", [])])
def test_a_partition_that_ended_its_process_is_requested_alone(setting, reason, alone):
    """It may end its process each time, and would hold up its neighbours for ever."""
    setting(partitions_per_run=9)
    dropped(DAY, NEXT_DAY, THIRD_DAY, FOURTH_DAY)
    ledger, output = open_ledger(settings().ledger), Partition(SUMS_OF_DAY.feed, NEXT_DAY)
    end_build(ledger, runs.Run("1", output, runs.RUNNING, "here:1:1", utc_now()), reason)
    asked = [Partition(output.feed, day) for day in (DAY, NEXT_DAY, THIRD_DAY, FOURTH_DAY)]
    graph = Graph(chain().definitions.resolve_asset_graph())
    found = [[each.key for each in block] for block in grouped(graph, ledger, asked)]
    assert [block for block in found if NEXT_DAY in block and len(block) == 1] == alone
    assert sorted(key for block in found for key in block) == [DAY, NEXT_DAY, THIRD_DAY, FOURTH_DAY]
    assert len(found) == (3 if alone else 1)
    end_build(ledger, runs.Run("2", output, runs.RUNNING, "here:1:1", utc_now()), "canceled")
    assert len(grouped(graph, ledger, asked)) == 1


def end_build(ledger, build: runs.Run, reason: str) -> None:
    runs.start(ledger, build)
    with ledger.change() as connection:
        runs.end(connection, build.id, updates.ABANDONED, utc_now(), reason)


# Late data


def evaluated(world, name="late_data"):
    """Return the result of the condition's sensor, evaluated as in the code server."""
    world.ask()
    end_waits(world)
    sensor = world.definitions.resolve_sensor_def(name)
    context = dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name=name)
    with context:
        return sensor.evaluate_tick(context)


def late(*days: str):
    """Build some days, and drop late data for them."""
    world = dropped(*days)
    assert all(run.succeeded for run in world.run_until_idle())
    for day in days:
        world.drop(RAW, day, rows(1, 2))
    return world


def test_late_neighbours_are_one_run_and_the_ui_shows_each_partition(setting):
    setting(partitions_per_run=2)
    found = evaluated(late(DAY, NEXT_DAY, FOURTH_DAY))
    first, second = found.run_requests
    assert (first.tags[RANGE_START], first.tags[RANGE_END], second.partition_key) == (DAY, NEXT_DAY, FOURTH_DAY)
    assert PARTITION not in first.tags
    assert "dagster/priority" not in {**first.tags, **second.tags}, "it is history"
    assert sorted(key.to_user_string() for key in first.asset_selection) == [*BOTH]
    (shown,) = [each for each in found.automation_condition_evaluations if each.key.to_user_string() == "t/sums"]
    assert shown.true_subset.size == 3


def test_late_data_of_a_finished_partition_do_not_wait_for_the_runs_end():
    """Dagster itself holds an unchanged partition in progress until the run ends."""
    asked = []

    def during() -> None:
        with open_ledger(settings().ledger).read() as connection:
            first = runs.last(connection, SUMS_OF_DAY)
        if first and first.state == runs.UNCHANGED:
            world.drop(RAW, DAY, rows(1, 2))
            asked.append([request.partition_key for request in evaluated(world).run_requests])

    world = short(during=during)
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    world.run_until_idle()
    world.drop(RAW, NEXT_DAY, rows(1, 2))
    materialize(world, DAY, NEXT_DAY)
    assert asked == [[DAY]]


def test_late_data_of_a_partition_in_progress_count_no_request():
    world = late(DAY)
    under_way(world, DAY, NEXT_DAY)
    assert evaluated(world).run_requests == []
    with open_ledger(settings().ledger).read() as connection:
        assert due.not_begun(connection) == ()


def test_late_neighbours_are_built_by_one_run(setting):
    setting(partitions_per_run=9)
    world = late(DAY, NEXT_DAY)
    before = {run.run_id for run in world.instance.get_runs()}
    world.run_until_idle()
    (run,) = [run for run in world.instance.get_runs() if run.run_id not in before]
    assert (run.is_success, run.tags[RANGE_START], run.tags[RANGE_END]) == (True, DAY, NEXT_DAY)
    assert evaluated(world).run_requests == []


def test_late_neighbours_of_a_chain_are_one_run_that_reads_its_new_updates(setting):
    setting(partitions_per_run=9)
    world, days = chain(), (DAY, NEXT_DAY)
    for day in days:
        world.drop(RAW, day, rows(1))
    world.run_until_idle()
    for day in days:
        world.drop(RAW, day, rows(1, 2))
        keys = [dg.AssetKey.from_user_string(asset) for asset in BOTH]
        dg.materialize([*world.definitions.assets], partition_key=day, instance=world.instance, selection=keys)
        world.drop(RAW, day, rows(1, 2, 3))
    (request,) = evaluated(world).run_requests
    assert sorted(key.to_user_string() for key in request.asset_selection) == ["t/picked", *BOTH]
    world.runner.execute(request)
    for day in days:
        made, below = world.reported("t/sums", day)[0], world.reported("t/picked", day)[0]
        assert made.update_id == world.newest(SUMS, day)
        assert inputs_read(below)[f"{SUMS}/{day}"] == (made.update_id, made.version[:12])
    assert world.run_until_idle() == []


def test_requests_of_foreign_assets_are_left_as_dagster_makes_them():
    @dg.asset(partitions_def=DAYS)
    def theirs():
        """Make an asset that is no feed."""

    graph = Graph(dg.Definitions(assets=[theirs]).resolve_asset_graph())
    requests = [dg.RunRequest(partition_key=day, asset_selection=[theirs.key]) for day in (DAY, NEXT_DAY)]
    assert joined(graph, open_ledger(settings().ledger), requests, utc_now()) == requests


@pytest.mark.parametrize(("partitions", "policy"), [(1, None), (7, dg.BackfillPolicy.multi_run(7))])
def test_partitions_per_run_is_the_backfill_policy(setting, partitions, policy):
    setting(partitions_per_run=partitions)
    assert short().definitions.resolve_asset_graph().get(dg.AssetKey(["t", "sums"])).backfill_policy == policy
