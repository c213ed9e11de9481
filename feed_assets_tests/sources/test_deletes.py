"""Deletes are read through the same markers as events."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.events import encode
from feed_assets.sources.deletes import DeletesTable
from feed_assets_tests.support.foreign_tables import START

KINDS = {
    "integer": sa.BigInteger(),
    "with zone": sa.DateTime(timezone=True),
    "without zone": sa.DateTime(),
    "text": sa.Text(),
    "number as text": sa.Text(),
    "day": sa.Date(),
}


def marker(kind, number):
    if "integer" in kind or "number" in kind:
        return number
    return (START.replace(hour=0) + timedelta(days=number)) if kind == "day" else START + timedelta(microseconds=number)


def stored(kind, number):
    """Return a marker in the form in which its owner stores it."""
    at = marker(kind, number)
    if kind == "number as text":
        return str(at)
    forms = {
        "text": lambda: at.isoformat(sep="T" if number % 2 else " "),
        "without zone": lambda: at.replace(tzinfo=None),
    }
    return forms[kind]() if kind in forms else at.date() if kind == "day" else at


@pytest.fixture(autouse=True)
def _named_by_a_variable(url, monkeypatch):
    monkeypatch.setenv("DELETES_URL", url)


def table(url, kind, numbers, more=()):
    engine = sa.create_engine(url)
    columns = sa.Column("id", sa.Integer), sa.Column("shop", sa.Text), sa.Column("deleted_at", KINDS[kind])
    made = sa.Table("deletes", sa.MetaData(), *columns)
    made.create(engine)
    rows = [{"id": number, "shop": f"s{number}", "deleted_at": stored(kind, number)} for number in numbers]
    with engine.begin() as connection:
        connection.execute(sa.insert(made), [*rows, {"id": 0, "shop": "s0", "deleted_at": None}, *more])
    engine.dispose()
    return DeletesTable("env:DELETES_URL", "deletes")


@pytest.mark.parametrize("kind", KINDS)
def test_the_keys_in_a_range_are_those_after_its_start_and_up_to_its_end(url, kind):
    deletes = table(url, kind, range(1, 7))

    def read(start, end):
        return sorted(deletes.read(None if start is None else encode(marker(kind, start)), encode(marker(kind, end))))

    assert read(2, 5) == [(3,), (4,), (5,)]
    assert read(None, 2) == [(1,), (2,)]
    assert read(6, 9) == read(3, 3) == []
    slices = [read(*bounds) for bounds in [(None, 1), (1, 4), (4, 6)]]
    assert sum(slices, []) == read(None, 6) == [(number,) for number in range(1, 7)]  # noqa: RUF017


def test_many_rows_are_not_held_at_once(url):
    deletes = table(url, "integer", range(1, 25_001))
    keys = deletes.read(encode(0), encode(10**9))
    assert next(keys) == (1,)
    assert len([*keys]) == 24_999


def test_a_key_may_be_of_several_columns(url):
    table(url, "integer", [1, 2])
    assert [*DeletesTable("env:DELETES_URL", "deletes", ("shop", "id")).read(encode(1), encode(2))] == [("s2", 2)]


def test_delete_markers_of_another_kind_are_refused(url):
    deletes = table(url, "integer", [1])
    with pytest.raises(SourceUnavailable, match="deleted_at has 1: expected markers of the same kind"):
        [*deletes.read(None, encode(datetime(2010, 12, 1, tzinfo=UTC)))]


def test_a_delete_with_an_unreadable_time_is_refused_and_not_skipped(url):
    deletes = table(url, "text", [1], [{"id": 9, "shop": "s", "deleted_at": "yesterday"}])
    with pytest.raises(SourceUnavailable, match=r"deleted_at: 'yesterday' is not a marker.*Correct the row"):
        [*deletes.read(None, encode(START + timedelta(days=1)))]


def test_a_missing_delete_table_or_column_is_refused(url):
    table(url, "integer", [1])
    with pytest.raises(SourceUnavailable, match="has no column key: found id, shop, deleted_at"):
        [*DeletesTable("env:DELETES_URL", "deletes", "key").read(None, encode(1))]
    with pytest.raises(SourceUnavailable, match="has no table none"):
        [*DeletesTable("env:DELETES_URL", "none").read(None, encode(1))]


def test_moments_that_sqlite_keeps_in_any_form_are_compared_as_moments(sqlite_url):
    engine = sa.create_engine(sqlite_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE deletes (id integer, deleted_at datetime)")
        forms = ["2010-12-01T05:59:59Z", "2010-12-01 06:00:00", "2010-12-01T15:00:01+09:00", "2010-12-01T06:00:02.5"]
        connection.exec_driver_sql("INSERT INTO deletes VALUES (?, ?)", [*enumerate(forms)])
    engine.dispose()
    deletes = DeletesTable(sqlite_url, "deletes")
    assert [*deletes.read(encode(START), encode(START + timedelta(seconds=2)))] == [(2,)]
    assert [*deletes.read(None, encode(START))] == [(0,), (1,)]
