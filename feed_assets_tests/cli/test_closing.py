"""`state close` and `open`: no report changes a closed window, and errors name who closed it and why."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from feed_assets import Completeness, Regions, SubPartitions, report_state
from feed_assets.cli import app
from feed_assets.core.errors import InvalidName, PartitionClosed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.sub_partitions import Tracked
from feed_assets.ledger import closures, subscriptions
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.update_counts import COUNTER
from feed_assets.settings import settings

pytestmark = pytest.mark.usefixtures("home")

HOUR = "hour@2026-01-01-15:00"
MODULE = """
import dagster as dg
from feed_assets import Completeness, Regions, feed_asset, foreign_feed, state_table

DAYS = dg.DailyPartitionsDefinition("2024-12-30", end_date="2025-02-02")
raw = foreign_feed("t/raw/v1.0", partitions_def=DAYS, schema="n int")
topic = state_table(
    "t/topic",
    partitions_def=dg.MultiPartitionsDefinition(
        {"hour": dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-02-00:00"),
         "region": dg.StaticPartitionsDefinition(["apac", "emea"])}
    ),
    completeness=Completeness(tiers=("kafka",)),
    regions=Regions({"apac": "Asia/Singapore", "emea": "UTC"}),
)


@feed_asset("t/sums/v1.0", partitions_def=DAYS, inputs={"raw": raw})
def sums(raw):
    return raw


defs = dg.Definitions(assets=[raw, topic, sums])
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "closing_project.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return "closing_project"


def said(*args):
    done = CliRunner().invoke(app, [*args, "--json"], catch_exceptions=False)
    return json.loads(done.stdout)


def close(*args, word="close"):
    return said("state", word, *args, "--why", "2024 is final", "--who", "alice")["changed"]


def closed(name, *keys):
    partitions = [Partition(Feed.parse(name), key) for key in keys]
    with open_ledger(settings().ledger).read() as connection:
        return {at.key: (each.why, each.by) for at, each in closures.closed(connection, partitions).items()}


def part(start, records, **more):
    windows = [{"start": f"2026-01-01T{start}:00Z", "records": records}]
    return {"kind": "part", "dataset": "t/foo", "part": f"part-{start}", "windows": windows, **more}


def quality(state, start="15:00"):
    at = {"grain": "5min", "start": f"2026-01-01T{start}:00Z", "check": "no_bots"}
    return {"kind": "quality", "dataset": "t/foo", **at, "state": state, "reason": "half are bots"}


def test_a_report_that_would_change_a_closed_window_is_rejected_with_who_and_why():
    report_state([part("15:00", 10), part("16:00", 10)])
    assert close("t/foo", HOUR) == 1
    found = report_state([part("15:00", 11, version=1), part("15:05", 1), part("16:00", 12, version=1)])
    assert found.accepted == 1
    for each in found.rejected:
        assert re.search(rf"t/foo {HOUR} is closed by alice at .* UTC: 2024 is final", each.reason)
    assert len(found.rejected) == 2
    assert report_state([part("15:00", 10)]).known == 1  # It changes nothing.
    shown = said("state", "show", "t/foo", HOUR)
    assert shown[0]["records"] == 10


def test_moving_a_part_out_of_a_closed_window_is_rejected():
    report_state([part("15:00", 10)])
    close("t/foo", HOUR)
    moved = {**part("15:00", 0, version=1), "windows": [{"start": "2026-01-01T17:00:00Z", "records": 10}]}
    assert [HOUR in each.reason for each in report_state([moved]).rejected] == [True]


def test_quality_report_of_a_closed_window_is_rejected_and_of_an_open_one_accepted():
    report_state([part("15:00", 10)])
    close("t/foo", HOUR)
    found = report_state([quality("failed"), quality("failed", "16:00")])
    assert [HOUR in each.reason for each in found.rejected] == [True]
    assert found.accepted == 1


def state(window=HOUR):
    return said("state", "show", "t/foo", window)[0]["state"]


def whole_hour():
    at = [f"2026-01-01T15:{minute:02}:00Z" for minute in range(0, 60, 5)]
    windows = [{"start": each, "records": 10} for each in at]
    told = {"kind": "source", "dataset": "t/foo", "tier": "kafka", "windows": windows}
    report_state([told, {**part("15:00", 0), "windows": windows}])
    assert state() == "complete"


def of_day(state):
    return {**quality(state), "grain": "day", "start": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("final", [HOUR, "day@2026-01-01"])
def test_closed_windows_and_windows_inside_them_are_neither_backfilled_nor_accepted(final):
    whole_hour()
    close("t/foo", final)
    for word in ("backfill", "accept"):
        with pytest.raises(PartitionClosed, match=f"{final} is closed by alice .* 2024 is final"):
            said("state", word, "t/foo", HOUR, "--why", "again")
    line = {"kind": "backfill", "dataset": "t/foo", "grain": "hour", "start": "2026-01-01T15:00:00Z"}
    assert len(report_state([{**line, "state": "started", "reason": "again"}]).rejected) == 1
    assert state() == "complete"


def test_a_check_of_a_larger_window_flags_no_closed_one_until_that_is_opened():
    whole_hour()
    said("state", "accept", "t/foo", "day@2026-01-01", "--why", "the rest is lost")
    close("t/foo", HOUR)
    assert report_state([of_day("failed")]).accepted == 1
    assert (state("day@2026-01-01"), state(), state("5min@2026-01-01-15:05")) == ("invalid", "complete", "complete")
    close("t/foo", HOUR, word="open")
    assert (state(), state("5min@2026-01-01-15:05")) == ("complete_with_issue",) * 2
    report_state([of_day("passed")])
    assert (state(), state("5min@2026-01-01-15:05")) == ("complete",) * 2


def test_state_show_marks_closed_windows_and_windows_inside_them():
    report_state([part("15:00", 10)])
    assert said("state", "show", "t/foo", HOUR)[0]["closed"] is None
    close("t/foo", "day@2026-01-01")
    for window in (HOUR, "day@2026-01-01"):
        told = said("state", "show", "t/foo", window)[0]["closed"]
        assert re.fullmatch(r"t/foo day@2026-01-01 is closed by alice at .* UTC: 2024 is final", told)


def test_levels_of_a_window_may_be_typed_in_any_order():
    regions = Regions({"apac": "UTC", "emea": "UTC"}, below=SubPartitions("unit", {"shop": None, "ads": None}))
    window_queries.declare(
        open_ledger(settings().ledger), {Feed.parse("t/foo"): Tracked.of(Completeness(), regions)}, datetime.now(UTC)
    )
    close("t/foo", f"{HOUR}/unit=shop/region=apac")
    assert [*closed("t/foo", f"{HOUR}/region=apac/unit=shop")] == [f"{HOUR}/region=apac/unit=shop"]
    found = report_state([part("15:00", 10, sub_partition={"unit": "shop", "region": "apac"})])
    assert len(found.rejected) == 1


@pytest.mark.parametrize(
    ("dataset", "typed", "expected"),
    [
        ("t/fooo", HOUR, "t/fooo is unknown"),
        ("t/foo", "7min@2026-01-01-15:00", "7min"),
        ("t/foo", "hour@2026-01-01-15:07", "is not a window of the grain hour"),
        ("t/ours/v1.0", HOUR, "is not a state table, .* expected partitions"),
        ("t/theirs/v1.0", HOUR, "is not a state table, .* expected partitions"),
    ],
)
def test_an_invalid_window_of_a_state_table_is_not_closed(dataset, typed, expected):
    report_state([part("15:00", 10)])
    ledger = open_ledger(settings().ledger)
    ours, theirs = (Feed.parse(f"t/{name}/v1.0") for name in ("ours", "theirs"))
    default = Tracked.of(Completeness(), None)
    window_queries.declare(ledger, {ours: replace(default, is_ours=True), theirs: default}, datetime.now(UTC))
    with ledger.write() as connection:
        subscriptions.subscribe(connection, {(COUNTER, str(theirs))})
    with pytest.raises(InvalidName, match=expected):
        close(dataset, typed)
    assert closed(dataset, typed) == {}


def test_a_reopened_window_accepts_reports():
    report_state([part("17:00", 10)])
    close("t/foo", HOUR)
    assert close("t/foo", HOUR) == 0
    assert close("t/foo", HOUR, word="open") == 1
    assert report_state([part("15:00", 10)]).accepted == 1


def test_a_year_a_month_a_range_and_one_partition_of_a_dataset_are_closed(module):
    assert close("t/sums/v1.0", "2024", "-m", module) == 2
    assert closed("t/sums/v1.0", "2024-12-31", "2025-01-01") == {"2024-12-31": ("2024 is final", "alice")}
    assert close("t/sums/v1.0", "2025-01-30...2025-02-01", "-m", module) == 3
    assert close("t/sums/v1.0", "2025-01", "-m", module) == 29
    assert close("t/sums/v1.0", "2025-01-01", "-m", module) == 0
    assert close("t/sums/v1.0", "2024", "-m", module, word="open") == 2


def test_a_partition_of_a_state_table_is_the_window_that_it_is(module):
    assert close("t/topic", "2026-01-01-15:00|apac", "-m", module) == 1
    assert [*closed("t/topic", f"{HOUR}/region=apac", f"{HOUR}/region=emea")] == [f"{HOUR}/region=apac"]


@pytest.mark.parametrize(
    ("dataset", "typed", "expected"),
    [
        ("t/raw/v1.0", "2024-12-31", "written by another team, which this command cannot stop"),
        ("t/sums/v1.0", "2023-12-31", "is no partition of t/sums/v1.0"),
        ("t/none/v1.0", "2024-12-31", "t/none/v1.0"),
    ],
)
def test_close_refuses_with_the_reason_and_closes_nothing(module, dataset, typed, expected):
    with pytest.raises(Exception, match=expected):
        close(dataset, typed, "-m", module)
    assert closed(dataset, typed) == {}
