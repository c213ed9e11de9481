"""`run`, `explain`, and effects of `feed publish` and `invalidate` on the ledger, on the ads domain and real Spark."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from feed_assets.cli import traces
from feed_assets.cli.run import STARTING_SPARK
from feed_assets.core.errors import SparkUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads import sample
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import run
from feed_assets.orchestration import runner
from feed_assets.settings import settings
from feed_assets_tests.cli.sample_runs import DAY, drop, drop_sample, invoke

pytestmark = pytest.mark.usefixtures("home", "spark")


def state_of(feed: str, update_id: str) -> str | None:
    with open_ledger(settings().ledger).read() as connection:
        row = updates.find(connection, Partition(Feed.parse(feed), DAY), update_id)
    return row.state if row else None


def explained(feed: str, partition: str) -> str:
    """Return the output of `explain`, without the spaces between its columns."""
    return " ".join(invoke("explain", feed, partition).output.split())


def test_explain_names_ready_and_waiting_partitions_and_run_builds_the_ready_ones() -> None:
    drop_sample()
    ready = explained("ads/shown/v1.0", DAY)
    assert "build it has no valid update, and every input is there" in ready
    waits = explained("ads/effectiveness/v1.0", DAY)
    assert "waits for input no valid update of ads/clicked/v1.0 2019-11-24/men" in waits
    first = invoke("run", "--until-idle")
    told = [line.removeprefix("built").strip() for line in first.stdout.splitlines() if line.startswith("built")]
    built = [line.partition(":")[0] for line in told]
    assert [*sorted(built[:2]), *built[2:]] == [
        "ads/clicked, ads/clicked_rejects men|2019-11-24",
        "ads/shown, ads/shown_rejects men|2019-11-24",
        "ads/effectiveness men|2019-11-24",
    ]
    numbers = {line.partition(",")[0].partition(" ")[0]: line.partition(": ")[2] for line in told}
    assert re.fullmatch(r"3,524 rows, 0 rejects, \d+\.\d s", numbers["ads/shown"])
    assert re.fullmatch(r"\d+ rows, \d+\.\d s", numbers["ads/effectiveness"])
    assert first.exit_code == 0
    second = invoke("run", "--until-idle")
    assert second.stdout == "idle after 2 ticks\n"
    assert "current" in invoke("explain", "ads/effectiveness/v1.0", DAY).output
    daily = explained("ads/effectiveness_daily/v1.0", "2019-11-24")
    assert "waits for input no valid update of ads/effectiveness/v1.0 2019-11-24/women" in daily


def test_explain_prints_json() -> None:
    raw = drop("ads/shown_raw/v1.0", sample.shown_csv("2019-11-24", "men"))
    said = json.loads(invoke("explain", "ads/shown/v1.0", DAY, "--json").output)
    assert (said["state"], said["published"]) == ("build", None)
    assert [(pin["input"], pin["update_id"]) for pin in said["reads"]] == [(f"ads/shown_raw/v1.0/{DAY}", raw)]


@pytest.mark.parametrize(
    ("feed", "partition", "says"),
    [
        ("ads/shown/v9.0", DAY, "no asset has the feed ads/shown/v9.0: expected one of: ads/clicked/v1.0"),
        ("ads/shown_raw/v1.0", DAY, "is a foreign feed: expected a dataset"),
        ("ads/shown/v1.0", "2019-11-24", "is no partition of ads/shown/v1.0"),
        ("ads/shown/v1.0", "2018-01-01/men", "is no partition of ads/shown/v1.0"),
    ],
)
def test_explain_refuses_what_is_no_partition_of_a_dataset(feed: str, partition: str, says: str) -> None:
    assert says in str(invoke("explain", feed, partition).exception)


def test_a_wrong_header_is_reported_once_with_its_remedy_and_not_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    many = ",".join(f"a_name_that_nobody_has_declared_{number}" for number in range(60))
    drop("ads/clicked_raw/v1.0", f"impression,{many}\n".encode())
    result = invoke("run", "--until-idle")
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    assert (result.exit_code, len(failed)) == (3, 1)
    assert "ads/clicked, ads/clicked_rejects men|2019-11-24: NotAsDeclared: " in failed[0]
    assert result.stdout.count("is not as declared: its header is") == 1
    assert "If files are pulled, the correct file needs another name." in failed[0]
    assert "its header is" not in caplog.text
    assert f"WAITS   ads/clicked/v1.0 {DAY}: failed: needs a change: see FAILED above" in result.stdout.splitlines()
    said = explained("ads/clicked/v1.0", DAY)
    assert "waits for a person failed: needs a change: NotAsDeclared: " in said
    assert said.count("its header is") == 1


def without_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return the options for a dataset with an input, whose function cannot reach a service."""
    text = FAILS.replace('return raw.select("nothing")', 'raise OSError("no")')
    (folder / "shop_without_answer.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    raw = Partition(Feed.parse("shop/raw/v1.0"), "")
    publish(open_board(settings()), raw, {"p.csv": b"k,n\na,1\n"}, datetime.now(UTC))
    return "-m", "shop_without_answer"


def test_a_failed_run_is_retried_later_and_explain_keeps_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = without_answer(tmp_path, monkeypatch)
    result = invoke("run", "--until-idle", *named)
    (again,) = [line for line in result.stdout.splitlines() if line.startswith("AGAIN")]
    assert result.exit_code == 1
    assert again.startswith("AGAIN   shop/made/v1.0: attempt 1 of 3 failed, the next may start from ")
    assert again.endswith("UTC on: see FAILED above")
    error = f"FunctionFailed: {tmp_path / 'shop_without_answer.py'}:9: OSError: no"
    assert f"FAILED  shop/made, shop/made_rejects: {error} (run " in result.stdout
    shown = json.loads(invoke("explain", "shop/made/v1.0", *named, "--json").output)
    assert (shown["reason"].endswith(error), shown["last_run"]["reason"]) == (True, None)
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(run).values(ended=datetime.now(UTC) - timedelta(minutes=1)))
    shown = json.loads(invoke("explain", "shop/made/v1.0", *named, "--json").output)
    assert (shown["state"], shown["last_run"]["reason"]) == ("build", error)


def test_a_partition_out_of_attempts_has_its_own_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_ASSETS_MAX_ATTEMPTS", "1")
    settings.cache_clear()
    result = invoke("run", "--until-idle", *without_answer(tmp_path, monkeypatch))
    what, waits, do = result.stdout.splitlines()[-3:]
    assert (result.exit_code, what) == (3, "1 waits for a person:")
    assert waits == "WAITS   shop/made/v1.0: 1 run failed on these inputs, the last with: see FAILED above"
    assert "feed-assets build --failed" in do


def test_a_refused_partition_waits_for_a_person_in_later_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = FAILS.replace('raw.select("nothing")', "raw.where('n > 5')").replace(
        'inputs={"raw": raw}', 'inputs={"raw": raw}, checks=[checks.not_empty()]'
    )
    (tmp_path / "shop_that_refuses.py").write_text(refuses.replace("import feed_asset,", "import checks, feed_asset,"))
    monkeypatch.syspath_prepend(tmp_path)
    raw = Partition(Feed.parse("shop/raw/v1.0"), "")
    publish(open_board(settings()), raw, {"p.csv": b"k,n\na,1\n"}, datetime.now(UTC))
    for _ in range(2):
        result = invoke("run", "--until-idle", "-m", "shop_that_refuses")
        assert (result.exit_code, result.stdout.splitlines()[-3]) == (3, "1 waits for a person:")
        assert "WAITS   shop/made/v1.0: its own audit failed on these inputs: " in result.stdout


def test_an_unreachable_engine_is_reported_once_and_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop_sample()
    monkeypatch.setenv("FEED_ASSETS_SPARK_REMOTE", "sc://127.0.0.1:9")
    settings.cache_clear()
    result = invoke("run", "--until-idle")
    assert isinstance(result.exception, SparkUnavailable)
    assert str(result.exception).startswith("nobody listens at FEED_ASSETS_SPARK_REMOTE=sc://127.0.0.1:9")
    assert result.stdout == ""
    said = json.loads(invoke("explain", "ads/clicked/v1.0", DAY, "--json").output)
    assert said["state"] == "build"
    monkeypatch.delenv("FEED_ASSETS_SPARK_REMOTE")
    settings.cache_clear()
    healed = invoke("run", "--until-idle")
    assert (healed.exit_code, healed.stdout.splitlines()[-1][:10]) == (0, "idle after")


def test_run_without_until_idle_is_one_tick() -> None:
    drop_sample()
    result = invoke("run")
    assert [line for line in result.stdout.splitlines() if "effectiveness" in line] == []
    assert result.stdout.splitlines()[-1] == "one tick: more may be ready now"


def test_a_tick_that_does_nothing_says_so() -> None:
    assert invoke("run", "--until-idle").exit_code == 0
    assert invoke("run").stdout == "one tick: nothing was due\n"


def test_progress_is_printed_to_stderr_from_the_start() -> None:
    drop_sample()
    said = invoke("run", "--until-idle").stderr.splitlines()
    assert said[0] == "feed-assets: loading the definitions"
    assert not [line for line in said if not line.startswith(("feed-assets: ", "blackboard: "))], said


def test_run_prints_runs_and_remaining_partitions_as_one_json_object() -> None:
    drop_sample()
    drop("ads/clicked_raw/v1.0", b"impression,clicked\nx,y\n")
    result = invoke("run", "--until-idle", "--json")
    said = json.loads(result.stdout)
    runs = {tuple(each["assets"]): each for each in said["runs"]}
    shown, clicked = runs["ads/shown", "ads/shown_rejects"], runs["ads/clicked", "ads/clicked_rejects"]
    assert (shown["partition"], shown["succeeded"], shown["rows"], shown["rejects"]) == (
        "men|2019-11-24",
        True,
        3524,
        0,
    )
    assert shown["seconds"] > 0
    assert (clicked["succeeded"], clicked["rows"], clicked["rejects"]) == (False, None, None)
    assert clicked["error"].startswith("NotAsDeclared: ")
    assert [each["what"] for each in said["waits"]] == [f"ads/clicked/v1.0 {DAY}"]
    assert (result.exit_code, said["left"], said["again"]) == (3, [], [])
    assert said["ticks"] > 1


def test_verbose_run_prints_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_WANTED", set())
    drop("ads/clicked_raw/v1.0", b"impression,clicked\nx,y\n")
    result = invoke("run", "-v")
    assert "NotAsDeclared" in result.stderr
    assert "Stack Trace" in result.stderr
    assert "Stack Trace" not in result.stdout


def test_the_command_knows_the_words_by_which_a_runner_says_that_spark_starts() -> None:
    assert STARTING_SPARK == runner.STARTING_SPARK


FAILS = """
import dagster as dg
from feed_assets import feed_asset, foreign_feed, with_automation

raw = foreign_feed("shop/raw/v1.0", schema="k string, n int")

@feed_asset("shop/made/v1.0", inputs={"raw": raw})
def made(raw):
    return raw.select("nothing")

defs = with_automation(dg.Definitions(assets=[raw, made]))
"""


def test_a_function_that_fails_is_one_line_for_each_run_and_one_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop_that_fails.py").write_text(FAILS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FEED_ASSETS_MAX_ATTEMPTS", "1")
    settings.cache_clear()
    publish(
        open_board(settings()), Partition(Feed.parse("shop/raw/v1.0"), ""), {"p.csv": b"k,n\na,1\n"}, datetime.now(UTC)
    )
    result = invoke("run", "--until-idle", "-m", "shop_that_fails")
    said = result.stdout.splitlines()
    assert (result.exit_code, len(said)) == (3, 5), said
    line = f"{tmp_path / 'shop_that_fails.py'}:9"
    why = f"FunctionWrong: {line}: AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"
    assert said[0].startswith(f"FAILED  shop/made, shop/made_rejects: {why}")
    elsewhere = "(after a change in another module run `feed-assets build shop/made/v1.0 --failed`)"
    assert said[3] == f"WAITS   shop/made/v1.0: failed: needs a change {elsewhere}: see FAILED above"
    assert "Project" not in result.stdout
    assert capfd.readouterr() == ("", "")


def test_a_module_without_definitions_is_refused() -> None:
    assert "has 0 Definitions: expected exactly one" in str(invoke("run", "-m", "json").exception)


def test_publishing_and_invalidating_by_hand_are_in_the_ledger_at_once(tmp_path: Path) -> None:
    file = tmp_path / "part-1.csv"
    file.write_bytes(sample.clicked_csv("2019-11-24", "men"))
    published = invoke("feed", "publish", "ads/clicked_raw/v1.0", DAY, str(file), "--json")
    update_id = json.loads(published.stdout)["id"]
    assert state_of("ads/clicked_raw/v1.0", update_id) == "published"
    invoke("feed", "invalidate", "ads/clicked_raw/v1.0", DAY, update_id)
    assert state_of("ads/clicked_raw/v1.0", update_id) == "invalidated"


def test_publishing_to_another_blackboard_leaves_the_ledger_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "part-1.csv"
    file.write_bytes(b"impression_id,clicked_at\n")
    (tmp_path / "elsewhere").mkdir()
    url = (tmp_path / "elsewhere").as_uri()
    published = invoke("feed", "publish", "ads/clicked_raw/v1.0", DAY, str(file), "--json", "--blackboard", url)
    assert state_of("ads/clicked_raw/v1.0", json.loads(published.stdout)["id"]) is None


def test_a_process_has_one_spark_session(spark: SparkSession) -> None:
    from feed_assets.spark.session import session

    assert session(settings()) is spark
