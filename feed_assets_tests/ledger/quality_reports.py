"""Failed checks of windows, and facts about the windows."""

from datetime import UTC, datetime

from feed_assets.core.inputs import WindowInput
from feed_assets.core.spans import Span
from feed_assets.core.windows import WindowAddress, window_at
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.window_facts import known_windows
from feed_assets_tests.ledger.state_reports import FOO, NOW

HOUR = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
DAY = WindowAddress(FOO, "", "day", "2026-01-01")
ALL_DAY = [datetime(2026, 1, 1, hour, minute, tzinfo=UTC) for hour in range(24) for minute in range(0, 60, 5)]


def report_failed(ledger, address=HOUR, check="no_bots", reason="many bots"):
    return window_queries.report_quality(ledger, address, check, "failed", reason, "dq", NOW)


def window_row(ledger, address):
    with ledger.read() as connection:
        return window_queries.stored_windows(connection, [address])[address]


def window_fact(ledger, address):
    window = window_at(address.grain, address.key, "UTC")
    needed = WindowInput(Span(address.dataset, address.sub_partition, window.start, window.end, (window,)))
    with ledger.read() as connection:
        return known_windows(connection, [needed])[address.partition]
