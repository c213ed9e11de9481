"""Reports to Dagster, tick by tick."""

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import Retention, event_table, foreign_feed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.ledger import tables
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.ticks.reporter import REPORTED, LogPosition
from feed_assets.runs.prune import prune
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets_tests.orchestration.event_team import Team
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SUMS,
    harness,
    raw_feed,
    reports_of,
    requested,
    rows,
    short,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")


def test_a_foreign_update_is_reported_with_the_digest_of_its_files_as_data_version():
    world = short()
    update_id = world.drop(RAW, DAY, rows(1, 2))
    (event,) = reports_of(world).events
    digest = read.latest(world.board, Partition(Feed.parse(RAW), DAY)).update.files_digest
    assert (event.asset_key.to_user_string(), event.partition) == ("t/raw", DAY)
    assert event.tags == {"dagster/data_version": digest}
    assert {name: value.value for name, value in event.metadata.items()} == {
        "update id": update_id,
        "path": f"{world.board.url}/t/raw/v1.0/{DAY}/{update_id}",
        "files": 1,
        "bytes": 12,
    }


def test_an_update_that_dagster_confirmed_is_not_reported_again():
    world = short()
    world.drop(RAW, DAY, rows(1))
    first = reports_of(world)
    second = reports_of(world, first.cursor)
    assert (len(first.events), second.events, second.cursor) == (1, (), first.cursor)


def test_an_update_that_dagster_did_not_confirm_is_reported_again():
    world = short()
    world.drop(RAW, DAY, rows(1))
    before = reports_of(world).cursor
    world.drop(RAW, NEXT_DAY, rows(2))
    lost, again = reports_of(world, before), reports_of(world, before)
    assert [event.partition for event in lost.events] == [NEXT_DAY]
    assert again.events == lost.events


def test_each_newer_update_is_reported():
    world = short()
    first = world.drop(RAW, DAY, rows(1))
    before = reports_of(world)
    second = world.drop(RAW, DAY, rows(1, 2))
    after = reports_of(world, before.cursor)
    assert [event.metadata["update id"].value for event in (*before.events, *after.events)] == [first, second]


def test_a_partition_outside_of_the_definition_is_neither_reported_nor_built():
    world = short()
    for key in ("2019-12-31", "2020-01-06", "men", f"{DAY}/men"):
        world.drop(RAW, key, rows(1))
    world.drop(RAW, DAY, rows(1))
    first = reports_of(world)
    second = reports_of(world, first.cursor)
    assert [event.partition for event in first.events] == [DAY]
    assert requested(world) == [DAY]
    assert second.events == ()


def test_a_partition_of_other_depth_does_not_stop_the_tick():
    parts = dg.MultiPartitionsDefinition({"date": DAYS, "campaign": dg.StaticPartitionsDefinition(["men", "women"])})
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(raw, partitions_def=parts))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.drop(RAW, f"{DAY}/men", rows(1))
    found = reports_of(world)
    assert [event.partition for event in found.events] == [f"men|{DAY}"]
    assert requested(world) == [f"men|{DAY}"]


def test_an_older_update_that_an_invalidation_uncovers_is_reported():
    world = short()
    first, second = world.drop(RAW, DAY, rows(1)), world.drop(RAW, DAY, rows(2))
    before = reports_of(world)
    world.invalidate(RAW, DAY, second)
    after = reports_of(world, before.cursor)
    ids = [event.metadata["update id"].value for event in (*before.events, *after.events)]
    assert ids == [second, first]


def test_an_update_of_a_run_in_progress_is_reported_after_the_runs_end():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    run = world.instance.get_run_by_id(world.runs[0].id)
    going_on = world.instance.create_run_for_job(
        world.definitions.resolve_implicit_global_asset_job_def(), tags=run.tags, asset_selection=run.asset_selection
    )
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(tables.run).values(dagster_run=going_on.run_id))
    world.instance.daemon_cursor_storage.set_cursor_values({f"{REPORTED}/feeds": str(LogPosition())})
    before = reports_of(world)
    assert {event.asset_key.to_user_string() for event in before.events} == {"t/raw"}
    world.instance.report_run_failed(going_on)
    after = reports_of(world, before.cursor)
    assert {event.asset_key.to_user_string() for event in after.events} == {"t/sums", "t/sums_rejects"}
    assert reports_of(world, after.cursor).events == ()


@pytest.mark.parametrize("lost", [{"t/sums"}, {"t/sums_rejects"}])
def test_a_materialization_missing_in_dagsters_index_is_reported(monkeypatch, lost):
    """Dagster writes a materialization to the run's log and then to its index; a kill may come in between."""
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    fetch = world.instance.fetch_materializations

    def without(wanted, limit):
        is_lost = wanted.asset_key.to_user_string() in lost
        return dg.EventRecordsResult([], "", has_more=False) if is_lost else fetch(wanted, limit=limit)

    monkeypatch.setattr(world.instance, "fetch_materializations", without)
    world.instance.daemon_cursor_storage.set_cursor_values({f"{REPORTED}/feeds": str(LogPosition())})
    found = {event.asset_key.to_user_string(): event for event in reports_of(world).events}
    assert found.keys() - {"t/raw"} == lost
    (event,) = [found[asset] for asset in lost]
    assert event.metadata["update id"].value == world.newest(f"{event.asset_key.to_user_string()}/v1.0", DAY)


def test_a_cursor_beyond_a_new_log_reports_from_the_beginning():
    world = short()
    world.drop(RAW, DAY, rows(1))
    assert [event.partition for event in reports_of(world, "log:9999/0").events] == [DAY]


def test_a_cursor_of_an_earlier_release_reports_the_newest_update_again():
    world = short()
    world.drop(RAW, DAY, rows(1))
    first = reports_of(world, "d1ce57a7e5/3")
    assert [event.partition for event in first.events] == [DAY]
    assert reports_of(world, first.cursor).events == ()


def test_two_programs_that_drive_the_sensor_report_an_update_once():
    world = short()
    world.drop(RAW, DAY, rows(1))
    daemon = reports_of(world)
    assert reports_of(world, daemon.cursor).events == ()
    assert reports_of(world, None).events == ()


def test_a_roll_back_and_its_revalidation_are_both_reported():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    first = world.newest(SUMS, DAY)
    world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    second = world.newest(SUMS, DAY)
    write.invalidate(world.board, Partition(Feed.parse(SUMS), DAY), second)
    sync(world.board, open_ledger(settings().ledger), Partition(Feed.parse(SUMS), DAY), world.now())
    uncovered = world.ask()
    assert [event.metadata["update id"].value for event in uncovered.events] == [first]
    world.revalidate(SUMS, DAY, second)
    valid_again = world.ask(uncovered.cursor)
    assert [event.metadata["update id"].value for event in valid_again.events] == [second]
    assert world.ask(valid_again.cursor).events == ()


def test_pruning_older_updates_reports_nothing():
    world = short()
    for numbers in ((1,), (1, 2)):
        world.drop(RAW, DAY, rows(*numbers))
        world.run_until_idle()
    before = [each.storage_id for each in world.reported("t/sums", DAY)]
    prune(Services.of(settings()), Partition(Feed.parse(SUMS), DAY), Retention(keep=1), apply=True)
    world.runner.tick()
    assert [each.storage_id for each in world.reported("t/sums", DAY)] == before


def test_an_invalidated_batch_is_reported_as_a_smaller_set():
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="k string, n int", appendable=True)
    world = harness(raw, sums_of(raw))
    world.drop(RAW, f"{DAY}/a", rows(1))
    gone = world.drop(RAW, f"{DAY}/b", rows(2))
    before = reports_of(world)
    world.invalidate(RAW, f"{DAY}/b", gone)
    (event,) = reports_of(world, before.cursor).events
    assert (event.metadata["batches"].value, event.metadata["new"].value) == (1, {})


def test_events_of_a_future_partition_are_all_reported_once_it_exists(tmp_path):
    regions = dg.DynamicPartitionsDefinition(name="regions")
    team = Team(tmp_path)
    world = harness(event_table("team/a", source=team.source, table_name="a", partitions_def=regions))
    team.publish(("a", "X", 1), ("a", "Y", 2), ("a", "Z", 3), key="p")
    before = world.ask(name="events_team")
    world.instance.add_dynamic_partitions("regions", ["p"])
    after = world.ask(before.cursor, "events_team")
    assert [event.metadata["correlation id"].value for event in (*before.events, *after.events)] == ["X", "Y", "Z"]


def test_ticks_out_of_time_report_every_event_in_the_end(tmp_path, setting):
    setting(tick_seconds=1e-9)
    team = Team(tmp_path)
    world = harness(event_table("team/a", source=team.source, table_name="a"))
    team.publish(*(("a", f"X{number}", number) for number in range(1, 31)))
    cursor, reported = None, []
    for _ in range(6):
        found = world.ask(cursor, "events_team")
        cursor, reported = found.cursor, [*reported, *found.events]
    assert len(reported) == 30


def test_a_feed_that_becomes_appendable_does_not_stop_the_reporter():
    world = harness(foreign_feed(RAW, schema="k string, n int"))
    world.drop(RAW, "", rows(1))
    world.run_until_idle()
    later = harness(foreign_feed(RAW, schema="k string, n int", appendable=True))
    assert later.ask().events == ()
