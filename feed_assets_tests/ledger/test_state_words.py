"""Explanations of windows that other windows make bad: they name the cause at any distance.

Also windows that stay unclosed.
"""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness, WindowState
from feed_assets.core.errors import IllegalTransition
from feed_assets.core.reports import INPUTS
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, log, quality
from feed_assets.ledger.states import backfills, count_reports, state_views, window_queries
from feed_assets.ledger.tables import change
from feed_assets_tests.ledger.quality_reports import ALL_DAY, DAY, HOUR, report_failed, window_fact, window_row
from feed_assets_tests.ledger.state_reports import FOO, HOUR_15, NOW, last_sequence, part, source

FIVE = WindowAddress(FOO, "", "5min", "2026-01-01-15:55")
FIVE_OF_EMEA = WindowAddress(FOO, "region=emea", "5min", "2026-01-01-15:55")
REST = [at for at in ALL_DAY if at not in HOUR_15]
EVE = [datetime(2025, 12, 31, hour, at, tzinfo=UTC) for hour in range(16, 24) for at in range(0, 60, 5)]
"""The first hours of the day in Singapore."""


def fill(ledger, region, starts):
    place, name = f"region={region}", f"{region} from {starts[0]}"
    count_reports.report(ledger, source(dict.fromkeys(starts, 10), sub_partition=place), NOW)
    count_reports.report(ledger, [part(name, dict.fromkeys(starts, 10), sub_partition=place)], NOW)


@pytest.fixture
def regions(ledger):
    """Return a ledger with hour 15 complete in two regions."""
    declared = Tracked.of(Completeness(), Regions({"apac": "Asia/Singapore", "emea": "UTC"}))
    window_queries.declare(ledger, {FOO: declared}, NOW)
    fill(ledger, "apac", HOUR_15)
    fill(ledger, "emea", HOUR_15)
    return ledger


def why(ledger, address):
    """Return the explanation that `state show` prints."""
    with ledger.read() as connection:
        (found,) = state_views.explained(connection, FOO, address.partition.key, 1)
    return found.why


def test_flag_from_a_larger_regional_window_names_it_up_to_the_whole(regions):
    fill(regions, "emea", REST)
    report_failed(regions, WindowAddress(FOO, "region=emea", "day", "2026-01-01"), "nulls", "half of them")
    said = "day 2026-01-01 in region=emea is invalid: nulls: half of them"
    assert window_fact(regions, HOUR).phrase == f"is complete with issue: {said}"
    assert [why(regions, at) for at in (HOUR, FIVE, FIVE_OF_EMEA)] == [said] * 3


def test_windows_inside_and_day_around_a_bad_hour_name_it(regions):
    """The day of the whole is made of its regions' days, not of its own hours: it is not open."""
    fill(regions, "emea", REST)
    fill(regions, "apac", EVE + REST)
    assert window_row(regions, DAY).state is WindowState.COMPLETE
    report_failed(regions)
    said = "hour 2026-01-01-15:00 is invalid: no_bots: many bots"
    assert [why(regions, at) for at in (FIVE_OF_EMEA, DAY)] == [said] * 2
    assert (window_row(regions, DAY).state, window_fact(regions, DAY).why) == (WindowState.COMPLETE_WITH_ISSUE, said)


def test_mark_of_a_region_is_explained_for_the_whole(regions):
    apac = WindowAddress(FOO, "region=apac", "hour", "2026-01-01-15:00")
    window_queries.report_quality(regions, apac, INPUTS, quality.MARKED, "made of a bad one", "spread", NOW)
    said = "hour 2026-01-01-15:00 in region=apac is complete with issue: made of a bad one"
    assert (window_fact(regions, HOUR).why, why(regions, HOUR)) == (said, said)


def test_log_names_a_backfilled_hour_that_becomes_invalid(complete_hour):
    backfills.begin(complete_hour, HOUR, "again", "ada", NOW)
    backfills.finish(complete_hour, HOUR, "again", "ada", NOW)
    seen = last_sequence(complete_hour)
    report_failed(complete_hour)
    with complete_hour.read() as connection:
        found = connection.execute(sa.select(change).where(change.c.sequence > seen, change.c.kind == log.WINDOW)).all()
    below = {each.why for each in found if each.partition != HOUR.partition.key}
    assert (len(found), below) == (19, {"hour 2026-01-01-15:00 is invalid: no_bots: many bots"})


@pytest.mark.parametrize("closed", [HOUR, DAY])
def test_window_in_backfill_cannot_be_closed(complete_day, closed):
    backfills.begin(complete_day, HOUR, "again", "ada", NOW)
    with pytest.raises(IllegalTransition, match=r"foo hour@2026-01-01-15:00 is being backfilled, .*End it first"):
        closures.close(complete_day, [closed.partition], "it is final", "ada", NOW)
    other = WindowAddress(FOO, "", "hour", "2026-01-01-16:00")
    assert closures.close(complete_day, [other.partition], "it is final", "ada", NOW) == 1
    backfills.finish(complete_day, HOUR, "again", "ada", NOW)
    assert closures.close(complete_day, [closed.partition], "it is final", "ada", NOW) == 1
