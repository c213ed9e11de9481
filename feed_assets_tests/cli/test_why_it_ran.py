"""`explain` after a run: the reason of the run, and inputs that were missing; no Spark."""

import json
import socket
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import Wait, feed_asset, foreign_feed, with_automation
from feed_assets.cli import app
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker
from feed_assets_tests.support.command_output import printed

pytestmark = pytest.mark.usefixtures("home")

DAY = "2026-01-02"
REPORT = {"kind": "part", "dataset": "foo", "part": "1", "windows": [{"start": "2026-01-01T15:55:00Z", "records": 1}]}
KEYS = [f"{DAY}-{hour:02}:00" for hour in range(24)]
raw = foreign_feed("web/raw/v1.0", partitions_def=dg.HourlyPartitionsDefinition("2026-01-01-00:00"), schema="n int")


@feed_asset(
    "web/daily/v1.0",
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
    inputs={"raw": raw},
    wait=Wait(at_least="23 of 24", after=timedelta(hours=2)),
)
def daily(raw):
    """Return the rows of a day."""


@feed_asset(
    "web/wrong/v1.0",
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
    inputs={"raw": raw},
    wait=Wait(at_least="30 of 31", after=timedelta(hours=2)),
)
def wrong(raw):
    """Return the rows of a day, with the number of a month."""


defs = with_automation(dg.Definitions(assets=[raw, daily, wrong]))


def explained(feed="web/daily/v1.0"):
    return json.loads(printed("explain", feed, DAY, "-m", __name__, "--json"))


def test_explain_says_after_a_run_why_it_ran_and_what_it_went_without():
    now = datetime(2026, 1, 3, 2, tzinfo=UTC)
    with Harness(defs, maker=PlainMaker(lambda _: Given([{"n": 1}])), now=lambda: now) as tested:
        for key in KEYS[:23]:
            tested.drop("web/raw/v1.0", key, "n\n1\n")
        assert len(tested.run_until_idle()) == 1
        found, without = explained(), [f"web/raw/v1.0 {KEYS[23]}"]
        assert found["went_without"] == without
        assert json.loads(printed("feed", "show", "web/daily/v1.0", DAY, "--json"))["went_without"] == without
        told = printed("feed", "show", "web/daily/v1.0", DAY)
        assert f"  went_without\n    web/raw/v1.0 {KEYS[23]}\n" in told
        assert told.endswith("it was built without 1 of 24 partitions of its inputs\n")
        assert found["last_run"]["why"].startswith("it has no valid update, ")
        assert found["last_run"]["why"].endswith(f"23 of 24 are enough: without web/raw/v1.0 {KEYS[23]}")
        tested.drop("web/raw/v1.0", KEYS[23], "n\n1\n")
        assert len(tested.run_until_idle()) == 1
        found = explained()
        assert (found["went_without"], found["last_run"]["why"]) == (
            [],
            f"web/raw/v1.0 {KEYS[23]}: was not there before (all together 92 to 96 bytes)",
        )
        assert "without" not in printed("feed", "show", "web/daily/v1.0", DAY)


def test_explain_says_which_number_of_all_is_needed_and_what_to_do():
    printed("reconcile", "-m", __name__)
    found = explained("web/wrong/v1.0")
    assert found["state"] == "cannot be decided"
    assert "at_least is '30 of 31': expected a number 'of 24'. Correct the" in found["reason"]
    assert found["reason"].endswith("of inputs, as a month needs 28 to 31 days, remove at_least and after.")


def test_explain_works_where_nothing_but_a_report_was_made():
    CliRunner().invoke(app, ["state", "report", "-"], input=json.dumps(REPORT), catch_exceptions=False)
    found = explained()
    assert (found["state"], found["published"]) == ("waits for input", None)
    assert found["reason"].startswith(f"no valid update of web/raw/v1.0 {KEYS[0]}, ")
    for row in json.loads(printed("explain", "-m", __name__, "--json")):
        assert [*row][:2] == ["feed", "state"]


def test_a_run_without_its_process_is_not_shown_as_running():
    output = Partition(Feed.parse("web/daily/v1.0"), DAY)
    begun = runs.Run("1", output, runs.RUNNING, f"{socket.gethostname()}:1:0", datetime.now(UTC))
    runs.start(open_ledger(settings().ledger), begun)
    assert explained()["last_run"]["state"] == "died; the next tick records its end"
