"""Runs wait for resources in the loop: who goes first, what is said, and what a kill leaves."""

import json
import re
from datetime import timedelta

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import Resources, feed_asset, with_automation
from feed_assets.core.attempts import ABANDONED, end_of, is_outage
from feed_assets.core.errors import ResourcesBusy, SparkUnavailable, TargetLost
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.launching import LONGEST_WAIT
from feed_assets.ledger import allocations, due
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.resource_queue import LOOK_AGAIN
from feed_assets.ledger.tables import allocation, run
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.request_budget import is_a_service_out
from feed_assets.orchestration.decide.resource_requests import ALLOCATION, TARGET, TARGET_WHY, in_queue_order, preview
from feed_assets.orchestration.execute.run_target import settings_on
from feed_assets.orchestration.ticks.dead_runs import end_unused
from feed_assets.settings import settings
from feed_assets.spark.session import conf
from feed_assets_tests.support.command_output import printed
from feed_assets_tests.support.statement_counter import counted_statements
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    given,
    harness,
    later,
    raw_feed,
    rows,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")

DAYS_DROPPED = (DAY, NEXT_DAY, THIRD_DAY)
HERE = {"here": {"kind": "local", "cores": 2, "memory": "2g"}}
WHY = "here is the only target that fits: 2 of 2 cores and 2 GiB of 2 GiB free"
raw = raw_feed()
sums = sums_of(raw)
defs = with_automation(dg.Definitions(assets=[raw, sums]))
"""Module-level definitions for the command line."""


@pytest.fixture
def one_at_a_time(setting):
    setting(targets=json.dumps(HERE), partitions_per_run=1)
    return setting


def world(*days, **options):
    feed = raw_feed()
    lake = harness(feed, sums_of(feed), **options)
    for day in days:
        lake.drop(RAW, day, rows(1))
    return lake


def listed(feed=SUMS):
    with open_ledger(settings().ledger).read() as connection:
        return {each.partition.key: each for each in due.listed(connection, Feed.parse(feed))}


def allocated():
    """Return target and Dagster run of everything that is given or waits."""
    with open_ledger(settings().ledger).read() as connection:
        rows_ = connection.execute(sa.select(allocation).order_by(allocation.c.output))
        return [(row.id, row.target, row.dagster_run) for row in rows_]


def on_targets():
    return [target for _, target, _ in allocated() if target]


def test_only_as_many_runs_are_requested_as_have_room_and_all_are_built_in_the_end(one_at_a_time):
    lake = world(*DAYS_DROPPED)
    (request,) = lake.ask().requests
    assert {name: request.tags[name] for name in (TARGET, TARGET_WHY)} == {TARGET: "here", TARGET_WHY: WHY}
    waits = {key: each for key, each in listed().items() if each.state == "waits for resources"}
    assert {each.reason for each in waits.values()} == {"it needs 2 cores and 1 GiB: here 0 of 2 cores free"}
    assert (len(waits), on_targets()) == (2, ["here"])
    later(lake, timedelta(seconds=6))
    ran = lake.run_until_idle()
    assert sorted(each.partition for each in ran if each.assets[0] == "t/sums") == [*DAYS_DROPPED]
    assert (listed(), allocated()) == ({}, [])
    assert lake.reported("t/sums")[0].metadata["compute target"] == "here"
    with open_ledger(settings().ledger).read() as connection:
        assert {*connection.execute(sa.select(run.c.placed)).scalars()} == {WHY}


def test_a_run_of_many_partitions_takes_its_resources_once(setting):
    setting(targets=json.dumps(HERE))
    lake = world(*DAYS_DROPPED)
    (request,) = lake.ask().requests
    assert request.tags["dagster/asset_partition_range_end"] == THIRD_DAY
    assert [(name, target) for name, target, _ in allocated()] == [(request.tags[ALLOCATION], "here")]


def test_the_greater_priority_goes_first_and_labels_choose_the_target(setting):
    many = {"plain": HERE["here"], "large": {**HERE["here"], "labels": ["gpu"]}}
    setting(targets=json.dumps(many), partitions_per_run=1)
    feed = raw_feed()

    def declared(name, **options):
        @feed_asset(name, inputs={"raw": feed}, partitions_def=DAYS, resources=Resources(**options))
        def copied(raw):
            """Return the rows unchanged."""
            return raw

        return copied

    lake = harness(feed, declared("t/a/v1.0"), declared("t/b/v1.0", priority=1, labels=["gpu"]), declared("t/c/v1.0"))
    lake.drop(RAW, DAY, rows(1))
    asked = [(request.tags[TARGET], min(request.asset_selection).path[-1]) for request in lake.ask().requests]
    assert asked == [("large", "b"), ("plain", "a")]
    assert listed("t/c/v1.0")[DAY].state == "waits for resources"


def test_the_first_of_the_queue_is_among_the_few_that_a_tick_requests(setting):
    """Otherwise the queue would keep free room for it, and nobody would run."""
    setting(targets=json.dumps(HERE), partitions_per_run=1, max_requests=1)
    feed = raw_feed()
    lake = harness(
        feed, sums_of(feed, name="t/a/v1.0"), sums_of(feed, name="t/z/v1.0", resources=Resources(priority=1))
    )
    for day in DAYS_DROPPED:
        lake.drop(RAW, day, rows(1))
    firsts = []
    for _ in range(3):
        (request,) = lake.ask().requests
        firsts.append(min(request.asset_selection).path[-1])
        assert lake.runner.execute(request).success
    assert firsts == ["z", "z", "z"]
    setting(targets=json.dumps(HERE), partitions_per_run=1, max_requests=3)
    assert len(lake.ask().requests) == 1  # The other two wait from now on.
    new, waiting = (Partition(Feed.parse("t/a/v1.0"), key) for key in ("2020-01-04", THIRD_DAY))
    graph, ledger = Graph(lake.definitions.resolve_asset_graph()), open_ledger(settings().ledger)
    assert [*in_queue_order(graph, ledger, {new: 1, waiting: 1}, lake.now() + timedelta(minutes=1))] == [waiting, new]


def test_late_data_wait_for_resources_and_their_runs_have_a_target(one_at_a_time):
    lake = world(DAY, NEXT_DAY)
    lake.run_until_idle()
    for day in (DAY, NEXT_DAY):
        lake.drop(RAW, day, rows(1, 2))
    ran = [each for each in lake.run_until_idle() if each.assets[0] == "t/sums"]
    assert sorted(each.partition for each in ran) == [DAY, NEXT_DAY]
    assert {each.tags[TARGET] for each in ran} == {"here"}
    assert allocated() == []


def test_a_tick_killed_before_its_run_exists_loses_no_capacity_and_gives_none_twice(one_at_a_time):
    lake = world(DAY)
    (first,) = lake.ask().requests
    assert lake.ask().requests == ()
    later(lake, timedelta(seconds=6))
    (second,) = lake.ask().requests
    assert first.tags[ALLOCATION] != second.tags[ALLOCATION]
    assert [name for name, _, _ in allocated()] == [second.tags[ALLOCATION]]
    # The first run begins nevertheless. Its resources are gone, so it takes new ones, or waits.
    one_at_a_time(run_wait_seconds=0)
    result = lake.runner.execute(first)
    assert (result.success, on_targets()) == (False, ["here"])
    assert "has waited 0 s for resources" in str(result.failure_data_for_node("t__sums").error.cause)
    assert lake.runner.execute(second).success
    assert allocated() == []


def test_a_run_that_never_began_gives_its_resources_back_after_a_while(one_at_a_time):
    lake = world(DAY)
    (request,) = lake.ask().requests
    # Dagster may still have it in its queue, for a pool or a limit.
    lake.instance.create_run_for_job(lake.definitions.resolve_implicit_global_asset_job_def(), tags=request.tags)
    lake.invalidate(RAW, DAY, lake.newest(RAW, DAY))
    end_unused(lake.instance, open_ledger(settings().ledger), lake.now())
    assert on_targets() == ["here"]
    end_unused(lake.instance, open_ledger(settings().ledger), lake.now() + LONGEST_WAIT + timedelta(seconds=1))
    assert allocated() == []


def test_a_run_that_was_killed_gives_its_resources_back_once_dagster_knows_it(one_at_a_time):
    lake = world(DAY)
    (request,) = lake.ask().requests
    dead = lake.instance.create_run_for_job(lake.definitions.resolve_implicit_global_asset_job_def(), tags=request.tags)
    ledger = open_ledger(settings().ledger)
    assert allocations.take_up(ledger, request.tags[ALLOCATION], dead.run_id)
    lake.instance.report_run_canceling(dead)
    end_unused(lake.instance, ledger, lake.now() + 2 * LONGEST_WAIT)
    assert on_targets() == ["here"]
    lake.instance.report_run_canceled(dead)
    end_unused(lake.instance, ledger, lake.now() + 2 * LONGEST_WAIT)
    assert allocated() == []


def test_a_run_by_hand_waits_in_the_same_queue_and_ends_without_an_attempt(one_at_a_time):
    one_at_a_time(run_wait_seconds=0)
    lake = world(DAY, NEXT_DAY)
    lake.ask()
    (waiting,) = [each for each in listed().values() if each.state == "waits for resources"]
    request = dg.RunRequest(asset_selection=[dg.AssetKey(["t", "sums"])], partition_key=waiting.partition.key)
    assert not lake.runner.execute(request).success
    assert end_of(ResourcesBusy()) == ABANDONED
    with open_ledger(settings().ledger).read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(run)).scalar_one() == 0
    assert on_targets() == ["here"]


def test_a_lost_target_is_no_attempt_and_no_outage_so_others_are_requested(one_at_a_time):
    one_at_a_time(targets=json.dumps({"here": {"kind": "local", "cores": 4, "memory": "4g"}}))
    lost = []

    def give(task):
        if not lost:
            lost.append(task.output.key)
            raise TargetLost("the compute target here was lost (no answer in 2 s)")
        return given(task)

    lake = world(DAY, give=give)
    assert [each.succeeded for each in lake.tick() if each.assets[0] == "t/sums"] == [False]
    assert not is_outage(TargetLost.__name__)
    for day in (NEXT_DAY, THIRD_DAY):
        lake.drop(RAW, day, rows(1))
    assert len(lake.ask().requests) == 2
    later(lake, timedelta(seconds=30))
    assert {each.partition for each in lake.run_until_idle() if each.succeeded} == {*DAYS_DROPPED}


def test_a_lost_target_ends_a_run_of_many_partitions_and_is_no_outage(setting):
    setting(targets=json.dumps({"here": {"kind": "local", "cores": 4, "memory": "4g"}}), partitions_at_a_time=1)
    begun = []

    def give(task):
        begun.append(task.output.key)
        if begun == [DAY]:
            raise TargetLost("the compute target here was lost (no answer in 2 s)")
        if len(begun) == 2:
            raise SparkUnavailable("Spark has ended while this process used it.")
        return given(task)

    lake = world(*DAYS_DROPPED, give=give)
    lake.tick()
    assert begun == [DAY]
    with open_ledger(settings().ledger).read() as connection:
        assert not is_a_service_out(connection, [Feed.parse(SUMS)])
    begun.extend(DAYS_DROPPED)  # The second target works.
    later(lake, timedelta(seconds=30))
    assert {each.partition for each in lake.run_until_idle() if each.succeeded} == {*DAYS_DROPPED}


def test_without_targets_no_statement_asks_for_them(setting):
    lake = world(*DAYS_DROPPED)
    with counted_statements(open_ledger(settings().ledger).engine) as statements:
        lake.run_until_idle()
    assert [each for each in statements if re.search(r"(FROM|JOIN|INTO|UPDATE) (allocation|probe)\b", each)] == []
    assert len(statements) > 100


def test_explain_and_a_dry_run_say_where_a_run_goes_or_what_it_waits_for(one_at_a_time):
    lake = world(DAY, NEXT_DAY)
    lake.ask()
    (waiting,) = [each for each in listed().values() if each.state == "waits for resources"]
    key, why = waiting.partition.key, "it needs 2 cores and 1 GiB: here 0 of 2 cores free"
    view = json.loads(printed("explain", SUMS, key, "-m", __name__, "--json"))
    assert (view["state"], view["reason"].partition(";")[0]) == ("waits for resources", why)
    (planned,) = json.loads(printed("build", SUMS, key, "--dry-run", "-m", __name__, "--json"))
    assert planned["reason"].endswith(f"waits for resources: {why}")
    assert f"waits for resources  1      {key}  {why}" in printed("explain", "-m", __name__)
    far = {"kind": "connect", "remote": "sc://127.0.0.1:1", "cores": 8, "memory": "8g"}
    one_at_a_time(targets=json.dumps({**HERE, "far": far}))
    (planned,) = json.loads(printed("build", SUMS, key, "--dry-run", "-m", __name__, "--json"))
    assert "far is left to the daemon, because this command has one Spark" in planned["reason"]


def test_a_wait_for_resources_is_reported_to_dagster_once_whatever_is_free_meanwhile(one_at_a_time):
    lake = world(DAY, NEXT_DAY)
    observed, reasons = [], set()
    for cores in (2, 3, 3):
        one_at_a_time(targets=json.dumps({"here": {"kind": "local", "cores": cores, "memory": "2g"}}))
        observed += [each.partition for each in lake.ask().events if isinstance(each, dg.AssetObservation)]
        (waiting,) = [each for each in listed().values() if each.state == "waits for resources"]
        reasons.add(waiting.reason)
        later(lake, LOOK_AGAIN)
    assert (observed, len(reasons)) == ([waiting.partition.key], 2)


def test_more_input_than_usual_gets_more_cores_and_a_dry_run_says_why(setting):
    days = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-08")
    setting(targets=json.dumps({"here": {"kind": "local", "cores": 3, "memory": "8g"}}), partitions_per_run=1)
    feed = raw_feed(partitions_def=days)
    learning = sums_of(feed, partitions_def=days, resources=Resources(learned=True))
    lake = harness(feed, learning)
    for number in range(1, 6):
        lake.drop(RAW, f"2020-01-0{number}", rows(*[0] * 1000 * number))
    lake.run_until_idle()
    with open_ledger(settings().ledger).write() as connection:  # The clock stood still while the runs worked.
        for number in range(1, 6):
            of_day = (run.c.partition == f"2020-01-0{number}") & (run.c.feed == SUMS)
            started = lake.now() - timedelta(minutes=number)
            assert (
                connection.execute(sa.update(run).where(of_day).values(started=started, ended=lake.now())).rowcount == 1
            )
    lake.drop(RAW, "2020-01-06", rows(*[0] * 15_000))
    (request,) = lake.ask().requests
    ledger = open_ledger(settings().ledger)
    graph = Graph(with_automation(dg.Definitions(assets=[feed, learning])).resolve_asset_graph())
    output = Partition(Feed.parse(SUMS), "2020-01-07")
    why = preview(graph, ledger, {output: 3 << 20}, lake.now())[output]
    assert why == (
        "waits for resources: it needs 3 cores and 1.5 GiB: here 0 of 3 cores free; 3 cores and 1.5 GiB are learned "
        "from 5 runs: the input has 3.0 MiB, usually 0.0 MiB"
    )
    with ledger.read() as connection:
        granted = connection.execute(sa.select(allocation.c.cores, allocation.c.memory)).one()
    assert tuple(granted) == (3, 3 << 29)  # 10 cores would be right, and the largest target has 3.
    assert lake.runner.execute(request).success
    with ledger.read() as connection:
        assert {*connection.execute(sa.select(run.c.cores).where(run.c.partition == "2020-01-06")).scalars()} == {3}


def test_no_setting_gives_a_run_another_place_or_more_than_it_was_given(setting, caplog):
    master = {"kind": "standalone", "master": "spark://h:7077", "url": "http://h:8080", "conf": {"spark.a": "target"}}
    more = {"spark.master": "local[9]", "spark.cores.max": "99", "spark.executor.memory": "9g", "spark.task.cpus": "3"}
    profile = {**more, "spark.executor.instances": "9", "spark.driver.memory": "4g"}
    setting(
        targets=json.dumps({"etl": master}),
        spark_conf=json.dumps({**more, "spark.a": "all", "spark.b": "all"}),
        spark_profiles=json.dumps({"big": profile}),
    )
    on_target = settings_on(settings().target("etl"), Resources(cores=4, memory="8g"))
    values = conf(on_target)
    assert [values[key] for key in ("spark.master", "spark.cores.max", "spark.executor.memory")] == [
        "spark://h:7077",
        "4",
        "2048m",
    ]
    assert (values["spark.a"], values["spark.b"], "spark.task.cpus" in values) == ("target", "all", False)
    assert on_target.profile("big") == {"spark.driver.memory": "4g"}
    assert "has spark.cores.max and spark.executor.instances and spark.executor.memory and spark.master" in caplog.text
