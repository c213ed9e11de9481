"""Many datasets in one code location: the statements of a tick, and the sensors that evaluate conditions."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from benchmarks import at_home
from benchmarks.dataset_worlds import CHANGED, World, definitions, made
from feed_assets import ByEvents, Cadence, EventSource, SqlTable, event_table, feed_asset, with_automation
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.decisions import DECISIONS_AT_ONCE, decide_due, fan_out_to
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.location import ENTITIES
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink
from feed_assets.testing import Harness
from feed_assets_tests.support.statement_counter import counted_statements
from feed_assets_tests.support.sum_projects import opened

NOW = datetime(2024, 2, 1, tzinfo=UTC)


def world_of(count: int, home: Path) -> tuple[World, Harness]:
    """Build `count` datasets of which two days are published."""
    world = World(settings().ledger, count, CHANGED)
    harness = opened.enter_context(Harness(definitions(count)))
    world.fill()
    world.drop(home / "blackboard")
    world.confirm(harness.instance)
    return world, harness


def statements_of_conditions(count: int, home: Path) -> list[str]:
    world, harness = world_of(count, home)
    with counted_statements(world.ledger.engine) as statements:
        found = dg.evaluate_automation_conditions(harness.definitions, harness.instance)
    assert found.total_requested == 0
    return statements


@pytest.mark.parametrize("count", [4, 40])
def test_all_conditions_together_query_the_ledger_once(count, home):
    queries = [each for each in statements_of_conditions(count, home) if each.startswith("SELECT")]
    assert len(queries) == 1


def idle_tick(count: int, folder: Path) -> list[str]:
    """Return the statements of a tick of all sensors and conditions without any change."""
    folder.mkdir()
    with at_home(folder):
        world, harness = world_of(count, folder)
        harness.run_until_idle()
        with counted_statements(world.ledger.engine) as statements:
            assert harness.runner.tick() == 0
    return statements


def test_an_idle_tick_of_fifty_datasets_costs_as_much_as_one_of_six(tmp_path):
    assert len(idle_tick(6, tmp_path / "few")) == len(idle_tick(50, tmp_path / "many"))


def statements_to_decide(changed: int, folder: Path) -> list[str]:
    """Change `changed` datasets, and return the statements that decide about their consumers in one round."""
    folder.mkdir()
    with at_home(folder):
        world, harness = world_of(2 * DECISIONS_AT_ONCE, folder)
        world.change(range(changed))
        graph = Graph(harness.definitions.resolve_asset_graph())
        with counted_statements(world.ledger.engine) as statements:
            fan_out_to(graph, graph.datasets(), world.ledger, NOW, lambda: False)
            found = decide_due(graph, graph.datasets(), world.ledger, NOW, 10_000, lambda: False).verdicts
    assert len(found) == 2 * changed * len(CHANGED) <= DECISIONS_AT_ONCE
    return statements


def test_deciding_many_changes_costs_as_many_statements_as_a_few(tmp_path):
    few, many = statements_to_decide(2, tmp_path / "few"), statements_to_decide(20, tmp_path / "many")
    assert len(few) == len(many)


def watched(count: int, url: str) -> dg.Definitions:
    """Build `count` event tables with a daily cadence, and a dataset by events for each."""
    cadence = Cadence("0 6 * * *", timedelta(hours=1))
    SqlSink(url, "events").publish([])
    source = EventSource("team", (SqlTable(url, "events", "id"),))
    tables = [event_table(f"team/t{number}", source=source, cadence=cadence) for number in range(count)]

    def consumer(number: int, table: dg.AssetSpec) -> dg.AssetsDefinition:
        @feed_asset(f"b/out{number}/v1.0", inputs={"rows": table}, by_events=ByEvents())
        def made(rows):
            """Read the input; it never runs here."""
            return rows

        return made

    return with_automation(dg.Definitions(assets=[*tables, *map(consumer, range(count), tables)]))


def idle_watch(count: int, folder: Path) -> list[str]:
    folder.mkdir()
    with at_home(folder):
        url = f"sqlite:///{folder}/team.db"
        harness = opened.enter_context(Harness(watched(count, url), sources={"team": url}))
        harness.run_until_idle()
        with counted_statements(open_ledger(settings().ledger).engine) as statements:
            assert harness.runner.tick() == 0
    return statements


def test_an_idle_tick_of_many_watched_tables_costs_as_much_as_one_of_a_few(tmp_path):
    assert len(idle_watch(6, tmp_path / "few")) == len(idle_watch(30, tmp_path / "many"))


def late_data_sensors(defs: dg.Definitions) -> list[dg.AutomationConditionSensorDefinition]:
    sensors = defs.get_repository_def().sensor_defs
    found = [each for each in sensors if isinstance(each, dg.AutomationConditionSensorDefinition)]
    return sorted(found, key=lambda sensor: int(sensor.name.removeprefix("late_data").removeprefix("_") or 1))


def entities(defs: dg.Definitions, sensor: dg.AutomationConditionSensorDefinition) -> set[dg.AssetKey]:
    graph = defs.resolve_asset_graph()
    return {key for key in sensor.asset_selection.resolve(graph) if graph.get(key).automation_condition}


def test_two_thousand_datasets_are_shared_among_six_late_data_sensors(home):
    world, harness = world_of(2000, home)
    sensors = late_data_sensors(harness.definitions)
    shares = [entities(harness.definitions, sensor) for sensor in sensors]
    assert [sensor.name for sensor in sensors] == ["late_data", *(f"late_data_{n}" for n in range(2, 7))]
    assert [len(share) for share in shares] == [ENTITIES] * 6
    assert sum(map(len, shares)) == len(set[dg.AssetKey]().union(*shares))
    world.change([999])
    harness.ask()
    assert requests_of(harness, sensors[0]) == []
    assert requests_of(harness, sensors[-1]) == [([made(999).removesuffix("/v1.0")], day) for day in CHANGED]


def requests_of(harness: Harness, sensor: dg.AutomationConditionSensorDefinition) -> list[tuple[list[str], str | None]]:
    with dg.build_sensor_context(harness.instance, definitions=harness.definitions, sensor_name=sensor.name) as context:
        requests = sensor(context).run_requests
    return sorted(([key.to_user_string() for key in each.asset_selection], each.partition_key) for each in requests)


def test_one_sensor_evaluates_a_dataset_and_its_rejects(home):
    defs = definitions(1002)
    for share in (entities(defs, sensor) for sensor in late_data_sensors(defs)):
        names = {key.to_user_string() for key in share}
        assert {f"{name}_rejects" for name in names if "clean" in name and not name.endswith("_rejects")} <= names


def test_conditions_of_definitions_added_later_are_evaluated():
    @dg.asset(automation_condition=dg.AutomationCondition.eager())
    def later() -> None:
        """Do nothing; it never runs here."""

    defs = dg.Definitions.merge(with_automation(dg.Definitions()), dg.Definitions(assets=[later]))
    (sensor,) = late_data_sensors(defs)
    assert entities(defs, sensor) == {later.key}
