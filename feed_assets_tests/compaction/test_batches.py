"""The job `compact` on batches: a row is rewritten only as often as its range doubles, and nothing below runs."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from feed_assets import Compact
from feed_assets.compaction.batches import compact, groups_of
from feed_assets.core.errors import UpdateChanged
from feed_assets.feeds import read, write
from feed_assets.ledger import batch_sets, compacted
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets.testing import PlainMaker
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.appended_world import OUTPUT, SALES, compacted_rows, held, take_back, totals, world
from feed_assets_tests.support.versioned_shop import Shop

KEYS = "abcdefgh"


@pytest.fixture
def shop(home, tmp_path):
    yield Shop(tmp_path)
    sum_projects.opened.close()


def services(during=lambda: None):
    def give(task):
        during()
        return compacted_rows(task)

    return Services.of(settings(), lambda: PlainMaker(give))


def pins():
    with open_ledger(settings().ledger).read() as connection:
        return batch_sets.pins_of(connection, [OUTPUT])[OUTPUT]


def rewritten() -> int:
    """Return how many rows all compactions have written."""
    query = sa.select(sa.func.sum(update.c.records)).where(update.c.origin == "compacted")
    with open_ledger(settings().ledger).read() as connection:
        return connection.execute(query).scalar() or 0


def test_a_row_is_rewritten_as_often_as_its_range_doubles(shop):
    by_job = world(shop, told := [], compact=Compact(files=2, when="published"))
    for key in KEYS:
        shop.write(key)
        ran = by_job.run_until_idle()
        assert [run.assets for run in ran if run.assets] == [("sales/lines",), ("sales/totals",)]
        assert sorted(each for keys in held().values() for each in keys) == sorted(KEYS[: KEYS.index(key) + 1])
    assert totals(by_job) == ",".join(KEYS)
    assert len(told) == len(KEYS)
    assert held() == {"b00000001-00000008": [*KEYS]}
    assert rewritten() == 2 + 4 + 2 + 8, "the rows of each range that was made"


def test_late_data_weigh_a_range_as_its_batches(shop):
    by_job = world(shop, [])
    for key in "abc":
        shop.write(key)
        by_job.run_until_idle()
    before = pins()
    compact(services(), OUTPUT, 2, apply=True)
    [after] = pins()
    assert (after.size, after.files) == (sum(each.size for each in before), sum(each.files for each in before))


def test_a_batch_that_is_invalidated_meanwhile_does_not_get_into_the_range(shop):
    by_job = world(shop, [])
    for key in "abc":
        shop.write(key)
        by_job.run_until_idle()
    with pytest.raises(UpdateChanged, match="Nothing is published"):
        compact(services(lambda: take_back(by_job, "b00000002")), OUTPUT, 2, apply=True)
    assert held() == {"b00000001": ["a"], "b00000003": ["c"]}


def test_only_partitions_with_new_batches_are_looked_at(shop):
    by_job = world(shop, [])
    ledger = open_ledger(settings().ledger)

    def new(least):
        with ledger.read() as connection:
            return [each.key for each in compacted.with_new_batches(connection, SALES, least)]

    for key in "abc":
        shop.write(key)
        by_job.run_until_idle()
    assert (new(3), new(4)) == ([OUTPUT.key], [])
    compact(services(), OUTPUT, 2, apply=True)
    assert new(1) == []
    shop.write("d")
    by_job.run_until_idle()
    assert (new(1), new(2)) == ([OUTPUT.key], [])
    with ledger.read() as connection:
        assert groups_of(connection, OUTPUT, 2, by_size=True) == [], "the range is larger than the new batch"
        assert len(groups_of(connection, OUTPUT, 2, by_size=False)) == 1


def test_a_batch_written_by_hand_stays_between_two_ranges(shop):
    by_job = world(shop, [])
    for key in "abcde":
        shop.write(key)
        by_job.run_until_idle()
    at, board = OUTPUT.batch("b00000003"), services().board
    content = board.get(read.latest(board, at).update.files[0].key)
    write.publish(board, at, {"part-0": content}, datetime.now(UTC))
    sync(board, open_ledger(settings().ledger), at, datetime.now(UTC))
    compact(services(), OUTPUT, 2, apply=True)
    assert held() == {"b00000001-00000002": ["a", "b"], "b00000003": ["c"], "b00000004-00000005": ["d", "e"]}
