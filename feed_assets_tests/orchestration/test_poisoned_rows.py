"""Rows of others that are no events, or awkward ones, from the source to the run: none stops a table or a sensor."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from feed_assets.ledger import events
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import event
from feed_assets.settings import settings
from feed_assets_tests.orchestration.test_event_tables import Team, world

ZERO = datetime(1, 1, 1, tzinfo=UTC)


@pytest.fixture
def team(tmp_path):
    return Team(tmp_path)


@pytest.fixture
def seen():
    return []


def test_an_event_of_the_year_1_is_consumed_and_its_rows_can_be_asked_for(team, seen):
    world_ = world(team, seen)
    team.publish(("a", "X", ZERO), ("b", "X", 7))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    piece = next(piece for table, piece in seen[0].slices.items() if str(table.feed) == "team/a")
    assert piece.where("at") == "at <= '0001-01-01 00:00:00.000000+00:00'"
    assert world_.run_until_idle() == []


def test_what_an_older_version_recorded_with_a_short_year_is_consumed_once(team, seen):
    """It was in the ledger, and stopped all sensors, before this version read it."""
    world_ = world(team, seen)
    team.publish(("a", "X", ZERO))
    assert world_.run_until_idle() == []
    with open_ledger(settings().ledger).write() as connection:
        connection.execute(sa.update(event).values(marker="10101.000000", event_marker="10101.000000"))
    team.publish(("b", "X", 7))
    (run,) = world_.run_until_idle()
    assert run.succeeded, run.error
    assert world_.run_until_idle() == []
    with open_ledger(settings().ledger).read() as connection:
        assert ZERO in {each.time for each in events.newest(connection, 10)}
