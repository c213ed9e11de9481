"""Errors that `feed-assets` prints: one line, whatever their origin."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

import feed_assets
from feed_assets.cli import errors_in_a_line, main, traces
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.main_call import exit_and_errors


def test_a_broken_ledger_is_one_line(home, monkeypatch, capsys):
    open_ledger(settings().ledger).engine.dispose()
    with closing(sqlite3.connect(home / "ledger.db")) as database, database:
        database.execute("DROP TABLE event")
    code, lines = exit_and_errors(monkeypatch, capsys, "events", "ls")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("feed-assets: OperationalError: (sqlite3.OperationalError) no such table: event ")


def test_a_ledger_of_a_later_version_is_one_line(home, monkeypatch, capsys):
    open_ledger(settings().ledger).engine.dispose()
    with closing(sqlite3.connect(home / "ledger.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    open_ledger.cache_clear()
    code, lines = exit_and_errors(monkeypatch, capsys, "events", "ls")
    assert (code, len(lines)) == (4, 1)
    assert "has the schema 9999, of a later version of feed_assets: expected up to" in lines[0]


class Row(BaseModel):
    """Stands for any value that pydantic refuses."""

    at: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    url: str = ""


def test_a_pydantic_error_is_one_line(capsys):
    def refuse():
        Row.model_validate({"at": "nothing", "url": 5})

    with pytest.raises(ValidationError) as refused:
        refuse()
    assert len(str(refused.value).splitlines()) > 4
    with pytest.raises(SystemExit) as ended, errors_in_a_line():
        refuse()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert line.startswith("feed-assets: ValidationError: 2 validation errors for Row at Input should be")


def fail():
    """Raise an unexpected error."""
    raise KeyError("x")


def test_an_unexpected_error_is_one_line_with_file_and_line(capsys):
    with pytest.raises(SystemExit) as ended, errors_in_a_line():
        fail()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert line.startswith(f"feed-assets: KeyError: 'x' ({__file__}:")
    assert line.endswith("; `feed-assets -v …` prints its stack trace)")


def test_verbose_prints_the_trace_before_the_error_line(monkeypatch, capsys, home):
    monkeypatch.setattr(traces, "_WANTED", set())
    code, lines = exit_and_errors(monkeypatch, capsys, "-v", "feed", "ls", "--blackboard", "file:///no/such/folder")
    assert code == 4
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("feed-assets: ")


def test_the_version_is_that_of_the_package(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["feed-assets", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"feed-assets {feed_assets.__version__}\n")


def completed(words, at):
    """Return the completions that bash is offered, in a separate process."""
    asked = {"_FEED_ASSETS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    command = [Path(sys.executable).with_name("feed-assets")]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_shell_completes_commands_and_options():
    assert completed("feed-assets feed u", 2) == ["uses"]
    assert "--until-idle" in completed("feed-assets run --", 2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_the_command(monkeypatch, capsys, shell):
    monkeypatch.setattr("sys.argv", ["feed-assets", "completion", shell])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "_FEED_ASSETS_COMPLETE=complete_" in capsys.readouterr().out


def test_with_json_only_the_json_goes_to_stdout():
    """Print from Python and from a child process that writes to the same file."""
    program = (
        "import subprocess, sys; from feed_assets.cli.show import Values, json_alone, show\n"
        "with json_alone():\n"
        "    print('printed'); subprocess.run(['echo', 'echoed'], check=True); show(Values.of(a=1), as_json=True)\n"
        "print('after')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    values, _, after = done.stdout.rpartition("}")
    assert json.loads(values + "}") == {"a": 1}
    assert after.strip() == "after"
    assert sorted(done.stderr.split()) == ["echoed", "printed"]
