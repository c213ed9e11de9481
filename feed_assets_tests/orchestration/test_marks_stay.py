"""A mark stays until its output is made of good data; the absence of good data does not end it."""

from datetime import datetime, timedelta
from itertools import count

import dagster as dg
import pytest

from feed_assets import Completeness, foreign_feed, report_state, state_table
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State
from feed_assets.ledger import quality
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness
from feed_assets_tests.orchestration import second_story as story
from feed_assets_tests.orchestration.second_story import (
    HOURS,
    NOW,
    OF_HOUR,
    backfill,
    checked,
    counted,
    made,
    reader,
)
from feed_assets_tests.support.sum_projects import harness


def counted_but(missing: int, version: int) -> None:
    """Report hour 15 again: complete at the source, ingested without `missing` records of its last window."""
    starts = [story.MIDNIGHT + number * story.BASE for number in range(15 * 12, 16 * 12)]
    whole = [{"start": start, "records": 100} for start in starts]
    less = [*whole[:-1], {"start": starts[-1], "records": 100 - missing}]
    line = {"dataset": "web/foo", "version": version}
    lines = [{"kind": "source", "tier": "kafka", "windows": whole}, {"kind": "part", "part": "15", "windows": less}]
    assert not report_state([{**each, **line} for each in lines]).rejected


def sourced(records: int, version: int) -> None:
    """Report the source's count for the last window of hour 15."""
    start = story.MIDNIGHT + (16 * 12 - 1) * story.BASE
    line = {"kind": "source", "tier": "kafka", "dataset": "web/foo", "version": version}
    assert not report_state([{**line, "windows": [{"start": start, "records": records}]}]).rejected


def invalid_hour() -> Harness:
    """Build the outputs of hour 15 but its report, then fail the hour's check."""
    tested = story.world()
    tested.run_until_idle()
    counted(0, 15)
    tested.run_until_idle()
    counted(15, 16)
    assert made(tested.tick()) == ["anyhow 15", "intraday 15", "preagg 15"]
    checked("failed", story.BOTS)
    assert made(tested.run_until_idle()) == []
    return tested


def flags() -> set[str | None]:
    return {story.flag(name) for name in ("preagg", "anyhow", "intraday")}


@pytest.mark.parametrize("is_backfill", [True, False])
def test_marks_stay_while_an_hour_is_open_after_a_correction(is_backfill):
    tested = invalid_hour()
    before = flags()
    if is_backfill:
        backfill("started")
    counted_but(1, version=1)
    if is_backfill:
        backfill("done")
    assert made(tested.run_until_idle()) == []
    assert story.states()["hour"] == "open"
    assert flags() == before == {OF_HOUR}
    assert story.verdict(tested, "report").state is State.WAITS_FOR_QUALITY

    # Checks that pass while the hour is open end no mark: they may be of another state of it.
    checked("passed", version=1)
    assert made(tested.run_until_idle()) == []
    assert flags() == {OF_HOUR}

    counted_but(0, version=2)
    assert made(tested.run_until_idle()) == ["anyhow 15", "intraday 15", "preagg 15", "report 15"]
    assert flags() == {None}


def test_marks_stay_while_the_source_counts_more_than_the_hour_has():
    """Its rows never changed, so the mark ends with the check once the hour is complete."""
    tested = invalid_hour()
    sourced(200, version=1)
    assert made(tested.run_until_idle()) == []
    assert (story.states()["hour"], flags()) == ("open", {OF_HOUR})
    checked("passed", version=1)
    assert made(tested.run_until_idle()) == []
    assert flags() == {OF_HOUR}
    sourced(100, version=2)
    assert made(tested.run_until_idle()) == ["report 15"]
    assert flags() == {None}


def test_marks_stay_when_all_reports_of_an_hour_are_withdrawn():
    tested = invalid_hour()
    assert not report_state(
        [{"kind": "part", "dataset": "web/foo", "part": "15", "windows": [], "version": 1}]
    ).rejected
    assert made(tested.run_until_idle()) == []
    assert flags() == {OF_HOUR}


def test_an_output_that_is_never_reprocessed_is_marked_while_its_hour_is_open():
    foo = state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))
    tested = harness(foo, reader("kept", HOURS, foo, reprocess="never"), give=story.give, now=lambda: NOW)
    tested.run_until_idle()
    counted(0, 15)
    counted(15, 16)
    tested.run_until_idle()
    checked("failed", story.BOTS)
    tested.run_until_idle()
    backfill("started")
    counted_but(1, version=1)
    backfill("done")
    checked("passed", version=1)
    tested.run_until_idle()
    assert story.flag("kept") == OF_HOUR
    counted_but(0, version=2)
    assert made(tested.run_until_idle()) in ([], ["kept 15"])
    assert story.flag("kept") is None


RAW, MADE, BELOW = "web/raw/v1.0", "web/made/v1.0", "web/below/v1.0"
DAY, DAYS = "2026-01-01", dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-02")


def flag_of(name: str) -> str | None:
    at = Partition(Feed.parse(name), DAY)
    with open_ledger(settings().ledger).read() as connection:
        return quality.failed(connection, [at], (quality.MARKED,)).get(at)


def test_an_output_of_a_withdrawn_bad_update_stays_marked_until_new_data():
    """The check passes although no update is there, which makes the output of the bad update no better."""
    raw = foreign_feed(RAW, partitions_def=DAYS, schema="n int")
    made_of_raw = reader("made", DAYS, raw)
    tested = harness(
        raw, made_of_raw, reader("below", DAYS, made_of_raw), give=lambda task: Given([{"n": 1}]), now=lambda: NOW
    )
    first = tested.drop(RAW, DAY, "n\n1\n")
    assert [run.assets[0] for run in tested.tick()] == ["web/made"]
    quality_of_raw("failed", "half of it")
    assert tested.run_until_idle() == []
    assert flag_of(MADE)
    tested.invalidate(RAW, DAY, first)
    quality_of_raw("passed", None)
    assert tested.run_until_idle() == []
    assert flag_of(MADE)
    tested.drop(RAW, DAY, "n\n2\n")
    assert {run.assets[0] for run in tested.run_until_idle()} == {"web/made", "web/below"}
    assert flag_of(MADE) is None


def test_an_output_without_reprocessing_is_marked_until_late_data_rebuild_it():
    raw, numbers = foreign_feed(RAW, partitions_def=DAYS, schema="n int"), count()
    made_of_raw = reader("made", DAYS, raw, reprocess="never")
    below = reader("below", DAYS, made_of_raw)
    tested = harness(raw, made_of_raw, below, give=lambda task: Given([{"n": next(numbers)}]), now=lambda: NOW)
    tested.drop(RAW, DAY, "n\n1\n")
    assert [run.assets[0] for run in tested.tick()] == ["web/made"]
    quality_of_raw("failed", "half of it")
    assert tested.run_until_idle() == []
    tested.drop(RAW, DAY, "n\n2\n")
    assert tested.run_until_idle() == []
    quality_of_raw("passed", None)
    assert [run.assets[0] for run in tested.run_until_idle()] == ["web/made", "web/below"]
    assert flag_of(MADE) is None


def quality_of_raw(state: str, reason: str | None) -> None:
    with open_ledger(settings().ledger).change() as connection:
        quality.report(connection, Partition(Feed.parse(RAW), DAY), "rows", state, reason, "dq", NOW)


def test_an_output_stays_marked_if_its_windows_cannot_be_determined(monkeypatch, caplog):
    """A changed declaration may cause this. Then nobody knows that the windows are good."""
    raw = foreign_feed(
        RAW, partitions_def=DAYS, schema="n int", completeness=Completeness(tiers=("kafka",), grains=("hour", "day"))
    )
    made_of_raw = reader("made", DAYS, raw)
    tested = harness(
        raw, made_of_raw, reader("below", DAYS, made_of_raw), give=lambda task: Given([{"n": 1}]), now=lambda: NOW
    )
    tested.run_until_idle()
    tested.drop(RAW, DAY, "n\n1\n")
    midnight = datetime.fromisoformat(f"{DAY}T00:00Z")
    whole = [{"start": midnight + timedelta(hours=hour), "records": 1} for hour in range(24)]
    report_raw({"kind": "source", "tier": "kafka", "windows": whole}, {"kind": "part", "part": "p", "windows": whole})
    assert [run.assets[0] for run in tested.tick()] == ["web/made"]
    hour = {"kind": "quality", "grain": "hour", "start": f"{DAY}T15:00:00Z", "check": "bots", "state": "failed"}
    report_raw({**hour, "reason": "bots", "version": 1})
    assert tested.run_until_idle() == []
    assert flag_of(MADE)
    monkeypatch.setattr(Graph, "windows_read", refused)
    report_raw({**hour, "reason": "more bots", "version": 2})
    assert tested.run_until_idle() == []
    assert flag_of(MADE)
    assert f"the mapping of {MADE} {DAY} to the windows that it was made from is unknown" in caplog.text


def refused(*_):
    raise InvalidDefinition("found no windows that fill this time")


def report_raw(*lines) -> None:
    assert not report_state([{"dataset": RAW, **line} for line in lines]).rejected
