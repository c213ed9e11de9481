"""Producers that use up time or memory of others, by what they may write below their own feeds."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa
import pytest

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import metadata_of
from feed_assets.feeds.parquet_columns import _names
from feed_assets.feeds.walk_limit import MOST_LISTINGS
from feed_assets.feeds.write import publish
from feed_assets.ledger import alerts, updates
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.ticks import orphan_sensor
from feed_assets.reading.row_stream import opened_stream, plain_schema, rows_by_batch
from feed_assets.runs.discover import discover, discover_all
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.spark.parquet_files import _difference
from feed_assets_tests.support.build_lake import NOW
from feed_assets_tests.support.counted_blackboards import with_operations
from feed_assets_tests.support.harness_queries import evaluate_orphans
from feed_assets_tests.support.parquet_lake import parquet
from feed_assets_tests.support.sum_projects import short

HOSTILE, GOOD = Feed.parse("a/hostile/v1.0"), Feed.parse("b/good/v1.0")
DAY = "2026-11-01"
IN_TIME = 50
"""Number of requests for which a discovery has time."""


@pytest.fixture(params=["memory", "disk"])
def services(request, ledger, tmp_path) -> Services:
    url = "memory://" if request.param == "memory" else (tmp_path / "board").as_uri()
    return Services(Blackboard.open(url, create=True), ledger, lambda: None, lambda: NOW)


def make_folders(board: Blackboard, path: str, count: int) -> None:
    for number in range(count):
        board.put(f"{path}/s{number:06}/x", b"")


def drop(services: Services, key: str, feed: Feed = HOSTILE) -> Partition:
    return publish(services.board, Partition(feed, key), {"a": b"1"}, NOW).partition


def known(services: Services, feed: Feed = HOSTILE) -> list[str]:
    with services.ledger.read() as connection:
        return [*updates.published_keys(connection, feed)]


def tick(
    services: Services, feeds: Sequence[Feed] = (HOSTILE, GOOD), appendable: Sequence[Feed] = ()
) -> tuple[dict[Feed, FeedAssetsError], int]:
    """Discover until the time of so many requests is over. Return the failed feeds and the number of requests."""
    board, operations = with_operations(services.board)
    discovered = discover(replace(services, board=board), feeds, lambda: len(operations) > IN_TIME, {*appendable})
    return discovered.failed, len(operations)


def test_folders_without_updates_take_no_time_of_other_feeds_and_are_reported(services):
    make_folders(services.board, f"{HOSTILE}/{DAY}", MOST_LISTINGS + 200)
    drop(services, f"{DAY}/z")
    drop(services, "2026-10-31")
    drop(services, DAY, GOOD)
    ticks = [tick(services) for _ in range(60)]
    assert known(services, GOOD) == [DAY]
    assert max(requests for _, requests in ticks) < 2 * IN_TIME
    (said, *_) = [str(failed[HOSTILE]) for failed, _ in ticks if failed]
    assert said.startswith(f"{HOSTILE}: more than 1,000 folders in a row, up to {DAY}/s00")
    assert sorted(known(services)) == ["2026-10-31", f"{DAY}/z"], "what is behind them is found late"


def test_a_discovery_without_a_time_limit_reports_such_folders_and_goes_on_after_them(services):
    make_folders(services.board, f"{HOSTILE}/{DAY}", MOST_LISTINGS + 200)
    drop(services, f"{DAY}/z")
    drop(services, "2026-10-31")
    first, second = (discover_all(services, [HOSTILE]) for _ in range(2))
    assert ([*first.failed], [*second.failed]) == ([HOSTILE], [])
    assert sorted(known(services)) == ["2026-10-31", f"{DAY}/z"]


def test_a_name_of_many_partitions_is_discovered_in_several_ticks_from_where_each_stopped(services):
    keys = [drop(services, f"{DAY}/p{number:03}").key for number in range(100)]
    services.board.put(f"{HOSTILE}/{DAY}/x", b"beside partitions, so that the name is not judged by one listing")
    counts = [(tick(services, [HOSTILE])[0], len(known(services))) for _ in range(20)]
    assert sorted(known(services)) == keys
    assert 0 < counts[0][1] < 100
    assert not any(failed for failed, _ in counts)


def test_batches_that_are_gone_are_noticed_although_each_tick_reads_a_part_of_them(services):
    batches = [drop(services, f"{DAY}/{number:03}") for number in range(60)]
    for _ in range(20):
        tick(services, [HOSTILE], [HOSTILE])
    assert len(held(services)) == 60
    for number in (0, 31, 59):
        services.board.sweep(batches[number].path)
    for _ in range(40):
        tick(services, [HOSTILE], [HOSTILE])
    assert len(held(services)) == 57


def held(services: Services) -> list[str]:
    day = Partition(HOSTILE, DAY)
    with services.ledger.read() as connection:
        return [pin.partition.name for pin in pins_of(connection, [day])[day]]


@pytest.mark.usefixtures("home")
def test_a_search_for_undeclared_feeds_continues_where_it_stopped_and_keeps_other_alerts(monkeypatch):
    """Find feeds before and after the folders of a hostile producer, in several searches of limited time."""
    world = short()
    for feed in ("a/typo/v1.0", "z/typo/v1.0"):
        world.drop(feed, DAY, b"")
    names = {f"unknown:{feed}/typo/v1.0" for feed in "az"}
    make_folders(world.board, "h/hostile", MOST_LISTINGS + 200)
    found = [searched(world, hours=2 * number) for number in range(1, 4)]
    assert found == [{"unknown:a/typo/v1.0"}, names, names]
    clock = count()  # The time is over at once.
    monkeypatch.setattr(orphan_sensor, "monotonic", lambda: 100 * next(clock))
    assert all(searched(world, days=number) == names for number in range(1, 4))


def searched(world, **later: float) -> set[str]:
    """Evaluate the sensor `orphans` at a later time. Return the names of the open alerts."""
    evaluate_orphans(world, **later)
    with open_ledger(settings().ledger).read() as connection:
        return {each.name for each in alerts.open_alerts(connection)}


def with_one_text(*, in_struct: bool) -> pa.Table:
    """Return 200 MB of rows with one long text, which a file stores once."""
    rows = 2_000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 100_000]))
    values = pa.StructArray.from_arrays([text.cast(pa.string())], ["t"]) if in_struct else text
    return pa.table({"n": range(rows), "t": values, "short": map(str, range(rows))})


@pytest.mark.parametrize("in_struct", [False, True])
def test_a_text_that_a_file_stores_once_is_read_with_bounded_memory(in_struct):
    rows = with_one_text(in_struct=in_struct)
    board = Blackboard.open("memory://")
    board.put("a/p.parquet", data := parquet(rows, store_schema=False))
    (file,) = board.files("a")
    assert len(data) < 200_000
    with opened_stream(board, file, metadata_of(board, file)) as opened:
        batches = [(batch.nbytes >> 20, batch.num_rows, batch.schema) for batch in rows_by_batch(opened)]
        assert all(schema == plain_schema(opened) for *_, schema in batches)
    assert max(size for size, *_ in batches) < 40
    assert sum(count for _, count, _ in batches) == rows.num_rows


def test_the_error_of_a_file_with_very_many_other_columns_is_short():
    stored, declared = {f"c{number}": "int" for number in range(1_000)}, {"id": "int"}
    assert _difference(stored, declared).endswith("; and 998 more")


def test_names_that_differ_by_case_are_grouped_once():
    """Take a number of names for which quadratic time would be minutes."""
    fields = [pa.field(f"{letter}{number}", pa.int32()) for number in range(50_000) for letter in "aA"]
    assert len([*_names(fields, pa)]) == 50_000
