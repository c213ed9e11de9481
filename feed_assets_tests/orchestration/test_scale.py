"""Many datasets in one code location: what a tick asks of the ledger, and who evaluates their conditions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from benchmarks.dataset_worlds import CHANGED, World, definitions, made
from feed_assets import with_automation
from feed_assets.orchestration.location import ENTITIES
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.orchestration.worlds import opened


def world_of(count: int, home: Path) -> tuple[World, Harness]:
    """So many datasets of which two days are published."""
    world = World(settings().ledger, count, CHANGED)
    harness = opened.enter_context(Harness(definitions(count)))
    world.fill(home / "blackboard")
    world.confirm(harness.instance)
    return world, harness


@contextmanager
def counted(engine: sa.Engine) -> Iterator[list[str]]:
    """The statements that the ledger is asked."""
    statements: list[str] = []

    def note(_connection, _cursor, statement, *_more) -> None:
        statements.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def statements_of_conditions(count: int, home: Path) -> list[str]:
    world, harness = world_of(count, home)
    with counted(world.ledger.engine) as statements:
        found = dg.evaluate_automation_conditions(harness.definitions, harness.instance)
    assert found.total_requested == 0
    return statements


@pytest.mark.parametrize("count", [4, 40])
def test_the_conditions_of_all_datasets_ask_the_ledger_once(count, home):
    queries = [each for each in statements_of_conditions(count, home) if each.startswith("SELECT")]
    assert len(queries) == 1


def late_data_sensors(defs: dg.Definitions) -> list[dg.AutomationConditionSensorDefinition]:
    sensors = defs.get_repository_def().sensor_defs
    found = [each for each in sensors if isinstance(each, dg.AutomationConditionSensorDefinition)]
    return sorted(found, key=lambda sensor: int(sensor.name.removeprefix("late_data").removeprefix("_") or 1))


def entities(defs: dg.Definitions, sensor: dg.AutomationConditionSensorDefinition) -> set[dg.AssetKey]:
    graph = defs.resolve_asset_graph()
    return {key for key in sensor.asset_selection.resolve(graph) if graph.get(key).automation_condition}


def test_two_thousand_datasets_are_shared_among_sensors_and_the_last_of_them_asks_for_late_data(home):
    world, harness = world_of(2000, home)
    sensors = late_data_sensors(harness.definitions)
    shares = [entities(harness.definitions, sensor) for sensor in sensors]
    assert [sensor.name for sensor in sensors] == ["late_data", *(f"late_data_{n}" for n in range(2, 7))]
    assert [len(share) for share in shares] == [ENTITIES] * 6
    assert sum(map(len, shares)) == len(set[dg.AssetKey]().union(*shares))
    world.change([999])
    harness.ask()
    assert asked(harness, sensors[0]) == []
    assert asked(harness, sensors[-1]) == [([made(999).removesuffix("/v1.0")], day) for day in CHANGED]


def asked(harness: Harness, sensor: dg.AutomationConditionSensorDefinition) -> list[tuple[list[str], str | None]]:
    with dg.build_sensor_context(harness.instance, definitions=harness.definitions, sensor_name=sensor.name) as context:
        requests = sensor(context).run_requests
    return sorted(([key.to_user_string() for key in each.asset_selection], each.partition_key) for each in requests)


def test_a_dataset_and_its_rejects_are_evaluated_by_one_sensor(home):
    defs = definitions(1002)
    for share in (entities(defs, sensor) for sensor in late_data_sensors(defs)):
        names = {key.to_user_string() for key in share}
        assert {f"{name}_rejects" for name in names if "clean" in name and not name.endswith("_rejects")} <= names


def test_what_is_added_to_the_definitions_later_is_evaluated_too():
    @dg.asset(automation_condition=dg.AutomationCondition.eager())
    def later() -> None:
        """Never run here."""

    defs = dg.Definitions.merge(with_automation(dg.Definitions()), dg.Definitions(assets=[later]))
    (sensor,) = late_data_sensors(defs)
    assert entities(defs, sensor) == {later.key}
