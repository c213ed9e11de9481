"""A waiver holds for the problem that it was given for: later changes in the log end it, or leave it."""

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log, quality, waivers
from feed_assets.ledger.log import Change
from feed_assets_tests.support.ledger_records import NOW

AT, BESIDE = (Partition(Feed.parse("web/foo"), f"hour@2026-01-02-{hour}:00") for hour in (15, 16))
FIRST = (log.UPDATE, None, log.PUBLISHED)


def tell(ledger, kind, before, after, at=AT):
    with ledger.change() as connection:
        log.append(connection, [Change(at, kind, "it", NOW, before, after, "why", "dq")])


def is_waived(ledger, at=AT):
    with ledger.read() as connection:
        return at in waivers.waived(connection, [at])


@pytest.mark.parametrize(
    ("earlier", "since", "is_over"),
    [
        ([], (log.QUALITY, quality.PASSED, quality.FAILED), True),
        ([], (log.QUALITY, quality.FAILED, quality.FAILED), True),
        ([], (log.QUALITY, quality.FAILED, quality.STALE), True),
        ([], (log.QUALITY, None, quality.MARKED), True),
        ([], (log.QUALITY, quality.PASSED, quality.MARKED), True),
        ([], (log.QUALITY, quality.MARKED, quality.FAILED), True),
        ([], (log.QUALITY, quality.MARKED, quality.MARKED), False),
        ([], (log.QUALITY, quality.FAILED, quality.PASSED), False),
        ([], (log.QUALITY, quality.PASSED, quality.WARNED), False),
        ([], (log.WINDOW, "invalid", "complete"), True),
        ([], (log.WINDOW, "invalid", "backfilling"), True),
        ([], FIRST, False),
        ([FIRST], (log.UPDATE, None, log.PUBLISHED), True),
        ([FIRST], (log.EVENT, None, "2"), True),
        ([FIRST], (log.UPDATE, log.PUBLISHED, log.PRUNED), False),
        ([(log.UPDATE, log.PUBLISHED, log.PRUNED)], FIRST, False),
        ([FIRST], (log.RUN, None, "running"), False),
    ],
)
def test_a_waiver_ends_with_the_problem_that_it_was_given_for(ledger, earlier, since, is_over):
    for each in earlier:
        tell(ledger, *each)
    waivers.waive(ledger, AT, "check it failed", "known", "ada", NOW)
    assert is_waived(ledger)
    tell(ledger, *since, at=BESIDE)
    assert is_waived(ledger), "that was another one"
    tell(ledger, *since)
    assert is_waived(ledger) is not is_over


def test_new_waiver_holds_for_a_new_problem(ledger):
    waivers.waive(ledger, AT, "check it failed", "known", "ada", NOW)
    tell(ledger, log.WINDOW, "invalid", "complete")
    tell(ledger, log.QUALITY, quality.PASSED, quality.FAILED)
    assert not is_waived(ledger)
    waivers.waive(ledger, AT, "check it failed", "known", "ada", NOW)
    assert is_waived(ledger)
