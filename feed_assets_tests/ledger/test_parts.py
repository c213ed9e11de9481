"""The parts of a window, by the grain that is declared now, and with many gaps and overlaps."""

from feed_assets.core.completeness import Completeness
from feed_assets.core.sub_partitions import Tracked
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.parts import Twice, parts
from feed_assets_tests.ledger.offset_reports import W, part, said, source
from feed_assets_tests.ledger.state_reports import FOO, NOW


def shown(ledger, key: str, limit: int = 100):
    with ledger.read() as connection:
        (found,) = parts(connection, FOO, key, limit)
    return found


def test_larger_window_shows_parts_reported_by_the_smaller_grain(sqlite_ledger):
    said(
        sqlite_ledger,
        source(W[:2], records=100),
        part("a", W[1:2], {"0": [0, 99]}),
        part("b", {W[0]: 50, W[1]: 100}, {"0": [150, 249]}),
        part("c", W[:1], {"0": [190, 200]}),
    )
    window_queries.declare(sqlite_ledger, {FOO: Tracked.of(Completeness(grains=("10min", "hour")))}, NOW)
    found = shown(sqlite_ledger, "10min@2026-01-01-15:00")
    assert [(each.part, each.records) for each in found.parts if not each.tier] == [("a", 100), ("b", 150), ("c", 100)]
    assert found.twice == [Twice("", "0", 190, 200, ("b", "c"))]


def test_gap_shows_its_neighbours_and_overlap_shows_both_parts(sqlite_ledger):
    """With 2,000 of each, the work grows with the number of gaps and overlaps alone."""
    count = 2000
    gaps = [part(f"g{n:04d}", W[:1], {"0": [2 * n, 2 * n]}) for n in range(count)]
    twice = [part(f"t{n:04d}", W[:1], {"1": [10 * n, 10 * n + 10]}) for n in range(count)]
    said(sqlite_ledger, source(W[:1], records=100 * count), *gaps, *twice)
    found = shown(sqlite_ledger, "5min@2026-01-01-15:00")
    lacking = [each for each in found.missing if each.partition == "0"]
    assert [(each.first, each.after, each.before) for each in lacking] == [
        (2 * n + 1, f"g{n:04d}", f"g{n + 1:04d}") for n in range(count - 1)
    ]
    assert found.twice == [
        Twice("", "1", 10 * n + 10, 10 * n + 10, (f"t{n:04d}", f"t{n + 1:04d}")) for n in range(count - 1)
    ]
