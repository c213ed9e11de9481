"""Dagster's view of a run of many partitions: each partition has its own version, inputs and checks, once."""

import logging

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest

from feed_assets.testing import Given, Harness
from feed_assets_tests.orchestration.range_runs import THREE_DAYS, materialize, three_days
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    DAYS,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    THIRD_DAY,
    chain,
    given,
    harness,
    picked_of,
    raw_feed,
    rows,
    sums_of,
)

ALL = (*BOTH, "t/picked")


def alone(world: Harness, day: str, *assets: str) -> None:
    """Run one partition."""
    keys = [dg.AssetKey.from_user_string(asset) for asset in assets or BOTH]
    assert dg.materialize(
        [*world.definitions.assets], partition_key=day, instance=world.instance, selection=keys
    ).success


def stale(world: Harness, asset: str) -> dict[str, str]:
    """Return the UI's status of each of three days: FRESH or STALE."""
    context, graph = LoadingContextForTest(world.instance), world.definitions.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(world.instance, graph, context)
    return {day: resolver.get_status(dg.AssetKey.from_user_string(asset), day).value for day in THREE_DAYS}


def views(world: Harness) -> dict[str, dict[str, str]]:
    """Return the states in Dagster's partition view of the dataset and its rejects."""
    keys = [dg.AssetKey.from_user_string(asset) for asset in BOTH]
    found = [world.instance.get_status_by_partition(key, [*THREE_DAYS], DAYS) or {} for key in keys]
    return {asset: {day: of[day].name for day in THREE_DAYS} for asset, of in zip(BOTH, found, strict=True)}


def tags_of(world: Harness, asset: str, partition: str) -> dict[str, str]:
    wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(asset), asset_partitions=[partition])
    (record, *_) = world.instance.fetch_materializations(wanted, limit=1).records
    return dict(record.asset_materialization.tags)


def test_a_run_with_its_consumers_reports_each_partition_once():
    """Another run rebuilds the first day while this one makes the consumer of all three."""
    worlds = list[Harness]()

    def give(task) -> Given:
        if task.output.path == f"{PICKED}/{THIRD_DAY}":
            worlds[0].drop(RAW, DAY, rows(50))
            alone(worlds[0], DAY)
        return given(task)

    raw = raw_feed()
    sums = sums_of(raw)
    worlds.append(three_days(1, 2, 3, world=harness(raw, sums, picked_of(sums), give=give)))
    assert materialize(worlds[0], DAY, THIRD_DAY, *ALL).success
    for asset in BOTH:
        told = {day: [each.update_id for each in worlds[0].reported(asset, day)] for day in THREE_DAYS}
        assert {day: len(of) for day, of in told.items()} == {DAY: 2, NEXT_DAY: 1, THIRD_DAY: 1}
        assert {day: of[0] for day, of in told.items()} == {
            day: worlds[0].newest(f"{asset}/v1.0", day) for day in THREE_DAYS
        }


def test_partitions_built_earlier_do_not_keep_consumers_from_being_built(caplog):
    world = three_days(1, 2, 3, world=chain())
    alone(world, NEXT_DAY)
    with caplog.at_level(logging.WARNING, "dagster"):
        result = materialize(world, DAY, THIRD_DAY, *ALL)
    assert result.success
    said = [
        each.user_message for each in world.instance.all_logs(result.run_id) if "the same inputs" in each.user_message
    ]
    standing = f"{SUMS} {NEXT_DAY}: update {world.newest(SUMS, NEXT_DAY)} was built from the same inputs"
    assert said == [f"{standing}: there is nothing to do."]
    assert all(world.newest(PICKED, day) for day in THREE_DAYS)
    assert {day: len(world.reported("t/sums", day)) for day in THREE_DAYS} == dict.fromkeys(THREE_DAYS, 1)
    assert "emitted no result" not in caplog.text


def test_unchanged_partitions_of_a_failed_run_do_not_look_failed():
    world = three_days(101, 2, 3)
    for _ in range(2):
        assert not materialize(world, DAY, THIRD_DAY).success
    shown = {DAY: "FAILED", NEXT_DAY: "MATERIALIZED", THIRD_DAY: "MATERIALIZED"}
    assert views(world) == dict.fromkeys(BOTH, shown)
    again, first = world.reported("t/sums", NEXT_DAY)
    assert (again.version, again.update_id) == (first.version, first.update_id)


def test_a_partition_of_a_joint_run_is_fresh_until_its_input_changes():
    world = three_days(1, 2, 3, world=chain())
    assert materialize(world, DAY, THIRD_DAY, *ALL).success
    world.drop(RAW, DAY, rows(1, 0))  # the same sum
    alone(world, DAY)
    assert len(world.reported("t/sums", DAY)) == 2
    assert stale(world, "t/picked") == dict.fromkeys(THREE_DAYS, "FRESH")
    world.drop(RAW, NEXT_DAY, rows(50))
    alone(world, NEXT_DAY)
    assert stale(world, "t/picked") == {DAY: "FRESH", NEXT_DAY: "STALE", THIRD_DAY: "FRESH"}
    assert materialize(world, DAY, THIRD_DAY, "t/picked").success
    assert stale(world, "t/picked") == dict.fromkeys(THREE_DAYS, "FRESH")


def test_an_input_that_changes_during_the_run_and_is_read_leaves_it_fresh():
    worlds = list[Harness]()

    def give(task) -> Given:
        if task.output.path == f"{PICKED}/{DAY}":
            worlds[0].drop(RAW, THIRD_DAY, rows(50))
            alone(worlds[0], THIRD_DAY)
        return given(task)

    raw = raw_feed()
    sums = sums_of(raw)
    worlds.append(three_days(1, 2, 3, world=harness(raw, sums, picked_of(sums), give=give)))
    assert materialize(worlds[0], DAY, THIRD_DAY, *ALL).success
    assert stale(worlds[0], "t/picked") == dict.fromkeys(THREE_DAYS, "FRESH")


@pytest.mark.parametrize("dimensions", [1, 2])
def test_a_materialization_of_a_joint_run_has_the_tags_of_a_single_run(dimensions):
    women = dg.StaticPartitionsDefinition(["women"])
    parts = DAYS if dimensions == 1 else dg.MultiPartitionsDefinition({"day": DAYS, "who": women})
    raw = raw_feed(partitions_def=parts)
    sums = sums_of(raw, partitions_def=parts)
    world = harness(raw, sums, picked_of(sums, parts))
    path, first = ("{}", DAY) if dimensions == 1 else ("{}/women", f"{DAY}|women")
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, path.format(day), rows(1))
    world.tick()
    many = {asset: tags_of(world, asset, first) for asset in BOTH}
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, path.format(day), rows(2))
    alone(world, first)
    single = {asset: tags_of(world, asset, first) for asset in BOTH}
    assert len(world.reported("t/sums", first)) == 2
    for asset in BOTH:
        assert {*many[asset]} == {*single[asset]}
        for tag in ("dagster/code_version", "dagster/data_version_is_user_provided"):
            assert many[asset][tag] == single[asset][tag]
        assert many[asset]["dagster/input_event_pointer/t/raw"].isdigit()
        assert len(many[asset]["dagster/input_data_version/t/raw"]) == len(world.reported("t/raw", first)[0].version)


def test_a_check_targets_the_materialization_of_its_own_run(monkeypatch):
    world = three_days(1, 2, 3)
    fetch = world.instance.fetch_materializations

    def after_another(*args, **kwargs):
        """Report the same partition from another run a moment after this one."""
        event = dg.AssetMaterialization(dg.AssetKey(["t", "sums"]), partition=DAY)
        world.instance.report_runless_asset_event(event)
        return fetch(*args, **kwargs)

    monkeypatch.setattr(world.instance, "fetch_materializations", after_another)
    result = materialize(world, DAY, THIRD_DAY)
    found = [each for each in result.get_asset_check_evaluations() if each.partition == DAY]
    assert [each.target_materialization_data.run_id for each in found] == [result.run_id] * 2
