"""`run` ends with an error code if a dataset could not be decided."""

import json
import sys

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.runs.services import utc_now
from feed_assets.sources.sinks import SqlSink

LOST = "gamma/lost/v1.0"
WORLD = """
import dagster as dg
from feed_assets import ByEvents, EventSource, LineageTable, SqlTable, event_table, feed_asset, with_automation

SOURCE = EventSource("team", (SqlTable("{url}", "events", "id"),))
A, B = (event_table(f"team/{{name}}", source=SOURCE, table_name=name) for name in "ab")
NOWHERE = LineageTable("sqlite:////nowhere/at/all.db", "lineage")

@feed_asset("gamma/lost/v1.0", inputs={{"a": A, "b": B}}, by_events=ByEvents(pipelines=NOWHERE))
def lost(a, b):
    return a

defs = with_automation(dg.Definitions(assets=[A, B, lost]))
"""


@pytest.fixture
def world(home, tmp_path, monkeypatch):
    """Prepare a dataset with something to build, whose pipelines are in a database that does not exist."""
    sink = SqlSink(f"sqlite:///{tmp_path / 'team.db'}", "events")
    (tmp_path / "world_of_lost.py").write_text(WORLD.format(url=sink.url))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "world_of_lost", raising=False)
    sink.publish([(0, WriteEvent(table, 1, utc_now(), "X", Operation.UPSERT)) for table in "ab"])


def run(*options):
    return CliRunner().invoke(app, ["run", *options, "-m", "world_of_lost"])


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("options", [(), ("--until-idle",)])
def test_a_dataset_that_cannot_be_decided_is_named_with_the_reason_and_an_exit_code(options, caplog):
    found = run(*options)
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("UNDECIDED")]
    assert (found.exit_code, line.split(":")[0]) == (1, f"UNDECIDED {LOST}")
    assert "There is no SQLite database /nowhere/at/all.db" in line
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.usefixtures("world")
def test_an_undecided_dataset_is_in_the_json_output():
    found = run("--json")
    (undecided,) = json.loads(found.stdout)["undecided"]
    assert (found.exit_code, undecided["what"]) == (1, LOST)
    assert "There is no SQLite database /nowhere/at/all.db" in undecided["why"]
