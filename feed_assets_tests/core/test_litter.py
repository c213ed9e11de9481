"""What becomes of a claimed id, as a table."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.litter import AGE, Fate, Found, Known, Standing, fate, is_old, must_look

ID, MOMENT = "20191125.060000", datetime(2019, 11, 25, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)

NOTHING, PARTS = Found(), Found(objects=2)
VALID, MISCOUNTED = Found(is_valid=True, has_manifest=True, objects=3), Found(has_manifest=True, objects=3)
UNKNOWN, OPEN, GIVEN_UP, DONE = (Known(standing) for standing in Standing)
RUNNING = tuple(Known(standing, is_running=True) for standing in Standing)


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        (DONE, NOTHING, Fate.FORGET),
        (DONE, PARTS, Fate.FORGET),
        (OPEN, PARTS, Fate.KEEP),
        (GIVEN_UP, NOTHING, Fate.SWEEP),
        (GIVEN_UP, PARTS, Fate.SWEEP),
        (GIVEN_UP, MISCOUNTED, Fate.SWEEP),
        (GIVEN_UP, VALID, Fate.FINISH),
        (UNKNOWN, NOTHING, Fate.FORGET),
        (UNKNOWN, PARTS, Fate.ASK),
        (UNKNOWN, MISCOUNTED, Fate.FORGET),
        (UNKNOWN, VALID, Fate.FORGET),
        *((known, found, Fate.KEEP) for known in RUNNING for found in (NOTHING, PARTS, MISCOUNTED, VALID)),
    ],
)
def test_fates(known, found, expected):
    assert fate(known, found) is expected


@pytest.mark.parametrize(("known", "looks"), [(UNKNOWN, True), (GIVEN_UP, True), (OPEN, False), (DONE, False)])
def test_the_blackboard_is_asked_only_where_the_ledger_cannot_tell(known, looks):
    assert must_look(known) is looks


def test_of_a_running_build_the_blackboard_is_never_asked():
    assert not any(map(must_look, RUNNING))


@pytest.mark.parametrize(
    ("update_id", "ended", "now", "old"),
    [
        (ID, None, MOMENT + AGE - SECOND, False),
        (ID, None, MOMENT + AGE, True),
        (ID, MOMENT + SECOND, MOMENT + AGE, False),
        (ID, MOMENT + SECOND, MOMENT + AGE + SECOND, True),
        (ID, MOMENT - SECOND, MOMENT + AGE, True),
        ("part-1", None, MOMENT + AGE, False),
        ("20180231.000000", None, MOMENT + AGE, False),
    ],
)
def test_old_is_a_day_after_the_id_and_a_day_after_the_end_of_its_run(update_id, ended, now, old):
    assert is_old(update_id, Known(ended=ended), now) is old
