"""What `feed-assets` says of errors: one line, whoever raised it."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, ValidationError

from feed_assets.cli import errors_in_a_line, main
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings


def said(monkeypatch, capsys, *args):
    monkeypatch.setattr("sys.argv", ["feed-assets", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err.splitlines()


def test_a_broken_ledger_is_one_line(home, monkeypatch, capsys):
    open_ledger(settings().ledger).engine.dispose()
    with closing(sqlite3.connect(home / "ledger.db")) as database, database:
        database.execute("DROP TABLE event")
    code, lines = said(monkeypatch, capsys, "events", "ls")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("feed-assets: OperationalError: (sqlite3.OperationalError) no such table: event ")


def test_a_ledger_of_a_later_version_is_one_line(home, monkeypatch, capsys):
    open_ledger(settings().ledger).engine.dispose()
    with closing(sqlite3.connect(home / "ledger.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    open_ledger.cache_clear()
    code, lines = said(monkeypatch, capsys, "events", "ls")
    assert (code, len(lines)) == (4, 1)
    assert "has the schema 9999, of a later version of feed_assets: expected up to" in lines[0]


class Row(BaseModel):
    """Stands for any value that pydantic refuses."""

    at: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    url: str = ""


def test_what_pydantic_says_in_many_lines_is_one(capsys):
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
