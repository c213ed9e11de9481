"""Teams that share only an event table, tick by tick: from event rows to runs over slices."""

import json
from datetime import UTC, datetime
from itertools import count

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import (
    ByEvents,
    EventSource,
    EventTableComponent,
    LineageTable,
    Plan,
    Rule,
    SqlTable,
    event_table,
    feed_asset,
    with_automation,
)
from feed_assets.core.attempts import pause_after
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import alerts, due, event_rejects, event_store, inbox, pauses
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration import by_hand
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.declare.declarations import declaration_of
from feed_assets.orchestration.execute.components import EventTableYaml
from feed_assets.orchestration.run_outcomes import why_failed
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.orchestration.event_team import (
    NOON,
    REPORT,
    Team,
    consumed_markers,
    report_assets,
    report_world,
    slice_ranges,
)
from feed_assets_tests.support.sum_projects import harness, later

SHUFFLE = "spark.sql.shuffle.partitions"


@pytest.fixture
def team(tmp_path):
    return Team(tmp_path)


@pytest.fixture
def seen():
    """Return a list that gets the spec of each run of the report, in order."""
    return []


def test_an_update_of_another_team_is_consumed_once_it_is_complete(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1))
    assert world_.run_until_idle() == []
    team.publish(("b", "X", 7))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    assert [slice_ranges(run_spec) for run_spec in seen] == [{"team/a": (None, 1), "team/b": (None, 7)}]
    assert consumed_markers() == {"team/a": 1, "team/b": 7}
    assert world_.run_until_idle() == []


def test_the_function_gets_slices_partition_and_run_spec_and_its_rows_are_published(team, spark):
    got = []

    def report(a, b, partition, run_spec):
        got.append((a, b, str(partition.feed), run_spec.consumes))
        return spark.createDataFrame([("x",)], "k string")

    world_ = harness(*report_assets(team, report, pipelines={"p": ["team/a"], "q": ["team/b"]}), maker=None)
    team.publish(("a", "X", 1))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    ((a, b, feed, consumes),) = got
    assert (str(a.partition.feed), a.start, int(a.end), b) == ("team/a", None, 1, None)
    assert (feed, consumes) == ("gamma/report/v1.0", True)
    assert [each.metadata["preview"] for each in world_.reported("gamma/report") if each.run] == [
        "| k |\n| --- |\n| x |"
    ]


def test_the_next_run_reads_on_from_the_consumed_markers(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1), ("b", "X", 7))
    world_.run_until_idle()
    team.publish(("a", "Y", 5), ("b", "Y", 8), ("a", "Z", 6))
    world_.run_until_idle()
    assert [slice_ranges(run_spec) for run_spec in seen[1:]] == [{"team/a": (1, 5), "team/b": (7, 8)}]
    assert seen[1].consumes


def test_each_event_is_reported_to_dagster_with_its_context(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1), ("a", "Y", 2), rows=3, **{"correlation id": "a lie"})
    world_.run_until_idle()
    reported = world_.reported("team/a")
    assert [each.version for each in reported] == ["00000000000000000002", "00000000000000000001"]
    assert reported[0].metadata["correlation id"] == "Y"
    assert reported[0].metadata["rows"] == 3


def test_an_event_that_arrives_during_a_run_is_read_by_the_next_run(team, seen):
    more = iter([lambda: team.publish(("a", "Y", 2), ("b", "Y", 9))])
    world_ = report_world(team, seen, during=lambda: next(more, lambda: None)())
    team.publish(("a", "X", 1), ("b", "X", 7))
    world_.run_until_idle()
    assert [slice_ranges(run_spec) for run_spec in seen] == [
        {"team/a": (None, 1), "team/b": (None, 7)},
        {"team/a": (1, 2), "team/b": (7, 9)},
    ]


def failing_once():
    failures = iter([True])

    def during():
        if next(failures, False):
            raise RuntimeError("no")

    return during


def test_a_failed_run_leaves_its_markers_and_is_retried(team, seen):
    world_ = report_world(team, seen, during=failing_once())
    team.publish(("a", "X", 1), ("b", "X", 7))
    (first,) = world_.run_until_idle()
    later(world_, pause_after(1))
    (second,) = world_.run_until_idle()
    assert (first.succeeded, second.succeeded) == (False, True)
    assert slice_ranges(seen[0]) == slice_ranges(seen[1])
    assert consumed_markers() == {"team/a": 1, "team/b": 7}


def test_building_a_failed_report_by_hand_consumes_the_due_slices(team, seen):
    world_ = report_world(team, seen, during=failing_once())
    team.publish(("a", "X", 1), ("b", "X", 7))
    world_.run_until_idle()
    graph, services = Graph(world_.definitions.resolve_asset_graph()), Services.of(settings())
    planned = by_hand.plan(graph, services, [Partition(REPORT, "")])
    left = by_hand.build(graph, services, planned, "alice", lambda request: world_.runner.execute(request).success)
    assert (left, slice_ranges(seen[1])) == ({}, slice_ranges(seen[0]))
    assert consumed_markers() == {"team/a": 1, "team/b": 7}


def test_a_run_by_hand_leaves_markers_alone_and_publishes_its_own_event(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1), ("b", "X", 7))
    world_.run_until_idle()
    team.publish(("a", "Y", 5))
    world_.run_until_idle()
    started(world_, [{"table": "team/a", "upto": "1"}, {"table": "team/b", "upto": "7"}])
    assert slice_ranges(seen[1]) == {"team/a": (None, 1), "team/b": (None, 7)}
    assert not seen[1].consumes
    assert consumed_markers() == {"team/a": 1, "team/b": 7}
    with open_ledger(settings().ledger).read() as connection:
        assert len(event_store.newest(connection, 10, REPORT)) == 2
    team.publish(("b", "Y", 8))
    world_.run_until_idle()
    assert slice_ranges(seen[2]) == {"team/a": (1, 5), "team/b": (7, 8)}
    assert len(seen) == 3


def started(world_, slices):
    job = world_.definitions.resolve_implicit_global_asset_job_def()
    config = {"ops": {"gamma__report": {"config": {"slices": slices}}}}
    key = [dg.AssetKey(["gamma", "report"])]
    assert job.execute_in_process(instance=world_.instance, asset_selection=key, run_config=config).success


def test_pipelines_do_not_wait_for_each_other_and_empty_tables_are_not_read(team, seen):
    world_ = report_world(team, seen, pipelines={"p": ["team/a"], "q": ["team/b"]})
    team.publish(("a", "X", 1))
    (run,) = world_.run_until_idle()
    assert run.succeeded
    team.publish(("b", "Y", 7))
    world_.run_until_idle()
    assert [slice_ranges(run_spec) for run_spec in seen] == [{"team/a": (None, 1)}, {"team/b": (None, 7)}]
    assert consumed_markers() == {"team/a": 1, "team/b": 7}


def test_wait_for_all_waits_for_every_pipeline(team, seen):
    world_ = report_world(team, seen, pipelines={"p": ["team/a"], "q": ["team/b"]}, wait_for="all")
    team.publish(("a", "X", 1))
    assert world_.run_until_idle() == []
    team.publish(("b", "Y", 7))
    world_.run_until_idle()
    assert [slice_ranges(run_spec) for run_spec in seen] == [{"team/a": (None, 1), "team/b": (None, 7)}]


def test_a_run_by_hand_without_any_event_fails_with_the_reason(team, seen):
    world_ = report_world(team, seen)
    job = world_.definitions.resolve_implicit_global_asset_job_def()
    key = [dg.AssetKey(["gamma", "report"])]
    done = job.execute_in_process(instance=world_.instance, asset_selection=key, raise_on_error=False)
    assert "none of its inputs has an event yet" in why_failed(done)


def test_a_paused_consumer_loses_nothing(team, seen):
    world_ = report_world(team, seen)
    ledger = open_ledger(settings().ledger)
    pauses.pause_consumer(ledger, REPORT, "paused for the test", None, NOON)
    team.publish(("a", "X", 1), ("b", "X", 7))
    assert world_.run_until_idle() == []
    team.publish(("a", "Y", 2), ("b", "Y", 8))
    assert world_.run_until_idle() == []
    assert pauses.resume(ledger, REPORT, NOON)
    world_.run_until_idle()
    assert [slice_ranges(run_spec) for run_spec in seen] == [{"team/a": (None, 2), "team/b": (None, 8)}]


def test_a_run_that_cannot_begin_is_requested_twice_and_then_pauses(team, seen):
    unknown = Plan(tags={"feed_assets/spark_profile": "large"})
    world_ = report_world(team, seen, plans=[Rule(unknown, operations=frozenset({Operation.OVERWRITE}))])
    began = datetime.now(UTC)
    world_.now = lambda: began  # On a slow machine the pause before the next attempt would be over.
    team.publish(("a", "X", 1), ("b", "X", 7))
    world_.run_until_idle()
    team.publish(("a", "Y", 2), ("b", "Y", 8), operation=Operation.OVERWRITE)
    assert [run.succeeded for run in world_.run_until_idle()] == [False] * 2
    with open_ledger(settings().ledger).read() as connection:
        (listed,) = due.listed(connection, REPORT)
    assert listed.look_at > began
    team.publish(("a", "Z", 3), ("b", "Z", 9), operation=Operation.OVERWRITE)
    assert len(world_.tick()) == 1


def test_the_plan_is_chosen_before_the_run_starts(team, seen, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_SPARK_PROFILES", '{"large": {}}')
    settings.cache_clear()
    large = Plan("reload", {"deep": True}, {"feed_assets/spark_profile": "large"})
    world_ = report_world(team, seen, plans=[Rule(large, operations=frozenset({Operation.OVERWRITE}))])
    team.publish(("a", "X", 1), ("b", "X", 7))
    (first,) = world_.run_until_idle()
    assert first.tags["feed_assets/plan"] == "incremental"
    team.publish(("a", "Y", 2), operation=Operation.OVERWRITE)
    team.publish(("b", "Y", 8))
    (second,) = world_.run_until_idle()
    assert second.tags["feed_assets/plan"] == "reload"
    assert second.tags["feed_assets/spark_profile"] == "large"
    assert second.tags["feed_assets/correlation"] == "Y"
    assert seen[1].plan.kind == "reload"
    assert seen[1].plan.config == {"deep": True}
    assert slice_ranges(seen[1])["team/a"] == (None, 2)


def test_events_of_unknown_partitions_or_tables_are_rejected_with_the_reason(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1), key="2024-01-01")
    team.publish(("gamma/report/v1.0", "X", 1))
    world_.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        reasons = sorted(each.reason for _, each, _ in event_rejects.rejects(connection, 10))
    assert "'2024-01-01' is no partition of team/a" in reasons[0]
    assert "is declared here, but not as a table of the event source team" in reasons[1]


@pytest.mark.parametrize(("out_of_order", "runs"), [("flag", 2), ("refuse", 1)])
def test_events_out_of_order_in_a_table_are_refused_or_flagged_and_never_lost(team, seen, out_of_order, runs):
    team.source = EventSource("team", team.source.parts, out_of_order)
    world_ = report_world(team, seen)
    team.publish(("a", "X", 10), ("b", "X", 7))
    world_.run_until_idle()
    team.publish(("a", "late", 4), ("b", "late", 8))
    world_.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        flags = [event.flag for event in event_store.newest(connection, 10, Feed.parse("team/a"))]
        rejects = event_rejects.rejects(connection, 10)
    assert len(seen) == runs
    if out_of_order == "flag":
        assert flags == ["out of order", None]
        assert slice_ranges(seen[1])["team/a"] == (None, 4)
    else:
        assert flags == [None]
        assert "marker 4 is not after 10" in rejects[0][1].reason


def test_a_lost_ledger_cursor_is_read_again_and_nothing_is_consumed_twice(team, seen):
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1), ("b", "X", 7))
    world_.run_until_idle()
    ledger = open_ledger(settings().ledger)
    with ledger.write() as connection:
        connection.execute(sa.text("DELETE FROM cursor WHERE name LIKE 'read %'"))
    assert world_.run_until_idle() == []
    assert len(seen) == 1


def test_a_build_by_hand_after_an_event_out_of_order_is_read_with_the_next_event(team):
    """The report last read its table up to 15; the dataset made by hand read it up to 20. Their markers differ."""
    table = event_table("team/a", source=team.source, table_name="a")
    derived = feed_asset("gamma/derived/v1.0", inputs={"a": table}, by_events=ByEvents())(lambda a: None)
    report = feed_asset("gamma/report/v1.0", inputs={"a": table, "derived": derived}, by_events=ByEvents())(
        lambda a, derived: None
    )
    made = count()
    world_ = harness(table, derived, report, give=lambda _: Given([{"n": next(made)}]))
    for number, marker in enumerate((10, 20, 15)):
        team.publish(("a", f"X{number}", marker))
        assert [run.assets for run in world_.run_until_idle()] == [("gamma/derived",), ("gamma/report",)]
    job = world_.definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=world_.instance, asset_selection=[*derived.keys]).success
    assert world_.run_until_idle() == []
    with open_ledger(settings().ledger).read() as connection:
        (waits,) = due.listed(connection, REPORT)
    assert (waits.state, waits.reason) == (
        "waits for propagation",
        "update X1 has not reached team/a (pipeline team/a)",
    )
    team.publish(("a", "Y", 30))
    assert [run.assets for run in world_.run_until_idle()] == [("gamma/derived",), ("gamma/report",)]
    with open_ledger(settings().ledger).read() as connection:
        assert (inbox.outputs(connection), due.listed(connection, REPORT)) == ((), ())


def test_a_source_part_that_does_not_answer_is_an_alert_and_stops_no_other_part(team, seen, caplog):
    broken = EventSource("team", (SqlTable("sqlite:////nowhere/at/all.db", "events", "id"), *team.source.parts))
    team.source = broken
    world_ = report_world(team, seen)
    team.publish(("a", "X", 1), ("b", "X", 7))
    world_.run_until_idle()
    assert len(seen) == 1
    why = "There is no SQLite database /nowhere/at/all.db"
    assert [each for each in caplog.messages if "part 0 of team opened at " in each and why in each]
    with open_ledger(settings().ledger).read() as connection:
        opened = {each.name: each.reason for each in alerts.open_alerts(connection)}
    assert {name: reason.split(":")[0] for name, reason in opened.items()} == {
        "failing:events_team:part 0 of team": why
    }


def test_pipelines_come_from_a_lineage_table_of_others(team, seen, tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'lineage.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE lineage (pipeline TEXT, table_name TEXT)"))
        connection.execute(sa.text("INSERT INTO lineage VALUES ('p', 'a'), ('p', 'b'), ('p', 'unknown here')"))
    world_ = report_world(team, seen, pipelines=LineageTable(str(engine.url), "lineage"))
    team.publish(("a", "X", 1))
    assert world_.run_until_idle() == []
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM lineage WHERE table_name = 'b'"))
    team.publish(("b", "Y", 1))
    world_.run_until_idle()
    assert [slice_ranges(run_spec) for run_spec in seen] == [{"team/a": (None, 1), "team/b": (None, 1)}]
    engine.dispose()


def test_a_run_with_an_unknown_spark_profile_fails_with_the_reason(team, seen):
    world_ = report_world(team, seen, plans=[Rule(Plan(tags={"feed_assets/spark_profile": "large"}))])
    team.publish(("a", "X", 1), ("b", "X", 7))
    (run, *_) = world_.tick()
    assert "a run asks for the Spark profile 'large': FEED_ASSETS_SPARK_PROFILES has none" in run.error


def test_a_spark_profile_applies_to_its_own_run_alone_or_is_refused(team, spark, setting):
    """Runs in one process share a session, so an option that Spark takes only at its start cannot be for one run."""
    profiles = {"more": {SHUFFLE: "77"}, "large": {SHUFFLE: "78", "spark.driver.memory": "8g"}}
    setting(spark_profiles=json.dumps(profiles))
    operations = {"more": Operation.OVERWRITE, "large": Operation.DELETE}
    plans = [
        Rule(Plan(tags={"feed_assets/spark_profile": name}), operations=frozenset({operation}))
        for name, operation in operations.items()
    ]
    found, before = [], spark.conf.get(SHUFFLE)

    def report(a, b):
        found.append(spark.conf.get(SHUFFLE))
        return spark.createDataFrame([(str(len(found)),)], "k string")

    world_ = harness(*report_assets(team, report, plans=plans), maker=None)
    for marker, operation in enumerate((Operation.OVERWRITE, Operation.UPSERT, Operation.DELETE)):
        team.publish(("a", f"X{marker}", marker), ("b", f"X{marker}", marker), operation=operation)
        ran = world_.run_until_idle()
    assert "sets spark.driver.memory, which Spark reads only when it starts" in ran[0].error
    assert found == ["77", before]
    assert spark.conf.get(SHUFFLE) == before


def test_the_durations_of_the_last_updates_are_a_chart_in_the_metadata(team, seen):
    world_ = report_world(team, seen)
    for marker in (1, 2):
        team.publish(("a", f"X{marker}", marker), ("b", f"X{marker}", marker))
        world_.run_until_idle()
    newest = world_.reported("gamma/report")[0].metadata["duration from team/a"]
    assert newest.startswith("![durations](data:image/svg+xml;base64,")
    assert "| 2 |" in newest


def test_event_tables_in_yaml_equal_those_declared_in_python(tmp_path):
    source = {"name": "shop", "parts": [{"url": "env:SHOP", "table": "events", "order_by": "id"}]}
    tables = [EventTableYaml(table="shop/orders", table_name="ORDERS", start_date="2024-01-01")]
    made = EventTableComponent(source=source, tables=tables).build_defs(dg.ComponentTree.for_test().load_context)
    (spec,) = made.assets
    shop = EventSource("shop", (SqlTable("env:SHOP", "events", "id"),))
    days = dg.DailyPartitionsDefinition("2024-01-01")
    same = event_table("shop/orders", source=shop, table_name="ORDERS", partitions_def=days)
    assert declaration_of(spec) == declaration_of(same)
    assert spec == same.replace_attributes(metadata=spec.metadata)
    names = {each.name for each in with_automation(made).sensors}
    assert "events_shop" in names
