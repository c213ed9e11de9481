"""An appendable feed and its consumer, tick by tick."""

import json
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import ForeignFeedsComponent, Late, foreign_feed
from feed_assets.cli import app
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import pins_digest
from feed_assets.ledger import due
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SCHEMA,
    SUMS,
    harness,
    inputs_of,
    outcomes,
    reports_of,
    requested,
    rows,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")

HELD = Partition(Feed.parse(RAW), DAY)


def appended(partitions_def=DAYS, **options) -> Harness:
    """Build an appendable raw feed -> sums."""
    raw = foreign_feed(RAW, partitions_def=partitions_def, schema=SCHEMA, appendable=True)
    return harness(raw, sums_of(raw, partitions_def=partitions_def, **options))


def total(world: Harness, day: str | None = DAY) -> dict[str, str]:
    """Return the update of each batch that the newest run of sums read."""
    inputs = inputs_of(world.reported("t/sums", day)[0])
    return {path.removeprefix(f"{RAW}/"): update for path, update in inputs.items()}


def test_each_change_of_the_set_of_batches_rebuilds_the_consumer():
    world = appended()
    first = world.drop(RAW, f"{DAY}/a", rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert total(world) == {f"{DAY}/a": first}
    other = world.drop(RAW, f"{DAY}/b", rows(2))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert total(world) == {f"{DAY}/a": first, f"{DAY}/b": other}
    second = world.drop(RAW, f"{DAY}/a", rows(1, 3))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert total(world) == {f"{DAY}/a": second, f"{DAY}/b": other}
    world.invalidate(RAW, f"{DAY}/b", other)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert total(world) == {f"{DAY}/a": second}
    assert outcomes(world.run_until_idle()) == []


def test_batches_of_a_partition_are_one_request_and_one_materialization_of_it():
    world = appended()
    ids = {name: world.drop(RAW, f"{DAY}/{name}", rows(1)) for name in "abc"}
    world.drop(RAW, f"{NEXT_DAY}/a", rows(1))
    asked = reports_of(world)
    assert requested(world) == [DAY, NEXT_DAY]
    reported = {event.partition: event for event in asked.events}
    assert (len(asked.events), {*reported}) == (2, {DAY, NEXT_DAY})
    with open_ledger(settings().ledger).read() as connection:
        pins = pins_of(connection, [HELD])[HELD]
    assert reported[DAY].tags == {"dagster/data_version": pins_digest(pins)}
    assert {name: value.value for name, value in reported[DAY].metadata.items()} == {
        "update id": max(ids.values()),
        "path": f"{world.board.url}/{HELD.path}",
        "batches": 3,
        "new": ids,
        "files": 3,
        "bytes": 24,
    }
    assert reports_of(world, asked.cursor).events == ()


def test_a_partition_whose_batches_are_all_invalid_requests_no_run():
    world = appended()
    only = world.drop(RAW, f"{DAY}/a", rows(1))
    world.invalidate(RAW, f"{DAY}/a", only)
    assert world.ask().targets == []
    world.drop(RAW, f"{DAY}/b", rows(1))
    assert requested(world) == [DAY]


def test_the_late_policy_weighs_the_growth_of_the_whole_set():
    world = appended(late=Late(growth=0.5, max_age=timedelta(days=2)))
    world.drop(RAW, f"{DAY}/a", rows(*range(1, 10)))
    world.run_until_idle()
    world.drop(RAW, f"{DAY}/b", rows(1))
    assert outcomes(world.run_until_idle()) == []
    world.drop(RAW, f"{DAY}/c", rows(*range(1, 6)))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_a_feed_without_partitions_may_hold_batches():
    world = appended(partitions_def=None)
    world.drop(RAW, "a", rows(1))
    world.drop(RAW, "b", rows(2))
    assert outcomes(world.run_until_idle()) == [("sums", None, True)]
    assert {*total(world, None)} == {"a", "b"}


def test_batches_of_an_unfinished_day_request_one_run_after_its_end():
    world, noon = appended(), datetime(2020, 1, 1, 12, tzinfo=UTC)
    for name in "ab":
        world.drop(RAW, f"{DAY}/{name}", rows(1))
    world.now = lambda: noon
    assert (requested(world), reports_of(world).events) == ([], ())
    with open_ledger(settings().ledger).read() as connection:
        (item,) = due.look(connection, [Feed.parse(SUMS)], noon + timedelta(hours=12), 9)
    assert (item.partition, item.look_at) == (Partition(Feed.parse(SUMS), DAY), noon + timedelta(hours=12))
    world.now = lambda: noon + timedelta(days=1)
    assert requested(world) == [DAY]


def test_a_component_declares_an_appendable_feed():
    attributes = {"feed": RAW, "schema": SCHEMA}
    component = ForeignFeedsComponent(
        start_date=DAY, feeds=[{**attributes, "appendable": True}, {**attributes, "feed": "t/plain/v1.0"}]
    )
    definitions = component.build_defs(dg.ComponentTree.for_test().load_context)
    graph = Graph(definitions.resolve_asset_graph())
    assert {str(node.feed): node.is_appendable for node in graph.foreign()} == {RAW: True, "t/plain/v1.0": False}


WORLD = f"""
import dagster as dg
from feed_assets import feed_asset, foreign_feed, with_automation

DAYS = dg.DailyPartitionsDefinition("{DAY}", end_date="2020-01-06")
RAW = foreign_feed("{RAW}", partitions_def=DAYS, schema="{SCHEMA}", appendable=True)

@feed_asset("{SUMS}", partitions_def=DAYS, inputs={{"raw": RAW}})
def sums(raw):
    return raw

defs = with_automation(dg.Definitions(assets=[RAW, sums]))
"""


def test_explain_names_the_update_of_each_batch_and_the_batches_left_out(tmp_path, monkeypatch):
    (tmp_path / "appendable_world.py").write_text(WORLD)
    monkeypatch.syspath_prepend(str(tmp_path))
    world = appended()
    ids = {name: world.drop(RAW, f"{DAY}/{name}", rows(1)) for name in "abc"}
    world.invalidate(RAW, f"{DAY}/b", ids["b"])
    why = f"{ids['b']}: it has no manifest: still being written, refused by its audit, abandoned or invalidated"
    said = CliRunner().invoke(app, ["explain", SUMS, DAY, "-m", "appendable_world"])
    lines = said.stdout.splitlines()
    assert lines[1] == f"{SUMS}  {DAY}  build  it has no valid update, and every input is there"
    assert [line.split()[:2] for line in lines[4:6]] == [[f"{RAW}/{DAY}/{name}", ids[name]] for name in "ac"]
    assert lines[6:] == [
        "  left_out",
        f"    input{' ' * (len(f'{RAW}/{DAY}/b') - 5)}  reason",
        f"    {RAW}/{DAY}/b  {why}",
    ]
    values = json.loads(CliRunner().invoke(app, ["explain", SUMS, DAY, "-m", "appendable_world", "--json"]).stdout)
    assert values["left_out"] == [{"input": f"{RAW}/{DAY}/b", "reason": why}]
