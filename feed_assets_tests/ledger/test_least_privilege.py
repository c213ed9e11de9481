"""A ledger on PostgreSQL with an owner that upgrades it and a role that uses it, as docs/security.md describes."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from typer.testing import CliRunner

from feed_assets import cli
from feed_assets.core.errors import LedgerUnavailable
from feed_assets.ledger import database, log, update_changes, updates
from feed_assets.ledger.database import Ledger, open_ledger, put_cursors, schema_of
from feed_assets.settings import settings
from feed_assets_tests.support.ledger_records import NOW, SHOWN
from feed_assets_tests.support.servers import PostgreSQL

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9999", "{newest}"


def upgrade():
    op.add_column("quality", sa.Column("next", sa.Integer()))
"""
"""A migration of a later version, which alters a table."""


def statements(title: str) -> list[str]:
    """Return the SQL statements of a block of the page, with the password filled in."""
    (block,) = re.findall(rf"```sql title={title}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [each for each in block.replace("'…'", "'x'").split(";") if each.strip()]


def test_a_schema_in_which_every_role_may_create_objects_is_refused(postgresql: PostgreSQL) -> None:
    """Otherwise any role could add an operator, which the ledger's statements would run."""
    made = sa.make_url(postgresql.database())
    server = sa.create_engine(made, isolation_level="AUTOCOMMIT")
    url = made.render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.exec_driver_sql("GRANT CREATE ON SCHEMA public TO PUBLIC")
        with pytest.raises(LedgerUnavailable, match="REVOKE CREATE ON SCHEMA public FROM PUBLIC;"):
            open_ledger(url)
        connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    open_ledger(url).engine.dispose()
    server.dispose()


@pytest.fixture
def owners(postgresql: PostgreSQL) -> Iterator[sa.Engine]:
    """Yield a database as the page creates it, opened by its owner."""
    made = sa.make_url(postgresql.database())
    server, name = sa.create_engine(made, isolation_level="AUTOCOMMIT"), made.database
    with server.connect() as connection:
        connection.exec_driver_sql("CREATE ROLE somebody LOGIN PASSWORD 'x'")
        for statement in statements("database.sql") + statements("catalog.sql"):
            connection.exec_driver_sql(statement.replace("DATABASE feed_assets", f'DATABASE "{name}"'))
    engine = sa.create_engine(made.set(username="feed_assets_owner", password="x"))
    yield engine
    engine.dispose()
    with server.connect() as connection:
        for role in ("feed_assets_app", "feed_assets_catalog", "feed_assets_owner", "somebody"):
            connection.exec_driver_sql(f"REASSIGN OWNED BY {role} TO postgres")
            connection.exec_driver_sql(f"DROP OWNED BY {role}")
            connection.exec_driver_sql(f"DROP ROLE {role}")
    server.dispose()


def url_of(engine: sa.Engine, user: str) -> str:
    return engine.url.set(username=user, password="x").render_as_string(hide_password=False)


@pytest.fixture
def app(owners: sa.Engine) -> Iterator[Ledger]:
    """Yield the ledger as opened by the role that uses it."""
    open_ledger(url_of(owners, "feed_assets_owner")).engine.dispose()
    with owners.begin() as connection:
        for statement in statements("app.sql"):
            connection.exec_driver_sql(statement)
    opened = open_ledger(url_of(owners, "feed_assets_app"))
    yield opened
    opened.engine.dispose()


def test_app_role_reads_writes_and_appends(app, owners):
    with app.change() as connection:
        update_changes.insert(connection, SHOWN, "20191125.060000", updates.FOREIGN, updates.PUBLISHED, NOW)
    with app.write() as connection:
        put_cursors(connection, {"here": "there"})
    with app.read() as connection:
        assert log.last(connection) > 0
    found, newest = schema_of(SecretStr(url_of(owners, "feed_assets_app")))
    assert found == newest


def test_app_role_cannot_change_the_schema(app):
    for statement in ("DROP TABLE event", "CREATE TABLE more (n INTEGER)", "TRUNCATE change"):
        with pytest.raises(LedgerUnavailable, match=r"must be owner|permission denied"), app.write() as connection:
            connection.exec_driver_sql(statement)


@pytest.fixture
def catalog(app: Ledger, owners: sa.Engine) -> Iterator[sa.Connection]:
    """Yield a connection of the role that may only read the view."""
    with owners.begin() as connection:
        for statement in statements("view.sql"):
            connection.exec_driver_sql(statement)
    engine = sa.create_engine(url_of(owners, "feed_assets_catalog"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_catalog_role_reads_the_view_and_no_table(app, catalog):
    with app.change() as connection:
        update_changes.insert(connection, SHOWN, "20191125.060000", updates.FOREIGN, updates.PUBLISHED, NOW)
    found = catalog.exec_driver_sql("SELECT dataset, complete, good FROM partition_state").all()
    assert found == [(str(SHOWN.feed), True, True)]
    catalog.rollback()
    for statement in ("SELECT * FROM update_", "UPDATE change SET why = ''"):
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
            catalog.exec_driver_sql(statement)
        catalog.rollback()


def upgrade(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run `feed-assets ledger upgrade`, and return its output."""
    monkeypatch.setenv("FEED_ASSETS_LEDGER", url)
    settings.cache_clear()
    open_ledger.cache_clear()
    done = CliRunner().invoke(cli.app, ["ledger", "upgrade"], catch_exceptions=False)
    open_ledger(SecretStr(url)).engine.dispose()
    open_ledger.cache_clear()
    return done.output


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process the migrations of a later version."""
    migrations = Path(shutil.copytree(database.MIGRATIONS, tmp_path / "migrations"))
    newest = max(file.name[:4] for file in (migrations / "versions").glob("0*.py"))
    (migrations / "versions" / "9999_next.py").write_text(NEXT.format(newest=newest))
    monkeypatch.setattr(database, "MIGRATIONS", migrations)


def test_an_upgrade_needs_the_owner_and_keeps_the_log(app, owners, home, next_version, monkeypatch):
    with app.change() as connection:
        update_changes.insert(connection, SHOWN, "20191125.060000", updates.FOREIGN, updates.PUBLISHED, NOW)
        last = log.last(connection)
    app.engine.dispose()
    url = url_of(owners, "feed_assets_app")
    with pytest.raises(LedgerUnavailable, match="must be owner of table quality"):
        open_ledger.__wrapped__(url)
    assert upgrade(url_of(owners, "feed_assets_owner"), monkeypatch) == "the ledger has schema 9999\n"
    upgraded = open_ledger.__wrapped__(url)
    with upgraded.change() as connection:
        assert log.last(connection) == last > 0
        connection.exec_driver_sql("SELECT next FROM quality")
    upgraded.engine.dispose()


def test_role_without_grants_cannot_connect(app, owners):
    somebody = sa.create_engine(url_of(owners, "somebody"))
    with pytest.raises(sa.exc.OperationalError, match="permission denied for database"):
        somebody.connect()
    somebody.dispose()
