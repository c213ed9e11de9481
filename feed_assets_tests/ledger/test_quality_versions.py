"""Findings of checks on a window: the greatest version counts, in whatever order the reports arrive."""

import json
from datetime import UTC, datetime
from itertools import permutations

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import quality, waivers
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.tables import event_reject
from feed_assets.sources.report_reader import record

FOO = Feed.parse("foo")
HOUR = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def found(state, reason=None, **version):
    at = {"kind": "quality", "dataset": "foo", "grain": "hour", "start": "2026-01-01T15:00:00Z", "check": "no_bots"}
    return json.dumps({**at, "state": state, "reason": reason, **version})


def record_all(ledger, *lines):
    """Report each line on its own. Return the outcome of each."""
    return [
        (each.accepted, each.known, len(each.rejected)) for line in lines for each in record(ledger, [line], by="dq")
    ]


def state(ledger):
    with ledger.read() as connection:
        row = window_queries.stored_windows(connection, [HOUR]).get(HOUR)
        (check,) = quality.check_states(connection, [HOUR.partition]).values()
    return row and row.state.value, row and row.issue, check.state, check.reason


def forget(ledger):
    with ledger.write() as connection:
        connection.execute(sa.text("DELETE FROM quality"))
        connection.execute(sa.text('DELETE FROM "window"'))


THREE = found("passed", version=3), found("failed", "bots", version=2), found("warned", "few", version=1)
MOMENTS = tuple(
    found(said, version=f"2026-01-01T15:0{minute}:00Z")
    for minute, said in ((2, "failed"), (1, "passed"), (0, "warned"))
)


@pytest.mark.parametrize("lines", [THREE, MOMENTS], ids=["numbers", "moments"])
def test_any_order_of_quality_versions_gives_one_state(ledger, lines):
    record_all(ledger, lines[0])
    expected = state(ledger)
    for order in permutations(lines):
        forget(ledger)
        record_all(ledger, *order, *order)
        assert state(ledger) == expected


def test_lower_or_repeated_quality_version_is_already_known(ledger):
    lines = found("failed", "bots", version=2), found("passed", version=1), found("failed", "bots", version=2)
    assert record_all(ledger, *lines) == [(1, 0, 0), (0, 1, 0), (0, 1, 0)]


def test_quality_report_of_an_equal_version_with_other_content_is_refused(ledger):
    for other in (found("passed", version=2), found("failed", "many bots", version=2)):
        forget(ledger)
        assert record_all(ledger, found("failed", "bots", version=2), other) == [(1, 0, 0), (0, 0, 1)]
        assert state(ledger)[1:] == ("no_bots: bots", "failed", "bots")
        with ledger.read() as connection:
            kept = dict(connection.execute(sa.select(event_reject.c.raw, event_reject.c.reason)).all())
        assert "no_bots was reported with the same version 2 and other content: expected a greater" in kept[other]


def test_quality_report_without_a_version_applies_and_keeps_the_version(ledger):
    lines = found("failed", version=5), found("passed"), found("warned", "few"), found("passed")
    assert record_all(ledger, *lines) == [(1, 0, 0)] * 4
    assert state(ledger)[2] == "passed"
    assert record_all(ledger, found("failed", version=4), found("failed", version=5)) == [(0, 1, 0)] * 2
    assert state(ledger)[2] == "passed"
    assert record_all(ledger, found("failed", version=6)) == [(1, 0, 0)]
    assert state(ledger)[2] == "failed"


def test_waiver_ends_with_a_new_failure_and_not_with_a_repeated_one(ledger):
    def is_waived(*lines):
        record_all(ledger, *lines)
        with ledger.read() as connection:
            return bool(waivers.waived(connection, [HOUR.partition]))

    once, anew = found("failed", "bots"), found("failed", "bots", version=9)
    record_all(ledger, once)
    for _ in range(2):
        waivers.waive(ledger, HOUR.partition, "no_bots: bots", "known", "ann", NOW)
        assert is_waived(once)
        assert not is_waived(anew)
        waivers.waive(ledger, HOUR.partition, "no_bots: bots", "known", "ann", NOW)
        assert is_waived(anew, once)
        anew = found("failed", "bots", version=10)


def test_audits_of_our_own_have_no_version(ledger):
    at = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24")
    with ledger.change() as connection:
        for said in (quality.FAILED, quality.PASSED):
            assert quality.report(connection, at, "unique", said, None, "run", NOW)
        assert quality.check_states(connection, [at])[at, "unique"].state == "passed"
