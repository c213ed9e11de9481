"""`build`, on the ads domain and real Spark."""

import getpass
import json
import re
import socket
from datetime import UTC, datetime

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads import sample
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.cli.sample_runs import DAY, drop, drop_sample, invoke

CLICKED, EFFECT = "ads/clicked/v1.0", "ads/effectiveness/v1.0"
WRONG_HEADER = b"impression,clicked\nx,y\n"

pytestmark = pytest.mark.usefixtures("home", "spark")


def test_a_plan_has_updates_bytes_and_order_and_builds_nothing() -> None:
    drop_sample()
    result = invoke("build", "--missing", "--dry-run", "--json")
    planned = json.loads(result.stdout)
    assert [(each["feed"], each["partition"], each["state"]) for each in planned] == [
        (CLICKED, DAY, "build"),
        ("ads/shown/v1.0", DAY, "build"),
        (EFFECT, DAY, "waits for input"),
    ]
    assert planned[0]["bytes"] == len(sample.clicked_csv("2019-11-24", "men")) == planned[0]["reads"][0]["bytes"]
    assert planned[2]["after"] == [f"{CLICKED} {DAY}", f"ads/shown/v1.0 {DAY}"]
    for_people = invoke("build", "--missing", "--dry-run").stdout.splitlines()[-1]
    assert for_people == f"3 partitions to build, {sum(each['bytes'] for each in planned):,} bytes to read"


def test_build_repeats_a_failed_partition_by_its_ui_key_and_records_the_person() -> None:
    drop("ads/clicked_raw/v1.0", WRONG_HEADER)
    assert invoke("run", "--until-idle").exit_code == 3
    again = invoke("build", "--failed")
    assert (again.exit_code, again.stdout.splitlines()[-1]) == (1, "0 of 1 partitions are built")
    drop("ads/clicked_raw/v1.0", sample.clicked_csv("2019-11-24", "men"))
    nobody = f"{socket.gethostname()}:{2**22 + 1}:0.00"  # No process has a pid that large.
    killed = runs.Run("killed", Partition(Feed.parse(EFFECT), DAY), runs.RUNNING, nobody, datetime.now(UTC))
    runs.start(open_ledger(settings().ledger), killed)
    built = invoke("build", CLICKED, "men|2019-11-24")
    line, end = built.stdout.splitlines()
    assert (built.exit_code, end) == (0, "1 of 1 partitions are built")
    assert re.fullmatch(
        r"built   ads/clicked, ads/clicked_rejects men\|2019-11-24: \d+ rows, 0 rejects, \d+\.\d s", line
    )
    with open_ledger(settings().ledger).read() as connection:
        run = runs.last(connection, Partition(Feed.parse(CLICKED), DAY))
        assert runs.running(connection) == (), "what a killed run has is free before a build by hand waits for it"
    assert run
    assert str(run.asked_by).startswith(f"{getpass.getuser()}@")
    assert invoke("build", "--failed").stdout == "nothing to build\n"
    explained = json.loads(invoke("explain", CLICKED, DAY, "--json").stdout)
    assert (explained["last_run"]["state"], explained["last_run"]["asked_by"]) == ("published", run.asked_by)
    assert (explained["last_run"]["host"], explained["last_run"]["cluster"]) == (socket.gethostname(), "local[2]")
    open_board(settings()).sweep(f"{CLICKED}/{DAY}/{explained['published']}")
    vanished = json.loads(invoke("explain", CLICKED, DAY, "--json").stdout)
    assert vanished["state"] == "build"
    assert f"its update {explained['published']} is no longer valid: " in vanished["reason"]


def test_build_command_prints_why_a_partition_without_input_is_left() -> None:
    result = invoke("build", CLICKED, "2019-11-24/men...2019-11-25/men")
    assert (result.exit_code, result.stdout.splitlines()) == (
        1,
        [
            f"LEFT    {CLICKED} 2019-11-2{day}/men: waits for input: no valid update of ads/clicked_raw/v1.0 "
            f"2019-11-2{day}/men"
            for day in (4, 5)
        ]
        + ["0 of 2 partitions are built"],
    )


def test_build_prints_built_and_remaining_partitions_as_json() -> None:
    drop("ads/clicked_raw/v1.0", sample.clicked_csv("2019-11-24", "men"))
    result = invoke("build", CLICKED, "2019-11-24/men...2019-11-25/men", "--json")
    said = json.loads(result.stdout)
    assert [(each["partition"], each["succeeded"]) for each in said["runs"]] == [("men|2019-11-24", True)]
    assert [each["what"] for each in said["left"]] == [f"{CLICKED} 2019-11-25/men"]
    assert result.exit_code == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "nothing is named: expected a FEED, or --failed, --refused or --missing for all datasets."),
        ([CLICKED], f"{CLICKED} has partitions: expected some of them, a range FIRST...LAST, or --missing."),
        ([CLICKED, DAY, "--failed"], "partitions are named, and --failed is given: expected one of the two."),
        (["ads/clicked_raw/v1.0", DAY], "ads/clicked_raw/v1.0 is a foreign feed: expected a dataset"),
        ([CLICKED, "2018-01-01/men"], "'2018-01-01/men' is no partition of ads/clicked/v1.0"),
    ],
)
def test_build_refuses_wrong_names_with_the_reason(args: list[str], says: str) -> None:
    assert says in str(invoke("build", *args).exception)


def test_build_of_history_keeps_order_and_daily_limit_and_explains_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days = ("2019-11-24", "2019-11-25", "2019-11-26")
    for day in days:
        where = Partition(Feed.parse("ads/clicked_raw/v1.0"), f"{day}/men")
        publish(open_board(settings()), where, {"part-1.csv": sample.clicked_csv(day, "men")}, datetime.now(UTC))
    asked = ("build", CLICKED, "2019-11-24/men...2019-11-26/men")
    plans = [json.loads(invoke(*asked, "--dry-run", "--json", *more).stdout) for more in ((), ("--order", "newest"))]
    assert [[each["partition"][:10] for each in plan] for plan in plans] == [[*days], [*reversed(days)]]
    monkeypatch.setenv("FEED_ASSETS_HISTORY_RUNS_PER_DAY", "1")
    monkeypatch.setenv("FEED_ASSETS_HISTORY_ORDER", "newest")
    settings.cache_clear()
    result = invoke(*asked)
    built, *left, end = result.stdout.splitlines()
    assert (result.exit_code, end) == (1, "1 of 3 partitions are built")
    assert "men|2019-11-26" in built
    assert [each.partition(": ")[0] for each in left] == [f"LEFT    {CLICKED} {day}/men" for day in days[1::-1]]
    assert all("FEED_ASSETS_HISTORY_RUNS_PER_DAY" in each for each in left)
    invoke("run", "--until-idle")
    waits = json.loads(invoke("explain", CLICKED, "2019-11-24/men", "--json").stdout)
    assert waits["state"] == "waits for time"
    assert "FEED_ASSETS_HISTORY_RUNS_PER_DAY" in waits["reason"]
    assert "1 runs and" in waits["reason"]
    (group,) = json.loads(invoke("explain", CLICKED, "--json").stdout)["partitions"][1:2]
    assert (group["state"], group["count"]) == ("waits for time", 2), "whoever explains releases nothing"
