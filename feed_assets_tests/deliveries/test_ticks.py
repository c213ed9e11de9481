"""Subscriptions tick by tick: what a webhook, a view and a statement get of a dataset's changes."""

from datetime import timedelta
from itertools import pairwise

import psycopg
import pytest

from feed_assets import (
    RefreshView,
    Statement,
    on_change,
)
from feed_assets.core.errors import DeliveryFailed, DeliveryTargetDown
from feed_assets.deliveries import outbox, sql_delivery
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration import delivery_job
from feed_assets.settings import settings
from feed_assets_tests.deliveries.subscribed import (
    HOOK,
    alert_names,
    alerts,
    complete_one_hour,
    posted,
    subscribed,
    web_table,
)
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    harness,
    later,
    raw_feed,
    sums_of,
)


def test_a_webhook_gets_each_publication_and_invalidation_of_a_partition_in_order(hook):
    world = subscribed(("cache", HOOK))
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, "k,n\na,1\n")
    world.run_until_idle()
    update = world.newest(SUMS, DAY)
    world.invalidate(SUMS, DAY, update)
    world.run_until_idle()
    events = posted(hook)
    assert [(each["type"], each["subject"]) for each in events if each["subject"] == DAY][:2] == [
        ("feed_assets.published", DAY),
        ("feed_assets.invalidated", DAY),
    ]
    first = events[0]
    assert first["specversion"] == "1.0"
    assert first["source"] == f"feed_assets:{SUMS}"
    assert first["partitionkey"] == f"{SUMS}/{DAY}"
    window = {"start": "2020-01-01T00:00:00+00:00", "end": "2020-01-02T00:00:00+00:00"}
    assert first["data"]["window"] == window
    assert first["data"]["update"] == update
    assert len({each["id"] for each in events}) == len(events)
    assert [each["sequence"] for each in events] == sorted(each["sequence"] for each in events)


def test_changes_from_before_the_first_tick_are_not_delivered(hook):
    raw = raw_feed()
    sums = sums_of(raw)
    before = harness(raw, sums)
    before.drop(RAW, DAY, "k,n\na,1\n")
    before.run_until_idle()
    world = harness(raw, sums, on_change(sums, name="cache", to=HOOK))
    world.run_until_idle()
    assert posted(hook) == []
    world.drop(RAW, DAY, "k,n\na,2\n")
    world.run_until_idle()
    assert [each["type"] for each in posted(hook)] == ["feed_assets.published"]


def test_a_webhook_that_is_down_gets_all_changes_later_and_an_alert_is_open_meanwhile(hook):
    world = subscribed(("cache", HOOK))
    hook.answers += [503]
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, "k,n\na,1\n")
    world.run_until_idle()
    assert len(hook.posted) == 1  # After the failure, nothing else is sent until the pause is over.
    (alert,) = alerts()
    assert "the subscription cache is behind: the webhook at 127.0.0.1:" in alert
    assert "answered with 503: it is tried again." in alert
    hook.answers += [503] * outbox.REFUSALS  # An outage is never counted, however long it lasts.
    for _ in range(outbox.REFUSALS + 1):
        later(world, outbox.LONGEST_PAUSE)
        world.tick()
    world.run_until_idle()
    assert sorted(each["subject"] for each in posted(hook)[1 + outbox.REFUSALS :]) == [DAY, NEXT_DAY]
    assert alerts() == []


def test_a_refused_change_waits_for_a_person_and_holds_its_partition_alone(hook):
    world = subscribed(("cache", HOOK))
    hook.answers += [404] * outbox.REFUSALS
    world.drop(RAW, DAY, "k,n\na,1\n")
    world.run_until_idle()
    assert alert_names() == ["cache"]
    for _ in range(outbox.REFUSALS):
        later(world, outbox.LONGEST_PAUSE)
        world.tick()
    world.drop(RAW, DAY, "k,n\na,2\n")
    world.drop(RAW, NEXT_DAY, "k,n\na,1\n")
    world.run_until_idle()
    assert [each["subject"] for each in posted(hook)[outbox.REFUSALS :]] == [NEXT_DAY]
    assert alert_names() == ["cache|person"]  # An alert of its own, so that its channels report it.
    (alert,) = alerts()
    assert "waits for a person" in alert
    assert "feed-assets subscriptions retry cache" in alert
    ledger = open_ledger(settings().ledger)
    with ledger.write() as connection:
        outbox.retry(connection, outbox.dead(connection, "cache"), world.now())
    world.run_until_idle()
    assert [each["subject"] for each in posted(hook)[outbox.REFUSALS + 1 :]] == [DAY, DAY]
    assert alerts() == []


def test_windows_of_sub_partitions_are_delivered_with_their_levels(hook):
    table = web_table()
    complete_one_hour(harness(table, on_change(table, name="cache", to=HOOK, transitions=["complete"])))
    assert len(posted(hook)) == 39  # 12 windows of 5 minutes and their hour, of all regions, a region and a country
    hours = [each["data"] for each in posted(hook) if each["data"]["grain"] == "hour"]
    levels = sorted(list(each["dimensions"].values()) for each in hours)
    assert levels == [[], ["apac"], ["apac", "sg"]]
    assert {each["window"]["start"] for each in hours} == {"2026-01-19T15:00:00+00:00"}


def test_a_statement_runs_only_for_the_changed_hour_of_the_changed_country(reports):
    reports.execute("CREATE TABLE reports.totals (name text, grain text, start text, country text)")
    table = web_table()
    options = {
        "country": {"grain": "hour", "level": "country"},
        "all": {"grain": "hour", "level": ""},
        "region": {"level": "region"},
    }
    sql = "INSERT INTO reports.totals VALUES ('{}', :grain, :partition, :country)"
    subscriptions = [
        on_change(table, name=name, to=Statement(sql.format(name), "main"), **chosen)
        for name, chosen in options.items()
    ]
    complete_one_hour(harness(table, *subscriptions))
    rows = reports.execute("SELECT * FROM reports.totals ORDER BY name").fetchall()
    assert rows[:2] == [("all", "hour", "2026-01-19-15:00", None), ("country", "hour", "2026-01-19-15:00", "sg")]
    assert len(rows) == 2 + 13


def test_a_statement_gets_each_change_with_bound_parameters(reports):
    sql = "INSERT INTO reports.log (day, start) VALUES (:partition || '%', :start::timestamptz)"
    world = subscribed(("sums_by_day", Statement(sql, "main")))
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, "k,n\na,1\n")
    world.run_until_idle()
    rows = reports.execute("SELECT day, start AT TIME ZONE 'UTC' FROM reports.log ORDER BY day").fetchall()
    assert [(day, str(start)) for day, start in rows] == [
        (f"{DAY}%", f"{DAY} 00:00:00"),
        (f"{NEXT_DAY}%", f"{NEXT_DAY} 00:00:00"),
    ]
    assert {each.job_name for each in world.instance.get_runs()} >= {"deliver"}


@pytest.mark.parametrize("unique", [True, False])
def test_one_refresh_of_a_view_serves_all_changes_and_is_concurrent_if_possible(reports, unique, monkeypatch):
    calls, refresh = [], sql_delivery.refresh
    monkeypatch.setattr(sql_delivery, "refresh", lambda target: (calls.append(target), refresh(target)))
    reports.execute("CREATE TABLE reports.base AS SELECT 1 AS id")
    reports.execute("CREATE MATERIALIZED VIEW reports.by_day AS SELECT id FROM reports.base")
    if unique:
        reports.execute("CREATE UNIQUE INDEX ON reports.by_day (id)")
    reports.execute("INSERT INTO reports.base VALUES (2)")
    world = subscribed(("by_day", RefreshView("reports.by_day", "main")))
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, "k,n\na,1\n")
    with psycopg.connect(reports.info.dsn) as reader:  # A reader's lock stops a refresh that is not concurrent.
        reader.execute("SELECT * FROM reports.by_day")
        world.run_until_idle()
        refreshed = reports.execute("SELECT id FROM reports.by_day").fetchall() if unique else None
    if not unique:
        later(world, timedelta(minutes=1))
        world.run_until_idle()
        refreshed = reports.execute("SELECT id FROM reports.by_day").fetchall()
    assert refreshed == [(1,), (2,)]
    assert len(calls) == (1 if unique else 2)


def test_a_missing_view_is_refused_with_its_name(reports):
    world = subscribed(("by_day", RefreshView("reports.none", "main")))
    world.drop(RAW, DAY, "k,n\na,1\n")
    world.run_until_idle()
    (alert,) = alerts()
    assert "there is no materialized view reports.none: make it, or correct the declaration." in alert


@each_case(
    ("sql", "grace", "error", "message"),
    [
        (
            "SELECT pg_sleep(30)",
            10,
            DeliveryFailed,
            "main: the statement took longer than 1 s: make",
        ),
        ("SELECT pg_sleep(30)", -0.8, DeliveryTargetDown, "main: the warehouse cannot do it now"),
        (
            "DO $$ BEGIN SET default_transaction_read_only = on; COMMIT; CREATE TABLE reports.no (n int); END $$",
            10,
            DeliveryTargetDown,
            "is read-only now",
        ),
    ],
)
def test_a_statement_ends_after_its_time_also_if_the_server_does_not_end_it(
    sql, grace, error, message, reports, monkeypatch
):
    monkeypatch.setattr(sql_delivery, "GRACE_SECONDS", grace)  # Before the server's limit: as if the server had none.
    data = {"dataset": RAW, "transition": "published", "partition": DAY, "dimensions": {}, "window": None}
    with pytest.raises(error) as failed:
        sql_delivery.run(Statement(sql, "main", seconds=1), {"data": data})
    assert type(failed.value) is error
    assert message in str(failed.value)


def test_a_run_that_fails_is_requested_again_only_after_a_pause_that_grows(monkeypatch):
    def fail(*_arguments):
        raise RuntimeError("no memory")

    monkeypatch.setattr(delivery_job, "deliver", fail)
    world = subscribed(("totals", Statement("SELECT 1", "main")))
    world.drop(RAW, DAY, "k,n\na,1\n")
    counts = []
    for seconds in (0, 0, 6, 0, 1, 5):  # The runs end on the real clock, which does not move.
        later(world, timedelta(seconds=seconds))
        for _ in range(3):
            world.tick()
        counts.append(len([each for each in world.instance.get_runs() if each.job_name == "deliver"]))
    assert counts == [1, 1, 2, 2, 2, 3]
    (alert,) = alerts()
    assert "the last 3 runs of the job deliver for the subscription totals failed: see the log of run" in alert


def test_a_change_that_the_receiver_cannot_handle_does_not_stop_the_others(hook):
    world = subscribed(("cache", HOOK))
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, "k,n\na,1\n")
    hook.answers += [500, 204]
    world.run_until_idle()
    later(world, outbox.LONGEST_PAUSE)
    world.tick()
    first, second, *_ = [each["subject"] for each in posted(hook)]
    assert second != first


def test_a_webhook_with_a_long_backlog_lets_the_others_have_their_share(hook, monkeypatch):
    monkeypatch.setattr(delivery_job, "AT_ONCE", 1)
    monkeypatch.setattr(delivery_job, "SHARE_SECONDS", 0)
    world = subscribed(("cache", HOOK), ("other", HOOK))
    hook.answers += [503, 503]
    for day in (DAY, NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, "k,n\na,1\n")
    world.run_until_idle()
    hook.posted.clear()
    later(world, outbox.LONGEST_PAUSE)
    world.tick()
    names = [each["id"].partition("/")[0] for each in posted(hook)]
    assert len(names) == 6
    assert all(name != after for name, after in pairwise(names))
