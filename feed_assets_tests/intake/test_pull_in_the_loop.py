"""Partners' files in the loop: the sensor `pull` copies them, the log wakes readers, alerts report problems."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from filelock import FileLock

from feed_assets import Pull, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.read import latest
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.declare.declarations import Foreign
from feed_assets.orchestration.ticks.pull_step import pulled
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker, rows_of
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import SCHEMA, harness, later, outcomes, rows, sums_of

THEIRS, OTHERS = "t/theirs/v1.0", "t/others/v1.0"
NOW = datetime.now(UTC)
"""Fixed time, since a day, an hour or a cron tick may end while the tests run."""

TODAY = f"{NOW - timedelta(days=1):%Y-%m-%d}"
DAYS = dg.DailyPartitionsDefinition((NOW - timedelta(days=30)).strftime("%Y-%m-%d"))
HOURS = dg.HourlyPartitionsDefinition((NOW - timedelta(days=3)).strftime("%Y-%m-%d-00:00"))
CRON = "0 */6 * * *"


@pytest.fixture
def partner(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a partner's blackboard, which is in the settings."""
    (folder := home / "partner").mkdir()
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", json.dumps({"them": {"url": folder.as_uri()}}))
    settings.cache_clear()
    yield folder
    sum_projects.opened.close()


def theirs(name: str = THEIRS, *, folder: str = "out", days=DAYS, **options) -> dg.AssetSpec:
    pattern = "%Y-%m-%d/%H/*.csv" if days is HOURS else "%Y-%m-%d/*.csv"
    intake = Pull("them", pattern, prefix=folder, cron=CRON, **options)
    return foreign_feed(name, schema=SCHEMA, partitions_def=days, intake=intake)


def world_of(*specs: dg.AssetSpec, days=DAYS, **options) -> Harness:
    return harness(*specs, sums_of(specs[0], partitions_def=days), give=PlainMaker().give, now=lambda: NOW, **options)


def put(partner: Path, name: str, text: str, folder: str = "out") -> None:
    (path := partner / folder / name).parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def told() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def test_a_file_is_pulled_and_built_from_at_once_and_another_one_at_a_later_tick_of_the_cron(partner):
    put(partner, f"{TODAY}/a.csv", rows(1))
    world = world_of(theirs())
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]
    put(partner, f"{TODAY}/b.csv", rows(2))
    assert world.run_until_idle() == []
    later(world, timedelta(hours=6))
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]
    assert told() == {}


def test_a_file_replaced_by_a_rename_is_no_longer_in_built_data(partner):
    for name, number in (("a", 1), ("b", 5)):
        put(partner, f"{TODAY}/{name}.csv", rows(number))
    world = harness(theirs(), sums_of(theirs(), partitions_def=DAYS), now=lambda: NOW)
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]
    (partner / "out" / TODAY / "a.csv").rename(partner / "out" / TODAY / "b.csv")
    later(world, timedelta(hours=6))
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]
    update = latest(world.board, Partition(Feed.parse(sum_projects.SUMS), TODAY)).update
    assert (rows_of(world.board, update), told()) == ([{"k": "a", "n": 1}], {})


def test_wrong_files_raise_an_alert_until_they_are_repaired(partner):
    put(partner, f"{TODAY}/a.csv", "")
    world = world_of(theirs())
    world.run_until_idle()
    (said,) = [reason for name, reason in told().items() if name == f"failing:pull:{THEIRS}"]
    assert f"out/{TODAY}/a.csv: it is empty" in said
    later(world, timedelta(hours=6))
    put(partner, f"{TODAY}/a.csv", rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]
    assert told() == {}


@pytest.mark.parametrize("then", ["it is gone", "it is still wrong"])
def test_wrong_files_are_reported_for_the_lookback_and_one_day(partner, then):
    put(partner, f"{TODAY}/a.csv", rows(1))
    put(partner, f"{TODAY}/empty.csv", "")
    world = world_of(theirs(changed="alert"))
    world.run_until_idle()
    later(world, timedelta(hours=6))
    put(partner, f"{TODAY}/a.csv", rows(1, 2))
    world.run_until_idle()
    if then == "it is gone":
        (partner / "out" / TODAY / "empty.csv").unlink()
    for days, names in ((3.5, {"a.csv", "empty.csv"}), (1, set())):
        later(world, timedelta(days=days))
        world.run_until_idle()
        said = told().get(f"failing:pull:{THEIRS}", "")
        assert {name for name in ("a.csv", "empty.csv") if f"/{name}" in said} == names


def test_with_the_alert_policy_a_rename_onto_a_file_withdraws_nothing(partner):
    for name, number in (("a", 1), ("b", 5)):
        put(partner, f"{TODAY}/{name}.csv", rows(number))
    world = world_of(theirs(changed="alert"))
    world.run_until_idle()
    (partner / "out" / TODAY / "a.csv").rename(partner / "out" / TODAY / "b.csv")
    later(world, timedelta(hours=6))
    assert world.run_until_idle() == []
    assert f"{TODAY}/b.csv: it was pulled with" in told()[f"failing:pull:{THEIRS}"]


def test_an_unavailable_partner_blocks_no_other_and_is_retried(partner):
    put(partner, f"{TODAY}/a.csv", rows(1))
    away = foreign_feed(
        OTHERS, schema=SCHEMA, partitions_def=DAYS, intake=Pull("nobody", "%Y-%m-%d/*.csv", prefix="out", cron=CRON)
    )
    world = world_of(theirs(), away, sources={"nobody": partner.with_name("nobody")})
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]
    assert "(the blackboard 'nobody'): the folder does not exist" in told()[f"failing:pull:{OTHERS}"]


def test_a_returning_partner_is_polled_at_once(partner):
    world = world_of(theirs())
    partner.rename(partner.with_name("gone"))
    world.run_until_idle()
    assert "(the blackboard 'them'): the folder does not exist" in told()[f"failing:pull:{THEIRS}"]
    partner.with_name("gone").rename(partner)
    put(partner, f"{TODAY}/a.csv", rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]
    assert told() == {}


def test_two_processes_of_a_home_do_not_pull_at_once(partner, home):
    put(partner, f"{TODAY}/a.csv", rows(1))
    world = world_of(theirs())
    with FileLock(home / ".pull.lock"):
        assert world.run_until_idle() == []
    assert outcomes(world.run_until_idle()) == [("sums", TODAY, True)]


def test_files_of_impossible_hours_are_reported_and_the_current_hour_is_pulled(partner):
    put(partner, f"{NOW:%Y-%m-%d/%H}/a.csv", rows(1))
    put(partner, f"{NOW - timedelta(days=5):%Y-%m-%d/%H}/a.csv", rows(1))
    world = world_of(theirs(days=HOURS, lookback=9), days=HOURS)
    world.run_until_idle()
    assert "has no such partition" in told()[f"failing:pull:{THEIRS}"]
    assert world.board.children(THEIRS) == [f"{NOW:%Y-%m-%d-%H:00}"]


def test_the_pull_sensor_exists_only_if_files_are_pulled(partner):
    assert "pull" in {sensor.name for sensor in world_of(theirs()).definitions.sensors}
    spec = foreign_feed(THEIRS, schema=SCHEMA, partitions_def=DAYS)
    assert "pull" not in {sensor.name for sensor in world_of(spec).definitions.sensors}
    sum_projects.opened.close()


@each_case("days", [HOURS, dg.WeeklyPartitionsDefinition("2024-01-01"), None])
def test_partitions_that_names_do_not_lead_to_are_refused(days):
    with pytest.raises(InvalidDefinition, match="expected days in UTC, or hours and %H in the pattern"):
        foreign_feed(THEIRS, schema=SCHEMA, partitions_def=days, intake=Pull("them", "%Y-%m-%d/*"))


def test_a_pull_declaration_survives_dagsters_graph():
    graph = Graph(dg.Definitions([theirs(changed="alert", lookback=9)]).resolve_asset_graph())
    (source,) = pulled(graph, NOW)
    declared = graph.node(Feed.parse(THEIRS)).declaration
    assert isinstance(declared, Foreign)
    assert source.pull == declared.intake == Pull("them", "%Y-%m-%d/*.csv", "out", CRON, 9, "alert")
