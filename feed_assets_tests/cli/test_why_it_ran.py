"""`explain` after a run: why it ran, and what its update went without; no Spark."""

import json
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import Wait, feed_asset, foreign_feed, with_automation
from feed_assets.cli import app
from feed_assets.testing import Given, Harness, PlainMaker

pytestmark = pytest.mark.usefixtures("home")

DAY = "2026-01-02"
KEYS = [f"{DAY}-{hour:02}:00" for hour in range(24)]
raw = foreign_feed("web/raw/v1.0", partitions_def=dg.HourlyPartitionsDefinition("2026-01-01-00:00"), schema="n int")


@feed_asset(
    "web/daily/v1.0",
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
    inputs={"raw": raw},
    wait=Wait(at_least="23 of 24", after=timedelta(hours=2)),
)
def daily(raw):
    """By the day."""


defs = with_automation(dg.Definitions(assets=[raw, daily]))


def explained():
    command = ["explain", "web/daily/v1.0", DAY, "-m", __name__, "--json"]
    return json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)


def test_explain_says_after_a_run_why_it_ran_and_what_it_went_without():
    now = datetime(2026, 1, 3, 2, tzinfo=UTC)
    with Harness(defs, maker=PlainMaker(lambda _: Given([{"n": 1}])), now=lambda: now) as tested:
        for key in KEYS[:23]:
            tested.drop("web/raw/v1.0", key, "n\n1\n")
        assert len(tested.run_until_idle()) == 1
        found = explained()
        assert found["went_without"] == [f"web/raw/v1.0 {KEYS[23]}"]
        assert found["last_run"]["why"].startswith("it has no valid update, ")
        assert found["last_run"]["why"].endswith(f"23 of 24 are enough: without web/raw/v1.0 {KEYS[23]}")
        tested.drop("web/raw/v1.0", KEYS[23], "n\n1\n")
        assert len(tested.run_until_idle()) == 1
        found = explained()
        assert (found["went_without"], found["last_run"]["why"]) == (
            [],
            f"web/raw/v1.0 {KEYS[23]}: was not there before",
        )
