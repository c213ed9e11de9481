"""A batch of intake: recorded at once, and published once despite kills, without discovery."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import CLAIMS, invalidate
from feed_assets.intake.batch_publication import PUBLISHED, BatchContent, publish
from feed_assets.ledger import log, update_changes, update_counts, updates
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.runs.orphan_sweep import sweep
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync_batches
from feed_assets_tests.support.counted_blackboards import Counting

FEED = Feed.parse("partners/men/v1.0")
HOUR = Partition(FEED, "2026-01-01-15:00")
START = datetime(2026, 1, 1, 15, tzinfo=UTC)
NOW = START + timedelta(hours=2)
BATCH = BatchContent(HOUR.batch("r1-7"), {"events.json": b'{"a": 1}\n', "more.json": b'{"a": 2}\n'}, ((START, 2),))


class Killed(BaseException):
    """Stands for a kill within this process."""


def no_spark():
    raise AssertionError("intake needs no Spark")


def services_of(board: Blackboard, ledger, **changes) -> Services:
    return Services(board, ledger, no_spark, **{"now": lambda: NOW, **changes})


@pytest.fixture
def services(board, ledger) -> Services:
    """Return services on each kind of store."""
    return services_of(board, ledger)


@pytest.fixture
def quiet(ledger) -> Services:
    return services_of(Blackboard.open("memory://"), ledger)


def row(services: Services, batch: BatchContent = BATCH) -> updates.UpdateRow | None:
    with services.ledger.read() as connection:
        return updates.newest(connection, [batch.partition]).get(batch.partition)


def said(services: Services) -> list[tuple[str, str, str | None]]:
    with services.ledger.read() as connection:
        return [(each.kind, each.partition.key, each.after) for each in log.after(connection, 0, 10**9, 100, [FEED])]


def held(services: Services) -> list[str]:
    with services.ledger.read() as connection:
        return [pin.partition.name for pin in pins_of(connection, [HOUR])[HOUR]]


def windows(services: Services) -> str | None:
    with services.ledger.read() as connection:
        return update_counts.newest(connection, [BATCH.partition])[BATCH.partition][0]


def dies_at(services: Services, step: int) -> Services:
    """Return services of a process that is killed before the request with this number."""
    left = [step]

    def before() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    before_each = dict.fromkeys(("list", "children", "get", "put", "create", "delete"), before)
    return replace(services, board=Counting.around(services.board, before_each).board)


def test_the_ledger_knows_a_batch_and_its_counts_as_soon_as_it_is_published(services):
    update = publish(services, BATCH, "the receiver")
    found = row(services)
    assert found is not None
    assert (found.id, found.origin, found.records, found.files) == (update.id, "intake", 2, 2)
    assert (held(services), windows(services)) == (["r1-7"], '[["2026-01-01-15:00", 2]]')
    assert said(services) == [("update", "2026-01-01-15:00/r1-7", "published"), ("event", BATCH.partition.key, None)]
    assert read.latest(services.board, BATCH.partition).update == update


def test_a_repeated_publication_makes_no_request_to_the_blackboard(quiet):
    first = publish(quiet, BATCH, "the receiver")
    before, counting = said(quiet), Counting.around(quiet.board)
    assert publish(replace(quiet, board=counting.board), BATCH, "the receiver") == first
    assert (counting.requests, said(quiet)) == ([], before)


def test_other_parts_of_the_same_batch_are_a_new_update(quiet):
    first = publish(quiet, BATCH, "pull")
    second = publish(quiet, replace(BATCH, parts={"other.json": b"{}\n"}, windows=None), "pull")
    assert second.id > first.id
    found = row(quiet)
    assert found is not None
    assert (found.id, found.records, held(quiet)) == (second.id, None, ["r1-7"])


def test_a_killed_publication_is_repeated_once_and_leftovers_go_after_a_day(services):
    step = 0
    while True:
        batch = replace(BATCH, partition=HOUR.batch(f"r1-{step}"))
        try:
            publish(dies_at(services, step), batch, "the receiver")
        except Killed:
            again = publish(services, batch, "the receiver")
            found = row(services, batch)
            assert found is not None
            assert found.id == again.id == read.require(read.latest(services.board, batch.partition)).id
            step += 1
        else:
            break
    assert step > 5
    later = replace(services, now=lambda: NOW + timedelta(hours=25))
    sweep(later, [FEED])
    assert not services.board.files(CLAIMS)
    kept = [file.key for file in services.board.files(str(FEED))]
    assert len(kept) == 3 * (step + 1), "the parts of killed attempts are gone, and nothing else"


def test_a_publication_killed_after_its_manifest_is_only_recorded(quiet):
    def killed(step: str) -> None:
        assert step == PUBLISHED
        raise Killed

    with pytest.raises(Killed):
        publish(replace(quiet, on_step=killed), BATCH, "the receiver")
    assert row(quiet) is None
    publish(quiet, BATCH, "the receiver")
    assert len(quiet.board.children(BATCH.partition.path)) == 1
    assert held(quiet) == ["r1-7"]


def test_a_batch_that_nobody_calls_for_again_is_told_of_by_the_sensor_of_orphans(quiet):
    def killed(_: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        publish(replace(quiet, on_step=killed), BATCH, "the receiver")
    done = sweep(replace(quiet, now=lambda: NOW + timedelta(hours=25)), [FEED]).done
    assert [each.action for each in done] == ["finished"]
    assert held(quiet) == ["r1-7"]


def test_a_run_that_found_the_batch_before_the_ledger_was_told_changes_nothing(quiet):
    def found_by_a_run(_: str) -> None:
        sync_batches(quiet.board, quiet.ledger, HOUR, NOW)

    publish(replace(quiet, on_step=found_by_a_run), BATCH, "the receiver")
    found = row(quiet)
    assert found is not None
    assert (found.origin, windows(quiet), held(quiet)) == ("intake", '[["2026-01-01-15:00", 2]]', ["r1-7"])
    before = said(quiet)
    publish(quiet, BATCH, "the receiver")
    assert said(quiet) == before


def test_an_invalidated_batch_is_not_published_again(quiet):
    update = publish(quiet, BATCH, "the receiver")
    invalidate(quiet.board, BATCH.partition, update.id)
    sync_batches(quiet.board, quiet.ledger, HOUR, NOW)
    publish(quiet, BATCH, "the receiver")
    assert read.latest(quiet.board, BATCH.partition).update is None
    assert (row(quiet), held(quiet)) == (None, [])


def test_a_failed_transaction_leaves_nothing_of_the_batch_in_the_ledger(quiet, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> Callable[..., object]:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(update_changes, "announce", fails)
        with pytest.raises(Killed):
            publish(quiet, BATCH, "the receiver")
    assert (said(quiet), held(quiet)) == ([], [])
    publish(quiet, BATCH, "the receiver")
    assert held(quiet) == ["r1-7"]
