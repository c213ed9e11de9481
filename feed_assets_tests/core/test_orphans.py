"""Outcomes of claimed ids, as a table."""

from datetime import UTC, datetime, timedelta
from itertools import product

from feed_assets.core.orphans import ORPHANED_AFTER, RULES, AttemptStatus, Contents, Treatment, is_old, must_look
from feed_assets_tests.support.each_case import each_case

ID, MOMENT = "20191125.060000", datetime(2019, 11, 25, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)

NOTHING, PARTS, MISCOUNTED, VALID = Contents
UNKNOWN, OPEN, GIVEN_UP, DONE = AttemptStatus


@each_case(
    ("status", "contents", "expected"),
    [
        *((OPEN, contents, Treatment.KEEP) for contents in Contents),
        *((DONE, contents, Treatment.FORGET) for contents in Contents),
        (GIVEN_UP, NOTHING, Treatment.FORGET),
        (GIVEN_UP, PARTS, Treatment.SWEEP),
        (GIVEN_UP, MISCOUNTED, Treatment.SWEEP),
        (GIVEN_UP, VALID, Treatment.FINISH),
        (UNKNOWN, NOTHING, Treatment.FORGET),
        (UNKNOWN, PARTS, Treatment.ASK),
        (UNKNOWN, MISCOUNTED, Treatment.FORGET),
        (UNKNOWN, VALID, Treatment.FORGET),
    ],
)
def test_each_claimed_id_has_the_outcome_of_the_table(status, contents, expected):
    assert RULES[status][contents] is expected


def test_every_case_has_a_fate():
    assert {(status, contents) for status in RULES for contents in RULES[status]} == {*product(AttemptStatus, Contents)}


@each_case(("status", "looks"), [(UNKNOWN, True), (GIVEN_UP, True), (OPEN, False), (DONE, False)])
def test_the_blackboard_is_asked_only_where_the_ledger_cannot_tell(status, looks):
    assert must_look(status) is looks


@each_case(
    ("update_id", "touched", "now", "old"),
    [
        (ID, None, MOMENT + ORPHANED_AFTER - SECOND, False),
        (ID, None, MOMENT + ORPHANED_AFTER, True),
        (ID, MOMENT + SECOND, MOMENT + ORPHANED_AFTER, False),
        (ID, MOMENT + SECOND, MOMENT + ORPHANED_AFTER + SECOND, True),
        (ID, MOMENT - SECOND, MOMENT + ORPHANED_AFTER, True),
        ("part-1", None, MOMENT + ORPHANED_AFTER, False),
        ("20180231.000000", None, MOMENT + ORPHANED_AFTER, False),
    ],
)
def test_a_claim_is_old_a_day_after_its_id_and_its_last_change(update_id, touched, now, old):
    assert is_old(update_id, now, touched) is old
    assert is_old(update_id, now, None, touched, MOMENT - SECOND) is old
