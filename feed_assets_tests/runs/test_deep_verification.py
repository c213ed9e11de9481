"""An update is read to the last byte, and compared with the version that its run published."""

import re
from datetime import UTC, datetime

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish
from feed_assets.ledger import updates
from feed_assets.runs.deep_verification import UNKNOWN, look_deep, published_of
from feed_assets.runs.services import Services
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.own_updates import of, publish_own, rewrite

NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
AT = Partition(Feed.parse("ads/total/v1.0"), "2019-11-24")
GOOD = damaged.parquet(damaged.numbers())


def no_spark():
    raise AssertionError("flat rows need no Spark")


@pytest.fixture
def services(ledger) -> Services:
    return Services(Blackboard.open("memory://"), ledger, no_spark, lambda: NOW)


def deep(services: Services, update_id: str, **options):
    published = published_of(services.ledger, AT, update_id)
    update = read.named(services.board, AT, update_id)
    return look_deep(services.board, update, published, maker=services.maker, **options)


def test_an_unchanged_update_has_no_damage(services):
    found = deep(services, publish_own(services, AT, NOW).id)
    assert (found.rows, found.is_compared, found.damage) == (20_000, True, "")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (damaged.with_flipped_bit(GOOD), "part-0.parquet is damaged: .*checksum"),
        (of([*range(19_999), 7]), "holds other rows than the published ones"),
        (GOOD[:100] + GOOD[101:], r"part-0.parquet has changed since .*: found 160,\d+ bytes, expected 160,\d+ bytes"),
    ],
)
def test_a_file_changed_in_place_is_named(services, data, says):
    update = publish_own(services, AT, NOW)
    rewrite(services, update, data)
    found = deep(services, update.id)
    assert re.search(says, found.damage), found.damage
    assert "part-0.parquet was written again in place since it was published." in found.damage
    assert found.damage.count("Invalidate the update") == 1


@each_case(("says", "data"), damaged.footers_that_end_processes().items())
def test_a_footer_that_would_end_the_process_is_damage(says, data):
    board = Blackboard.open("memory://")
    assert says in look_deep(board, publish(board, AT, {"part-0.parquet": data}, NOW)).damage


def test_a_row_count_that_differs_from_the_published_one_is_reported(services):
    """Record one row more than the files hold."""
    update = publish_own(services, AT, NOW, version="x" * 32)
    with services.ledger.change() as connection:
        connection.execute(updates.update.update().values(records=19_999))
    assert "holds 20,000 rows, and 19,999 were published" in deep(services, update.id).damage


def test_bits_that_no_write_has_changed_are_bit_rot(services):
    update = publish_own(services, AT, NOW, damaged.with_flipped_bit(GOOD))
    assert "The store reports no write since it was published, so stored bits have changed." in (
        deep(services, update.id).damage
    )


def test_an_update_of_others_is_read_and_not_compared(services):
    update = publish(services.board, AT, {"part.parquet": GOOD, "a.csv": b"id\n1\n"}, NOW)
    assert published_of(services.ledger, AT, update.id) == UNKNOWN
    found = deep(services, update.id)
    assert (found.files, found.rows, found.is_compared, found.damage) == (2, 20_000, False, "")


def test_nested_rows_are_measured_by_the_engine(services):
    """Without an engine, only count such rows."""

    class Engine:
        def measure(self, board, update):
            return 20_000, "of spark"

    update = publish_own(services, AT, NOW, columns=(("id", "array<int>"),), version="of spark")
    published = published_of(services.ledger, AT, update.id)
    assert not look_deep(services.board, update, published).is_compared
    found = look_deep(services.board, update, published, maker=Engine)
    assert (found.is_compared, found.damage) == (True, "")
    Engine.measure = lambda *_: (20_000, "another")
    assert "digest another, expected of spark" in look_deep(services.board, update, published, maker=Engine).damage


def test_rewritten_files_without_comparable_rows_are_reported(ledger, board):
    """Expect nothing on local disk, where a copy of a blackboard has other inodes and times."""
    services = Services(board, ledger, no_spark, lambda: NOW)
    update = publish_own(services, AT, NOW, columns=(("id", "array<int>"),))
    rewrite(services, update, of([*range(19_999), 7]))
    published = published_of(services.ledger, AT, update.id)
    found = look_deep(services.board, read.named(services.board, AT, update.id), published)
    expected = "" if services.board.url.startswith("file:") else "part-0.parquet was written again in place since"
    assert (expected in found.damage, bool(found.damage)) == (True, bool(expected))


def test_deep_verify_can_read_some_files_of_an_update_only(services):
    files = {"a.parquet": GOOD, "b.parquet": damaged.with_flipped_bit(GOOD)}
    update = publish(services.board, AT, files, NOW)
    assert look_deep(services.board, update, files=update.files[:1]).damage == ""
    assert "b.parquet is damaged" in look_deep(services.board, update, files=update.files[1:]).damage
