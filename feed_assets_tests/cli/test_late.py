"""`feed-assets late ls`, and late data in `explain` and `status`; no Spark."""

import json
import shutil
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import Late, feed_asset, foreign_feed, with_automation
from feed_assets.cli import app
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import write
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker

pytestmark = pytest.mark.usefixtures("home")

DAYS = dg.DailyPartitionsDefinition("2024-02-27", end_date="2024-03-01")
NOW = datetime(2024, 3, 1, 6, tzinfo=UTC)
RAW, MADE = "ias/raw/v1.0", "ias/made/v1.0"
SIZES = {"2024-02-27": 1100, "2024-02-28": 1040, "2024-02-29": 1030}
"""Bytes of the article's three days at the check, scaled down; 1,000 bytes of each day were processed."""
raw = foreign_feed(RAW, partitions_def=DAYS, schema="n int")


@feed_asset(MADE, partitions_def=DAYS, inputs={"raw": raw}, late=Late("5%", max_age=timedelta(days=36500)))
def made(raw):
    """Return the rows of a day."""


defs = with_automation(dg.Definitions(assets=[raw, made]))


def run(*command):
    return CliRunner().invoke(app, command, catch_exceptions=False).stdout


def said(*command):
    return json.loads(run(*command, "--json"))


@pytest.fixture(scope="module")
def played(tmp_path_factory, empty_ledger):
    """Return a home after the article's days, one of which was built again at the check."""
    folder = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder))
        settings.cache_clear()
        (folder / "blackboard").mkdir()
        shutil.copyfile(empty_ledger, folder / "ledger.db")
        play()
        open_ledger(settings().ledger).engine.dispose()
    return folder


@pytest.fixture
def late(played, home):
    """Copy the played home into the home of this test."""
    shutil.copytree(played, home, dirs_exist_ok=True)
    settings.cache_clear()


def play():
    maker, now = PlainMaker(lambda task: Given([{"read": str(task.updates)}])), [NOW - timedelta(hours=1), NOW]
    with Harness(defs, maker=maker, now=lambda: now[0]) as tested:
        land(tested, now[0], dict.fromkeys(SIZES, 1000))
        assert len(tested.run_until_idle()) == 3
        now.pop(0)
        land(tested, now[0], SIZES)
        assert [each.partition for each in tested.run_until_idle()] == ["2024-02-27"]


def land(tested, at, sizes):
    for day, size in sizes.items():
        write.publish(tested.board, Partition(Feed.parse(RAW), day), {"part": b"x" * size}, at)


@pytest.mark.usefixtures("late")
def test_the_decisions_are_listed_newest_first_with_the_sizes_and_why():
    found = said("late", "ls", MADE, "-m", __name__)
    assert {each["partition"]: (each["decision"], each["bytes_after"]) for each in reversed(found)} == {
        "2024-02-27": ("re-run", 1100),
        "2024-02-28": ("wait", 1040),
        "2024-02-29": ("wait", 1030),
    }
    assert {each["bytes_before"] for each in found} == {1000}
    assert {each["until"] for each in found if each["decision"] == "wait"} == {"2124-02-06T06:00:00Z"}


@pytest.mark.usefixtures("late")
def test_people_read_a_line_for_each_decision():
    lines = run("late", "ls", "-n", "3").splitlines()
    assert lines[0].split()[3:7] == ["decision", "bytes_before", "bytes_after", "growth"]
    (again,) = [line for line in lines if "  re-run  " in line]
    assert "2024-02-27  re-run    1000          1100         +10.0%" in again
    assert len(lines) == 4


def test_late_ls_says_that_no_late_data_were_weighed():
    run("ledger", "upgrade")
    assert run("late", "ls") == "no decision about late data yet\n"


@pytest.mark.usefixtures("late")
def test_explain_has_the_last_decisions_of_a_partition():
    found = said("explain", MADE, "2024-02-28", "-m", __name__)
    assert found["state"] == "waits for late data"
    assert "(+4.0%) are below the threshold of 5.0%" in found["reason"]
    assert [each["decision"] for each in found["late"]] == ["wait"]
    assert said("explain", MADE, "2024-02-27", "-m", __name__)["late"][0]["decision"] == "re-run"


@pytest.mark.usefixtures("late")
def test_status_says_why_a_day_is_out_of_date():
    found = said("status", "--day", "2024-02-29", "--days", "3", "-m", __name__)
    assert any("below the threshold" in each["why"] for each in found["waits"])
    assert {each["state"] for each in found["stale"]} == {"waits for late data"}


@pytest.mark.usefixtures("late")
def test_late_report_shows_changes_of_a_rerun_in_numbers():
    found = {row["what"]: row for row in said("late", "report", MADE, "2024-02-27", "-m", __name__)}
    assert found[f"{RAW}: bytes"] == {"what": f"{RAW}: bytes", "before": 1000, "after": 1100, "change": "+10.0%"}
    assert found["records"]["change"] == "="
    assert run("late", "report", MADE, "2024-02-27", "-m", __name__).splitlines()[-1].startswith("update 20")


@pytest.mark.usefixtures("late")
def test_late_report_needs_two_updates_and_says_so():
    assert run("late", "report", MADE, "2024-02-28", "-m", __name__) == (
        f"{MADE} 2024-02-28 has only one update, so there is no earlier one to compare it with\n"
    )
    command = ["late", "report", MADE, "2024-02-29", "--update", "20240101.000000", "-m", __name__]
    result = CliRunner().invoke(app, command)
    assert "has no update 20240101.000000 that the ledger knows" in str(result.exception)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize(
    "typed",
    [
        (RAW, "2024-02-27"),
        ("ias/other/v1.0", "2024-02-27"),
        (MADE, "2024-02-30"),
        (MADE, "2023-01-01"),
        (MADE, "2024-03-01"),
    ],
)
def test_late_report_rejects_typos_with_the_words_of_explain(typed):
    def error_of(*command):
        return str(CliRunner().invoke(app, [*command, "-m", __name__]).exception)

    expected = error_of("explain", *typed)
    assert "expected" in expected
    assert error_of("late", "report", *typed) == expected
    if typed[0] != MADE:
        assert error_of("late", "ls", typed[0]) == expected


@pytest.mark.usefixtures("late")
def test_late_commands_work_without_the_definitions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "re-run" in run("late", "ls", MADE)
    assert run("late", "report", MADE, "2024-02-27").splitlines()[-1].startswith("update 20")


@pytest.mark.usefixtures("late")
def test_a_report_is_of_one_partition():
    result = CliRunner().invoke(app, ["late", "report", MADE, "2024-02-27...2024-02-28", "-m", __name__])
    assert "are 2 partitions: expected one of them" in str(result.exception)
