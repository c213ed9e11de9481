"""Updates that a prune removes, and those that it keeps with the reason: one literal table."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.retention import Retention, StoredUpdate, judge, kept_from, parse_age
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2019, 12, 1, tzinfo=UTC)
DAY = timedelta(days=1)
LAST, MONTH = Retention(keep=1), Retention(older_than=30 * DAY)
U1, U2, U3, U4 = "20191001.000000", "20191025.000000", "20191120.000000", "20191130.120000"


def good(update_id, **known):
    return StoredUpdate(update_id, valid=True, **known)


def bad(update_id, **known):
    return StoredUpdate(update_id, valid=False, **known)


def goes(update_id, reason):
    return (update_id, True, reason, False)


def stays(update_id, reason):
    return (update_id, False, reason, False)


def saved(update_id, reason):
    return (update_id, False, reason, True)


THE_LAST = stays(U4, "it is the newest valid one")


@each_case(
    ("found", "policy", "expected"),
    [
        pytest.param([], LAST, [], id="nothing is there"),
        pytest.param([good(U4)], LAST, [THE_LAST], id="the newest valid one stays"),
        pytest.param(
            [good(U1)],
            Retention(older_than=timedelta()),
            [stays(U1, "it is the newest valid one")],
            id="the newest valid one stays however old it is",
        ),
        pytest.param(
            [good(U4), good(U3), good(U2), good(U1)],
            Retention(keep=2),
            [
                THE_LAST,
                stays(U3, "it is among the last 2 valid ones"),
                goes(U2, "newer valid updates: 2, the first of 2019-11-20 00:00 UTC"),
                goes(U1, "newer valid updates: 3, the first of 2019-10-25 00:00 UTC"),
            ],
            id="the last two stay",
        ),
        pytest.param(
            [bad(U4, written=NOW), bad(U3), good(U2), good(U1)],
            Retention(keep=2),
            [
                stays(U4, "there is no newer valid one"),
                stays(U3, "there is no newer valid one"),
                stays(U2, "it is the newest valid one"),
                stays(U1, "it is among the last 2 valid ones"),
            ],
            id="only valid ones are counted",
        ),
        pytest.param(
            [good(U4), good(U3), good(U2), good(U1)],
            MONTH,
            [
                THE_LAST,
                stays(U3, "it was replaced at 2019-11-30 12:00 UTC, less than 30 days, 0:00:00 ago"),
                stays(U2, "it was replaced at 2019-11-20 00:00 UTC, less than 30 days, 0:00:00 ago"),
                goes(U1, "newer valid updates: 3, the first of 2019-10-25 00:00 UTC"),
            ],
            id="what was the newest at some moment of the last 30 days stays, though it is older itself",
        ),
        pytest.param(
            [good(U4), good(U3), good(U2), good(U1)],
            Retention(keep=4, older_than=DAY),
            [
                THE_LAST,
                stays(U3, "it is among the last 4 valid ones"),
                stays(U2, "it is among the last 4 valid ones"),
                stays(U1, "it is among the last 4 valid ones"),
            ],
            id="of number and age either one keeps it: the number",
        ),
        pytest.param(
            [good(U4), good(U3), good(U2), good(U1)],
            Retention(keep=1, older_than=12 * DAY),
            [
                THE_LAST,
                stays(U3, "it was replaced at 2019-11-30 12:00 UTC, less than 12 days, 0:00:00 ago"),
                stays(U2, "it was replaced at 2019-11-20 00:00 UTC, less than 12 days, 0:00:00 ago"),
                goes(U1, "newer valid updates: 3, the first of 2019-10-25 00:00 UTC"),
            ],
            id="of number and age either one keeps it: the age",
        ),
        pytest.param(
            [good(U3), good(U2)],
            Retention(older_than=11 * DAY),
            [
                stays(U3, "it is the newest valid one"),
                goes(U2, "newer valid updates: 1, the first of 2019-11-20 00:00 UTC"),
            ],
            id="the age has been reached to the second",
        ),
        pytest.param(
            [good("20300101.000000"), good(U4)],
            Retention(older_than=timedelta()),
            [
                stays("20300101.000000", "it is the newest valid one"),
                stays(U4, "it was replaced at 2030-01-01 00:00 UTC, less than 0:00:00 ago"),
            ],
            id="what an id ahead of the clock has replaced is young",
        ),
        pytest.param(
            [good(U4), good(U3, reader="r1"), good(U2)],
            LAST,
            [
                THE_LAST,
                saved(U3, "run r1 reads it"),
                goes(U2, "newer valid updates: 2, the first of 2019-11-20 00:00 UTC"),
            ],
            id="a run in progress reads it",
        ),
        pytest.param(
            [good(U4), bad(U1, writer="r1", written=NOW - 20 * DAY)],
            LAST,
            [THE_LAST, saved(U1, "run r1 writes it, or was killed and is not finished yet")],
            id="a run has claimed it, however long ago",
        ),
        pytest.param(
            [good(U4), bad(U3, written=NOW - DAY + timedelta(seconds=1))],
            LAST,
            [
                THE_LAST,
                saved(
                    U3, "it is not valid and may be unfinished: last touched at 2019-11-30 00:00 UTC, within 24 hours"
                ),
            ],
            id="somebody wrote to it within 24 hours, however old its id",
        ),
        pytest.param(
            [good("20191130.235959"), bad(U4)],
            LAST,
            [
                stays("20191130.235959", "it is the newest valid one"),
                saved(
                    U4, "it is not valid and may be unfinished: last touched at 2019-11-30 12:00 UTC, within 24 hours"
                ),
            ],
            id="its id is younger than 24 hours",
        ),
        pytest.param(
            [good(U4), bad(U3, written=NOW - DAY)],
            LAST,
            [THE_LAST, goes(U3, "it is not valid; newer valid updates: 1, the first of 2019-11-30 12:00 UTC")],
            id="nobody has written to it for 24 hours",
        ),
        pytest.param(
            [good(U4), bad(U3), good(U2)],
            Retention(keep=2),
            [THE_LAST, stays(U3, "it is among the last 2 valid ones"), stays(U2, "it is among the last 2 valid ones")],
            id="what was invalidated is kept as long as its neighbours, to be taken back",
        ),
        pytest.param(
            [good(U4), bad(U3, problem="a key with a line break")],
            LAST,
            [THE_LAST, saved(U3, "it cannot be listed: a key with a line break")],
            id="it cannot be listed, and so not be removed",
        ),
        pytest.param(
            [good(U4), bad(U3, given_up=True, written=NOW), good(U2, given_up=True)],
            Retention(keep=9),
            [
                THE_LAST,
                goes(U3, "an earlier prune did not finish with it"),
                goes(U2, "an earlier prune did not finish with it"),
            ],
            id="what an earlier prune began is finished, whatever the policy says now",
        ),
        pytest.param(
            [bad(U4), good(U3, given_up=True)],
            LAST,
            [stays(U4, "there is no newer valid one"), stays(U3, "it is the newest valid one")],
            id="an earlier prune had begun with it, but it is the newest valid one again",
        ),
    ],
)
def test_each_update_goes_or_stays_for_a_reason(found, policy, expected):
    judged = judge(reversed(found), policy, NOW)
    assert [(each.id, each.goes, each.reason, each.surprising) for each in judged] == expected


@each_case(
    ("found", "going", "kept"),
    [
        ([good(U1), good(U2), good(U3)], [U1], U2),
        ([good(U1), good(U2), good(U3)], [U1, U2], U3),
        ([good(U1), good(U2), good(U3)], [U2], U3),
        ([good(U1), bad(U2), good(U3)], [U1], U3),
        ([good(U1), bad(U2), good(U3)], [U2], None),
        ([good(U1)], [], None),
    ],
)
def test_history_is_whole_from_the_first_valid_update_after_the_last_one_that_goes(found, going, kept):
    assert kept_from(found, going) == kept


@each_case("values", [{}, {"keep": 0}, {"keep": -1}, {"older_than": -DAY}])
def test_a_retention_that_would_keep_nothing_or_everything_is_refused(values):
    with pytest.raises(InvalidDefinition, match="Retention"):
        Retention(**values)


@each_case(
    ("text", "age"),
    [("30d", 30 * DAY), ("2w", 14 * DAY), ("12h", DAY / 2), ("90m", timedelta(minutes=90)), ("0d", timedelta())],
)
def test_an_age_is_a_number_and_a_unit(text, age):
    assert parse_age(text) == age


@each_case("text", ["", "30", "d", "-1d", "1.5d", "30D", "30 d", "1d12h", "٣d", "9999999d"])
def test_invalid_ages_are_refused(text):
    with pytest.raises(InvalidDefinition, match="is not an age: expected a number and a unit"):
        parse_age(text)
