"""Partitions that a person builds by hand: choice, order, inputs, and reasons for those that stay unbuilt."""

from functools import partial

import pytest

from feed_assets import Late
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.ledger import closures, runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration import by_hand
from feed_assets.orchestration.by_hand import Chosen
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings
from feed_assets.testing import rows_of
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    THIRD_DAY,
    chain,
    outcomes,
    rows,
    short,
    until_given_up,
)

pytestmark = pytest.mark.usefixtures("home")

SUM, PICK = (partial(Partition, Feed.parse(name)) for name in (SUMS, PICKED))


def graph(world) -> Graph:
    return Graph(world.definitions.resolve_asset_graph())


def planned(world, *outputs):
    by_hand.look(graph(world), Services.of(settings()), outputs)
    return by_hand.plan(graph(world), Services.of(settings()), outputs)


def chosen(world, *which, of=(SUMS, PICKED)) -> set[Partition]:
    nodes = [graph(world).node(Feed.parse(each)) for each in of]
    return by_hand.choose(graph(world), Services.of(settings()), nodes, which)


def build(world, *outputs, who="alice") -> dict[Partition, str]:
    def run(request):
        return world.runner.execute(request).success

    return by_hand.build(graph(world), Services.of(settings()), planned(world, *outputs), who, run)


def test_a_plan_lists_outputs_in_build_order_with_their_inputs():
    world = chain()
    first, other = world.drop(RAW, DAY, rows(1)), world.drop(RAW, NEXT_DAY, rows(1, 2))
    found = planned(world, PICK(DAY), SUM(NEXT_DAY), SUM(DAY))
    assert [each.output for each in found] == [SUM(DAY), PICK(DAY), SUM(NEXT_DAY)]
    assert [[pin.update_id for pin in each.verdict.pins] for each in found] == [[first], [], [other]]
    assert [each.bytes for each in found] == [len(rows(1)), 0, len(rows(1, 2))]
    assert [each.after for each in found] == [(), (SUM(DAY),), ()]
    assert [each.verdict.state for each in found] == ["build", "waits for input", "build"]
    assert world.newest(SUMS, DAY) is None
    assert by_hand.with_inputs(found) == found


def test_outputs_whose_inputs_the_plan_does_not_make_are_left_out():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    found = planned(world, SUM(DAY), PICK(DAY), SUM(NEXT_DAY), PICK(NEXT_DAY), PICK(THIRD_DAY))
    assert [each.output for each in by_hand.with_inputs(found)] == [SUM(DAY), PICK(DAY)]


def test_inputs_are_built_before_their_consumers():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    assert build(world, PICK(DAY), SUM(DAY)) == {}
    assert [(run.assets[-1], run.succeeded) for run in world.runs] == [("t/sums_rejects", True), ("t/picked", True)]
    assert world.run_until_idle() == []


def test_building_a_given_up_partition_by_hand_records_who_asked():
    broken = [True]

    def during():
        if broken:
            raise RuntimeError("broken")

    world = short(during=during)
    world.drop(RAW, DAY, rows(1))
    until_given_up(world)
    assert chosen(world, Chosen.FAILED, of=[SUMS]) == {SUM(DAY)}
    broken.clear()
    assert build(world, SUM(DAY), who="alice@home") == {}
    assert asked_by(SUM(DAY)) == ("published", "alice@home")
    assert chosen(world, Chosen.FAILED, of=[SUMS]) == set()
    assert world.run_until_idle() == []


def asked_by(output: Partition) -> tuple[str, str | None]:
    with open_ledger(settings().ledger).read() as connection:
        run = runs.last(connection, output)
    return run.state, run.asked_by


def test_a_run_records_who_asked_for_it_and_none_for_a_sensor():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.tick()
    assert asked_by(SUM(DAY)) == ("published", None)
    job = world.definitions.resolve_implicit_global_asset_job_def()
    world.drop(RAW, DAY, rows(1, 2))
    job.execute_in_process(instance=world.instance, partition_key=DAY)
    assert asked_by(SUM(DAY)) == ("published", "somebody in Dagster")
    job.execute_in_process(instance=world.instance, partition_key=NEXT_DAY, tags={"user": "bob"})
    assert asked_by(SUM(NEXT_DAY)) == ("unchanged", "bob")


def test_refused_and_failed_partitions_are_chosen_apart():
    world = short()
    world.drop(RAW, DAY, rows(101))
    world.drop(RAW, NEXT_DAY, rows(13))
    world.run_until_idle()
    assert chosen(world, Chosen.REFUSED, of=[SUMS]) == {SUM(DAY)}
    assert chosen(world, Chosen.FAILED, of=[SUMS]) == {SUM(NEXT_DAY)}
    assert chosen(world, Chosen.FAILED, Chosen.REFUSED, of=[SUMS]) == {SUM(DAY), SUM(NEXT_DAY)}


def test_a_failed_rebuild_is_chosen_although_its_update_is_published():
    """Only its function has changed, so no list of due partitions has it."""
    broken = list[bool]()

    def during():
        if broken:
            raise RuntimeError("broken")

    world = short(during=during)
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    world.run_until_idle()
    broken.append(True)
    changed = short(during=during, code_version="2")
    assert build(changed, SUM(DAY), SUM(NEXT_DAY)) == {}
    assert (changed.run_until_idle(), changed.newest(SUMS, DAY)) == ([], world.newest(SUMS, DAY))
    assert chosen(changed, Chosen.FAILED, of=[SUMS]) == {SUM(DAY), SUM(NEXT_DAY)}
    closures.close(open_ledger(settings().ledger), [SUM(NEXT_DAY)], "done", "alice", utc_now())
    assert chosen(changed, Chosen.FAILED, of=[SUMS]) == {SUM(DAY)}
    broken.clear()
    assert build(changed, SUM(DAY)) == {}
    assert chosen(changed, Chosen.FAILED, of=[SUMS]) == set()


def test_missing_partitions_have_an_input_and_no_valid_update():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, NEXT_DAY, rows(2))
    missing = chosen(world, Chosen.MISSING)
    assert missing == {SUM(NEXT_DAY), PICK(NEXT_DAY)}
    assert build(world, *missing) == {}
    assert chosen(world, Chosen.MISSING) == set()


def test_build_by_hand_leaves_partitions_without_input_and_names_the_reason():
    world = short()
    world.drop(RAW, NEXT_DAY, rows(2))
    left = build(world, SUM(NEXT_DAY), SUM(THIRD_DAY))
    assert left.keys() == {SUM(THIRD_DAY)}
    assert left[SUM(THIRD_DAY)] == f"waits for input: no valid update of {RAW} {THIRD_DAY}"
    assert world.newest(SUMS, NEXT_DAY)


def test_readers_of_a_partition_that_failed_stay_unbuilt_with_the_reason():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    build(world, SUM(DAY), PICK(DAY))
    picked = world.newest(PICKED, DAY)
    world.drop(RAW, DAY, rows(13))
    assert build(world, SUM(DAY), PICK(DAY)) == {PICK(DAY): f"it reads {SUMS} {DAY}, which could not be built"}
    assert outcomes(world.runs)[-1] == ("sums", DAY, False)
    assert world.newest(PICKED, DAY) == picked


def test_a_refused_partition_is_tried_again_by_hand():
    world = short()
    world.drop(RAW, DAY, rows(101))
    world.run_until_idle()
    assert build(world, SUM(DAY)) == {}
    assert outcomes(world.runs) == [("sums", DAY, False)] * 2


def test_late_data_below_the_threshold_are_taken_by_hand():
    world = short(late=Late(growth=1.0))
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(1, 2))
    assert world.run_until_idle() == []
    assert build(world, SUM(DAY)) == {}
    assert rows_of(world.board, read.latest(world.board, SUM(DAY)).update) == [{"k": "a", "n": 3}]


def test_a_foreign_feed_cannot_be_built_by_hand():
    world = short()
    with pytest.raises(InvalidName, match=r"t/raw/v1\.0 is a foreign feed: expected a dataset"):
        graph(world).dataset_of(Feed.parse(RAW))
