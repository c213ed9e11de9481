"""`events due` and `explain` read sources that no tick has read yet, or say since when a source is unreadable."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.loaded_location import open_instance
from feed_assets.cli.progress import Progress
from feed_assets.cli.run_output import Teller
from feed_assets.core.completeness import Completeness
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed
from feed_assets.core.sub_partitions import Tracked
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states.window_queries import declare
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink

REPORT, LOST = "gamma/report/v1.0", "gamma/lost/v1.0"
WORLD = """
import dagster as dg
from feed_assets import ByEvents, EventSource, LineageTable, SqlTable, event_table, feed_asset, with_automation

SOURCE = EventSource("team", (SqlTable("{url}", "events", "id"),))
A, B = (event_table(f"team/{{name}}", source=SOURCE, table_name=name) for name in "ab")
NOWHERE = LineageTable("sqlite:////nowhere/at/all.db", "lineage")

def by_events(name, pipelines):
    @feed_asset(name, inputs={{"a": A, "b": B}}, by_events=ByEvents(pipelines=pipelines))
    def report(a, b):
        return a
    return report

assets = [A, B, by_events("gamma/report/v1.0", {{"p": ["team/a", "team/b"]}}), by_events("gamma/lost/v1.0", NOWHERE)]
defs = with_automation(dg.Definitions(assets=assets))
"""


@pytest.fixture
def team(home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlSink:
    """Another team's table of events, which the definitions of the module `as_of_now` read."""
    sink = SqlSink(f"sqlite:///{tmp_path / 'team.db'}", "events")
    (tmp_path / "as_of_now.py").write_text(WORLD.format(url=sink.url))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "as_of_now", raising=False)
    sink.publish([(0, WriteEvent(table, 1, utc_now(), "X", Operation.UPSERT)) for table in "ab"])
    return sink


def said(*args: str):
    return json.loads(CliRunner().invoke(app, [*args, "-m", "as_of_now", "--json"], catch_exceptions=False).stdout)


def test_events_due_includes_events_that_no_tick_has_read(team):
    (found,) = said("events", "due", REPORT)
    assert (found["due"][""]["takes"], found["unread"]) == (["X"], [])


def test_explain_includes_events_that_no_tick_has_read(team):
    found = said("explain", REPORT)
    assert (found["state"], found["due"]["takes"], found["unread"]) == ("build", ["X"], [])


@pytest.mark.parametrize("command", [("events", "due"), ("explain",)])
def test_an_unreadable_source_is_named_with_the_reason_and_its_last_read(team, tmp_path, command):
    rename(tmp_path, "events", "hidden")
    (never,) = unread_of(said(*command, REPORT))
    assert (never["source"], never["as_of"]) == ("part 0 of team", None)
    assert "events" in never["why"]
    rename(tmp_path, "hidden", "events")
    before = utc_now()
    said(*command, REPORT)
    after = utc_now()
    rename(tmp_path, "events", "hidden")
    (since,) = unread_of(said(*command, REPORT))
    assert before.isoformat()[:19] <= since["as_of"][:19] <= after.isoformat()[:19]


def rename(folder: Path, old: str, new: str) -> None:
    """Rename the team's table: a source without its table cannot be read."""
    with closing(sqlite3.connect(folder / "team.db")) as connection:
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")


def unread_of(found):
    return (found[0] if isinstance(found, list) else found)["unread"]


def test_a_lineage_table_out_of_reach_is_the_reason_that_explain_gives(team):
    found = said("explain", LOST)
    assert found["state"] == "cannot be decided"
    assert "There is no SQLite database /nowhere/at/all.db" in found["reason"]


def test_an_unreachable_lineage_table_hides_no_other_consumer(team):
    lost, report = said("events", "due")
    assert (lost["consumer"], report["consumer"]) == (LOST, REPORT)
    assert "There is no SQLite database /nowhere/at/all.db" in lost["problem"]
    assert (report["problem"], report["due"][""]["takes"]) == (None, ["X"])


def run_until_idle():
    found = CliRunner().invoke(app, ["run", "--until-idle", "-m", "as_of_now"])
    return found.exit_code, [line for line in found.stdout.splitlines() if line.startswith("FAILING")], found.stderr


def test_run_prints_an_unreadable_source_at_the_start_and_at_the_end_only(team, tmp_path, caplog):
    rename(tmp_path, "events", "hidden")
    code, (line,), stderr = run_until_idle()
    assert (code, line.split(":")[0]) == (1, "FAILING events_team")
    why = "has no table events: found hidden"
    assert why in line
    assert (stderr.splitlines().count(line), stderr.count(why), caplog.text.count(why)) == (1, 1, 0)


def test_run_prints_a_problem_again_when_its_reason_changes_and_when_it_ends(capsys):
    teller = Teller(Progress(), check=lambda: None)
    for problems in ({"s:a": "no", "s:b": "no"}, {"s:a": "no", "s:b": "never"}, {"s:a": "no"}, {}):
        teller.say_problems("s", problems)
    teller.say_problems("t", {})
    lines = ["FAILING s:a: no", "FAILING s:b: no", "FAILING s:b: never", "over    s:b", "over    s:a"]
    told = capsys.readouterr()
    assert (told.err.splitlines(), told.out) == (lines, "")


def test_explain_line_names_the_last_read_of_an_unreadable_source(team, tmp_path):
    said("explain", REPORT)
    rename(tmp_path, "events", "hidden")
    found = said("explain", REPORT)
    assert "; but part 0 of team could not be read since 20" in found["reason"]


def test_explain_lists_unreadable_sources_after_all_waiting_partitions(team, tmp_path):
    rename(tmp_path, "events", "hidden")
    told = CliRunner().invoke(app, ["explain", "-m", "as_of_now"]).stdout.splitlines()
    assert "part 0 of team was never read" in told[-1]


def test_explain_says_that_a_dataset_is_paused_in_any_state(team):
    said("events", "pause", REPORT, "--why", "release")
    assert "paused since" in said("explain", REPORT)["reason"]


DYNAMIC = """
import dagster as dg
from feed_assets import feed_asset, foreign_feed, with_automation

REGIONS = dg.DynamicPartitionsDefinition(name="regions")
raw = foreign_feed("t/raw/v1.0", partitions_def=REGIONS, schema="k string")

@feed_asset("t/out/v1.0", partitions_def=REGIONS, inputs={"raw": raw})
def out(raw):
    return raw

defs = with_automation(dg.Definitions(assets=[raw, out]))
"""


def test_dynamic_partitions_are_those_of_the_instance(team, tmp_path, monkeypatch):
    (tmp_path / "regions.py").write_text(DYNAMIC)
    monkeypatch.delitem(sys.modules, "regions", raising=False)
    with open_instance() as instance:
        instance.add_dynamic_partitions("regions", ["north"])
    for partition, state in (((), "missing"), (("north",), "waits for input")):
        told = CliRunner().invoke(app, ["explain", "t/out/v1.0", *partition, "-m", "regions"], catch_exceptions=False)
        assert state in told.stdout


WINDOWS = """
import dagster as dg
from feed_assets import feed_asset, state_table, with_automation

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
foo = state_table("web/foo", partitions_def=HOURS)

@feed_asset("web/hourly/v1.0", partitions_def=HOURS, inputs={"foo": foo})
def hourly(foo):
    return foo

defs = with_automation(dg.Definitions(assets=[foo, hourly]))
"""


def test_explain_warns_if_the_ledger_judges_windows_by_another_declaration(team, tmp_path, monkeypatch):
    (tmp_path / "windows_of_foo.py").write_text(WINDOWS)
    monkeypatch.delitem(sys.modules, "windows_of_foo", raising=False)
    asked = ["explain", "web/hourly/v1.0", "2026-01-01-15:00", "-m", "windows_of_foo"]
    told = CliRunner().invoke(app, asked, catch_exceptions=False).stdout
    assert "but web/foo has a changed declaration that the ledger lacks: `feed-assets run`" in " ".join(told.split())
    every = CliRunner().invoke(app, ["explain", "-m", "windows_of_foo"], catch_exceptions=False).stdout
    assert "but web/foo has a changed declaration" in every
    tracked = Tracked.of(Completeness())
    declare(open_ledger(settings().ledger), {Feed.parse("web/foo"): tracked}, utc_now())
    assert "has a changed declaration" not in CliRunner().invoke(app, asked, catch_exceptions=False).stdout
