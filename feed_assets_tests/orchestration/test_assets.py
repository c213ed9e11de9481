import dagster as dg
import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.orchestration.execute.build_events import offending_rows
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    chain,
    harness,
    inputs_of,
    outcomes,
    picked_of,
    raw_feed,
    rows,
    short,
    sums_of,
)


def materialize(world: Harness, *assets: str, day: str = DAY, **updates: str) -> dg.ExecuteInProcessResult:
    """Call `dg.materialize` on some assets of a world; `updates` pins updates of the raw feed."""
    pins = {f"{RAW}/{DAY}": update_id for update_id in updates.values()}
    return dg.materialize(
        [*world.definitions.assets],
        partition_key=day,
        instance=world.instance,
        selection=[dg.AssetKey.from_user_string(asset) for asset in assets],
        run_config={"ops": {"t__sums": {"config": {"updates": pins}}}} if pins else None,
        raise_on_error=False,
    )


def sums(world: Harness, **updates: str) -> dg.ExecuteInProcessResult:
    return materialize(world, "t/sums", "t/sums_rejects", **updates)


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    error = event.step_failure_data.error
    return (error.cause or error).message


def test_metadata_of_a_materialization_names_the_update_and_its_inputs():
    world = short()
    raw = world.drop(RAW, DAY, rows(1, 2))
    assert sums(world).success
    (reported,) = world.reported("t/sums", DAY)
    update = read.latest(world.board, Partition(Feed.parse(SUMS), DAY)).update
    assert reported.metadata | {"inputs": None} == {
        "update id": update.id,
        "path": f"{world.board.url}/t/sums/v1.0/{DAY}/{update.id}",
        "files": len(update.files),
        "bytes": update.size,
        "dagster/row_count": 1,
        "dagster/column_schema": dg.TableSchema([dg.TableColumn("k", "str"), dg.TableColumn("n", "int")]),
        "inputs": None,
        "rejected": 0,
        "rejected share": 0.0,
        "preview": "| k | n |\n| --- | --- |\n| a | 3 |",
    }
    assert inputs_of(reported)[f"t/raw/v1.0/{DAY}"] == raw
    assert "[t/raw/v1.0](/assets/t/raw?view=partitions&partition=2020-01-01)" in reported.metadata["inputs"]


def test_the_rejects_are_materialized_beside_the_dataset():
    world = short()
    world.drop(RAW, DAY, rows(1) + "a,many\n")
    assert sums(world).success
    (reported,) = world.reported("t/sums_rejects", DAY)
    assert reported.metadata["dagster/row_count"] == 1
    assert reported.update_id == world.newest("t/sums_rejects/v1.0", DAY)
    (clean,) = world.reported("t/sums", DAY)
    assert (clean.metadata["rejected"], clean.metadata["rejected share"]) == (1, 0.5)


def test_the_data_version_depends_on_rows_and_not_on_files():
    world = short()
    for day, numbers in ((DAY, (1, 2)), (NEXT_DAY, (2, 1, 0)), ("2020-01-03", (1,))):
        world.drop(RAW, day, rows(*numbers))
        assert materialize(world, "t/sums", "t/sums_rejects", day=day).success
    first, same, other = (world.reported("t/sums", day)[0].version for day in (DAY, NEXT_DAY, "2020-01-03"))
    assert first == same
    assert other != first


def test_a_passed_check_targets_its_partition_and_newest_materialization():
    world = short()
    world.drop(RAW, DAY, rows(1))
    found = sums(world).get_asset_check_evaluations()
    assert {(each.check_name, each.partition, each.passed, each.blocking) for each in found} == {
        ("not_empty", DAY, True, True),
        ("within_n", DAY, True, True),
    }
    assert {each.target_materialization_data.storage_id for each in found} == {
        world.reported("t/sums", DAY)[0].storage_id
    }


def test_a_failed_audit_fails_the_run_in_clear_words_and_materializes_nothing():
    world = short()
    world.drop(RAW, DAY, rows(101))
    result = sums(world)
    assert not result.success
    why = "The audit failed and nothing is published: within_n: n must be in [0, 100]; not in it: 1 of 1 rows."
    assert why in failure(result)
    assert world.reported("t/sums", DAY) == []
    assert world.reported("t/sums_rejects", DAY) == []


def test_every_check_of_a_failed_audit_is_recorded_for_its_partition():
    world = short()
    world.drop(RAW, DAY, rows(101))
    sums(world)
    assert world.checks("t/sums", DAY) == {"not_empty": True, "within_n": False}
    assert world.checks("t/sums", NEXT_DAY) == {}


def test_a_failed_check_shows_offending_rows_and_the_remedy(spark):
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=None)
    world.drop(RAW, DAY, rows(101))
    result = sums(world)
    (failed,) = [each for each in result.get_asset_check_evaluations() if not each.passed]
    shown = [*offending_rows(world.instance, result.run_id, DAY)]
    assert shown == [{"check": "within_n", "k": "a", "n": 101}]
    assert [*offending_rows(world.instance, result.run_id, NEXT_DAY)] == []
    assert failed.metadata["sample"].value == {"rows": [{"k": "a", "n": 101}]}
    assert failed.metadata["what to do"].value.startswith("Correct the input")


def test_a_failed_check_shows_how_many_were_rejected_and_why(spark):
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=None)
    world.drop(RAW, DAY, rows() + "a,many\nb,few\n")
    failed = {each.check_name: each for each in sums(world).get_asset_check_evaluations() if not each.passed}
    metadata = failed["not_empty"].metadata
    assert metadata["rejected"].value == 2
    assert metadata["sample"].value == {"rows": [{"reason": "n: not an int", "records": 2}]}
    assert failed["not_empty"].description.endswith("; 2 rejected, most often for 'n: not an int' (2)")


def test_after_a_failed_audit_the_previous_update_is_still_served():
    world = short()
    world.drop(RAW, DAY, rows(1))
    sums(world)
    before = world.newest(SUMS, DAY)
    world.drop(RAW, DAY, rows(101))
    assert not sums(world).success
    assert world.newest(SUMS, DAY) == before


def test_a_failed_audit_holds_only_downstream_of_its_partition_until_a_good_input():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(101))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True), ("sums", NEXT_DAY, False), ("picked", DAY, True)]
    world.drop(RAW, NEXT_DAY, rows(99))
    assert outcomes(world.run_until_idle()) == [("sums", NEXT_DAY, True), ("picked", NEXT_DAY, True)]


def test_a_failed_rebuild_audit_holds_downstream_of_old_data_until_a_good_build():
    raw = raw_feed()
    dataset = sums_of(raw)
    alone = harness(raw, dataset)
    alone.drop(RAW, DAY, rows(1))
    alone.run_until_idle()
    alone.drop(RAW, DAY, rows(101))
    alone.run_until_idle()
    world = harness(raw, dataset, picked_of(dataset))
    assert outcomes(world.run_until_idle()) == []
    world.drop(RAW, DAY, rows(2))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True), ("picked", DAY, True)]


def test_downstream_goes_on_once_the_refused_input_is_invalidated():
    raw = raw_feed()
    dataset = sums_of(raw)
    alone = harness(raw, dataset)
    alone.drop(RAW, DAY, rows(1))
    alone.run_until_idle()
    bad = alone.drop(RAW, DAY, rows(101))
    alone.run_until_idle()
    world = harness(raw, dataset, picked_of(dataset))
    assert outcomes(world.run_until_idle()) == []
    world.invalidate(RAW, DAY, bad)
    assert outcomes(world.run_until_idle()) == [("picked", DAY, True)]


def test_inputs_that_are_named_in_run_config_are_read():
    world = short()
    older = world.drop(RAW, DAY, rows(1))
    world.drop(RAW, DAY, rows(1, 2))
    assert sums(world, raw=older).success
    assert world.reported("t/sums", DAY)[0].metadata["preview"].endswith("| a | 1 |")


def test_a_named_input_that_is_not_there_fails_the_run():
    world = short()
    world.drop(RAW, DAY, rows(1))
    result = sums(world, raw="20200101.000000")
    assert "20200101.000000" in failure(result)
    assert not result.success


def test_the_same_inputs_again_publish_and_materialize_nothing():
    world = short()
    world.drop(RAW, DAY, rows(1))
    sums(world)
    before = world.newest(SUMS, DAY)
    again = sums(world)
    assert again.success
    assert again.asset_materializations_for_node("t__sums") == []
    assert world.newest(SUMS, DAY) == before


def test_a_whole_chain_runs_in_one_run():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    assert materialize(world, "t/sums", "t/sums_rejects", "t/picked").success
    assert world.newest(PICKED, DAY) is not None


def test_a_run_without_its_input_names_what_is_missing():
    world = short()
    result = sums(world)
    assert "t/raw/v1.0 2020-01-01" in failure(result)


@pytest.mark.parametrize("selected", ["t/sums", "t/sums_rejects"])
def test_a_part_of_a_dataset_can_be_selected_and_only_that_is_materialized(selected):
    world = short()
    world.drop(RAW, DAY, rows(1))
    assert materialize(world, selected).success
    reported = {asset for asset in ("t/sums", "t/sums_rejects") if world.reported(asset, DAY)}
    assert reported == {selected}


def test_a_dynamic_partition_can_be_materialized():
    regions = dg.DynamicPartitionsDefinition(name="regions")
    raw = raw_feed(partitions_def=regions)
    world = harness(raw, sums_of(raw, partitions_def=regions))
    world.instance.add_dynamic_partitions("regions", ["north"])
    world.drop(RAW, "north", rows(1))
    assert materialize(world, "t/sums", "t/sums_rejects", day="north").success


@pytest.mark.parametrize(("limit", "policy"), [(7, dg.BackfillPolicy.multi_run(7)), (1, None)])
def test_backfill_policy_follows_partitions_per_run_without_caching_settings(setting, limit, policy):
    setting(partitions_per_run=limit)
    assert sums_of(raw_feed()).backfill_policy == policy
    assert settings.cache_info().currsize == 0
