"""`explain` of datasets with a deadline: its time, or that it is missed; no Spark."""

import json
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import Wait, feed_asset, foreign_feed, with_automation
from feed_assets.cli import app
from feed_assets.core.waits import LONGEST
from feed_assets.testing import Harness, PlainMaker

pytestmark = pytest.mark.usefixtures("home")

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
LONG_AGO, YESTERDAY = "2026-01-02", f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}"
raw = foreign_feed("web/raw/v1.0", partitions_def=DAYS, schema="n int")


def made_within(name, deadline):
    @feed_asset(f"web/{name}/v1.0", partitions_def=DAYS, inputs={"raw": raw}, wait=Wait(deadline=deadline))
    def made(raw):
        """Return the rows of a day."""

    return made


defs = with_automation(
    dg.Definitions(assets=[raw, made_within("soon", timedelta(hours=2)), made_within("some_day", LONGEST)])
)


def explained(*args):
    command = ["explain", *args, "-m", __name__]
    return CliRunner().invoke(app, command, catch_exceptions=False).stdout


def check(name, partition, deadline, words):
    told = json.loads(explained(f"web/{name}/v1.0", partition, "--json"))
    assert datetime.fromisoformat(told["deadline"]) == deadline
    assert told["state"] == "waits for input"
    assert told["reason"].endswith(f"; {words}")
    assert words in explained(f"web/{name}/v1.0", partition)


def test_explain_says_that_a_deadline_is_missed():
    missed = "it should have been built by 2026-01-03 02:00 UTC"
    check("soon", LONG_AGO, datetime(2026, 1, 3, 2, tzinfo=UTC), missed)


def test_explain_names_the_deadline_before_it_is_over():
    deadline = datetime.fromisoformat(f"{YESTERDAY}T00:00:00+00:00") + timedelta(days=1) + LONGEST
    check("some_day", YESTERDAY, deadline, f"it should be built by {deadline:%Y-%m-%d %H:%M} UTC")


def test_a_built_partition_is_no_longer_late():
    with Harness(defs, maker=PlainMaker()) as tested:
        tested.drop("web/raw/v1.0", LONG_AGO, "n\n1\n")
        assert [run.succeeded for run in tested.run_until_idle()] == [True, True]
    told = json.loads(explained("web/soon/v1.0", LONG_AGO, "--json"))
    assert (told["state"], told["deadline"]) == ("current", "2026-01-03T02:00:00Z")
    assert "should" not in told["reason"]
