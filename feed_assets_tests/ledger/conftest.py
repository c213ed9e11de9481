"""Ledgers on SQLite and on PostgreSQL: every test of the ledger runs over both."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.states import count_reports
from feed_assets.ledger.tables import metadata
from feed_assets_tests.ledger.quality_reports import ALL_DAY
from feed_assets_tests.ledger.state_reports import HOUR_15, NOW, part, source
from feed_assets_tests.support.servers import PostgreSQL


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a fresh, empty database."""
    if request.param == "sqlite":
        (tmp_path / "folder of its own").mkdir()
        return f"sqlite:///{tmp_path / 'folder of its own' / 'ledger.db'}"
    return request.getfixturevalue("postgresql").database()


@pytest.fixture(scope="session")
def on_postgresql(postgresql: PostgreSQL) -> Iterator[Ledger]:
    """Yield the one ledger on PostgreSQL: a database for each test takes long, above all to drop."""
    opened = open_ledger(postgresql.database())
    yield opened
    opened.engine.dispose()


@pytest.fixture
def postgresql_ledger(on_postgresql: Ledger) -> Ledger:
    """Return the ledger on PostgreSQL, emptied."""
    with on_postgresql.write() as connection:
        for table in metadata.sorted_tables:
            connection.execute(sa.delete(table))
    return on_postgresql


@pytest.fixture
def sqlite_ledger(tmp_path: Path, empty_ledger: Path) -> Iterator[Ledger]:
    """Yield a fresh ledger on disk."""
    (tmp_path / "ledger.db").write_bytes(empty_ledger.read_bytes())
    opened = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield opened
    opened.engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """Return a ledger of each kind; both must behave the same."""
    return request.getfixturevalue(f"{request.param}_ledger")


@pytest.fixture
def complete_hour(ledger: Ledger) -> Ledger:
    """Return a ledger in which only hour 15 of the day is complete."""
    count_reports.report(ledger, source(dict.fromkeys(HOUR_15, 10)), NOW)
    count_reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15, 10))], NOW)
    return ledger


@pytest.fixture
def complete_day(ledger: Ledger) -> Ledger:
    """Return a ledger in which each hour of the day is complete."""
    count_reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    count_reports.report(ledger, [part("part-1", dict.fromkeys(ALL_DAY, 10))], NOW)
    return ledger
