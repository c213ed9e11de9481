"""Event tables of other teams: each kind of database and file, with markers of both kinds."""

import pytest
import sqlalchemy as sa

from feed_assets_tests.support.foreign_tables import Files, Sql, Topics


@pytest.fixture(scope="session")
def one_database(postgresql):
    """Return one database for all tests, as creating one takes long."""
    return postgresql.database()


@pytest.fixture
def postgresql_url(one_database):
    """Return the database, emptied."""
    engine = sa.create_engine(one_database)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return one_database


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'their events.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    """Return another team's database."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture(params=["timestamp", "integer"])
def markers(request):
    return request.param


KINDS = ["sqlite", "sqlite by marker", "postgresql", "postgresql by marker"]
FORMATS = ["csv", "jsonl", "parquet"]


@pytest.fixture(params=[*KINDS, *(f"{each} on {store}" for each in FORMATS for store in ("local", "s3")), "kafka"])
def theirs(request, markers):
    """Provide another team's event table, empty."""
    kind, _, where = request.param.partition(" ")
    if kind == "kafka":
        made = Topics(request.getfixturevalue("broker").servers, markers)
    elif kind in FORMATS:
        made = Files(request.getfixturevalue(f"{where.split()[-1]}_board"), kind, markers)
    else:
        made = Sql(request.getfixturevalue(f"{kind}_url"), markers, "marker" if where else "id")
    yield made
    made.close()
