"""Reports become windows, and windows become larger ones: exactly the article's transitions, in one log."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.windows import WindowAddress, address_of
from feed_assets.ledger.states import count_reports, window_queries
from feed_assets.ledger.states.watermarks import Watermarks, watermarks
from feed_assets.ledger.tables import change
from feed_assets_tests.ledger.state_reports import FOO, HOUR_15, NOW, last_sequence, part, source, transitions

FOUR = datetime(2026, 1, 1, 16, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def marks(ledger, grain, sub_partition=""):
    with ledger.read() as connection:
        return watermarks(connection, [(FOO, sub_partition, grain)]).get((FOO, sub_partition, grain), Watermarks())


@pytest.fixture
def almost(ledger):
    """Return a ledger with hour 15 and the start of hour 16, except the article's slot from 15:58 to 16:08."""
    count_reports.report(ledger, source(dict.fromkeys([*HOUR_15, FOUR], 1234)), NOW)
    count_reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15[:-1], 1234))], NOW)
    return ledger


def test_slot_of_the_article_causes_its_four_transitions(almost):
    seen = last_sequence(almost)
    found = count_reports.report(
        almost, [part("s3://lake/foo/part-2", {HOUR_15[-1]: 1234, FOUR: 1234})], NOW, "ingestion"
    )
    assert found.transitions == 4
    assert transitions(almost, seen) == [
        ("hour@2026-01-01-15:00", "open", "complete"),
        ("10min@2026-01-01-15:50", "open", "complete"),
        ("5min@2026-01-01-15:55", "open", "complete"),
        ("5min@2026-01-01-16:00", "open", "complete"),
    ]
    assert marks(almost, "hour") == Watermarks(FOUR, FOUR)
    assert marks(almost, "5min") == Watermarks(FOUR + 5 * MINUTE, FOUR + 5 * MINUTE)


def test_correction_below_the_threshold_reopens_its_windows(almost):
    count_reports.report(almost, [part("part-2", {HOUR_15[-1]: 1234, FOUR: 1234})], NOW)
    seen = last_sequence(almost)
    count_reports.report(almost, [part("part-2", {HOUR_15[-1]: 1200, FOUR: 1234}, version=1)], NOW)
    assert transitions(almost, seen) == [
        ("hour@2026-01-01-15:00", "complete", "open"),
        ("10min@2026-01-01-15:50", "complete", "open"),
        ("5min@2026-01-01-15:55", "complete", "open"),
    ]
    assert marks(almost, "5min") == Watermarks(HOUR_15[-1], FOUR + 5 * MINUTE)


def test_repeated_and_older_reports_change_nothing(almost):
    new = part("part-2", {HOUR_15[-1]: 1234, FOUR: 1234}, version=2)
    count_reports.report(almost, [new], NOW)
    seen = last_sequence(almost)
    found = count_reports.report(almost, [new, part("part-2", {FOUR: 1}, version=1)], NOW)
    assert (found.accepted, found.known, found.rejected) == (0, 2, [])
    assert last_sequence(almost) == seen


def test_count_report_of_an_equal_version_with_other_content_is_refused(almost):
    found = count_reports.report(almost, [part("part-1", {FOUR: 1})], NOW)
    assert [each.reason for each in found.rejected] == [
        "part 'part-1' was reported with the same version 0 and other content: "
        "expected a greater version for a correction."
    ]


def test_window_that_no_report_names_is_removed(ledger):
    count_reports.report(ledger, [part("part-1", {FOUR: 5})], NOW)
    count_reports.report(ledger, [part("part-1", {}, version=1)], NOW)
    address = WindowAddress(FOO, "", "5min", "2026-01-01-16:00")
    with ledger.read() as connection:
        assert window_queries.stored_windows(connection, [address]) == {}


def test_window_accepted_by_an_operator_becomes_complete(almost):
    address = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    seen = last_sequence(almost)
    assert window_queries.accept(almost, address, "the broker lost them", "ada", NOW)
    assert transitions(almost, seen) == [("hour@2026-01-01-15:00", "open", "complete")]
    with almost.read() as connection:
        found = connection.execute(sa.select(change).order_by(change.c.sequence.desc())).first()
    assert (found.why, found.who) == ("accepted by ada: the broker lost them", "ada")
    assert not window_queries.accept(almost, address, "again", "ada", NOW)


def test_a_failed_check_makes_a_window_invalid_and_its_day_waits(almost):
    count_reports.report(almost, [part("part-2", {HOUR_15[-1]: 1234, FOUR: 1234})], NOW)
    address = WindowAddress(FOO, "", "10min", "2026-01-01-15:50")
    seen = last_sequence(almost)
    assert window_queries.report_quality(almost, address, "no_bots", "failed", "many bots", "dq", NOW).transitions == 4
    assert transitions(almost, seen) == [
        ("hour@2026-01-01-15:00", "complete", "open"),
        ("10min@2026-01-01-15:50", "complete", "invalid"),
        ("5min@2026-01-01-15:50", "complete", "complete_with_issue"),
        ("5min@2026-01-01-15:55", "complete", "complete_with_issue"),
    ]
    window_queries.report_quality(almost, address, "no_bots", "passed", None, "dq", NOW)
    assert transitions(almost, seen)[4:] == [
        ("hour@2026-01-01-15:00", "open", "complete"),
        ("10min@2026-01-01-15:50", "invalid", "complete"),
        ("5min@2026-01-01-15:50", "complete_with_issue", "complete"),
        ("5min@2026-01-01-15:55", "complete_with_issue", "complete"),
    ]


def test_failed_check_of_an_incomplete_window_waits_for_its_data(almost):
    """A consumer that ignores quality reads what is invalid, because all of its data are there."""
    address = WindowAddress(FOO, "", "5min", "2026-01-01-16:00")
    count_reports.report(almost, [part("part-3", {FOUR: 10})], NOW)
    seen = last_sequence(almost)
    assert not window_queries.report_quality(almost, address, "no_bots", "failed", "many bots", "dq", NOW).transitions
    assert transitions(almost, seen) == []
    count_reports.report(almost, [part("part-3", {FOUR: 1234}, version=1)], NOW)
    assert ("5min@2026-01-01-16:00", "open", "invalid") in transitions(almost, seen)
    count_reports.report(almost, [part("part-3", {FOUR: 10}, version=2)], NOW)
    assert transitions(almost, seen)[-1] == ("5min@2026-01-01-16:00", "invalid", "open")


def test_window_address_is_read_back_from_its_log_key():
    address = WindowAddress(FOO, "region=apac/country=sg", "hour", "2026-01-01-15:00")
    assert address_of(address.partition) == address
