"""The ledger of a small real world is deleted and rebuilt: the builds of the next ticks are exact."""

import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import write
from feed_assets.ledger import log, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import metadata
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.rebuild_location import rebuild_ledger
from feed_assets.runs.rebuild import Rebuilt
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.orchestration.kept import keep, lose, restore
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, PICKED, RAW, SUMS, chain, outcomes, rows

HOUR = timedelta(hours=1)
BOTH_SUMS = [("sums", DAY, True), ("sums", NEXT_DAY, True)]
BOTH_PICKED = [("picked", DAY, True), ("picked", NEXT_DAY, True)]


class Killed(BaseException):
    """A simulated kill."""


def drop(world: Harness, day: str, *numbers: int, at: datetime) -> str:
    """Publish a foreign update with this time, and return its id."""
    partition = Partition(Feed.parse(RAW), day)
    return write.publish(world.board, partition, {"part-1": rows(*numbers).encode()}, at).id


def await_next_second(world: Harness) -> None:
    """Wait until the next build gets a greater id: ids have a resolution of seconds."""
    newest = max(world.newest(feed, day) or "" for feed in (SUMS, PICKED) for day in (DAY, NEXT_DAY))
    while f"{utc_now():%Y%m%d.%H%M%S}" <= newest:
        time.sleep(0.01)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build raw -> sums -> picked on two days, each a second after its input."""

    def build() -> None:
        world = chain()
        for day in (DAY, NEXT_DAY):
            drop(world, day, 1, 2, at=utc_now() - HOUR)
        for _ in range(2):
            world.tick()
            await_next_second(world)
        world.run_until_idle()
        assert sorted(outcomes(world.runs)) == sorted(BOTH_SUMS + BOTH_PICKED)

    return keep(tmp_path_factory.mktemp("kept"), build)


@pytest.fixture
def built(kept: Path, home: Path) -> Harness:
    """Return the same world in the test's own home."""
    restore(kept, home)
    return chain()


def rebuild(world: Harness, *, rows: bool = False, trust: bool = False, services: Services | None = None) -> Rebuilt:
    graph = Graph(world.definitions.resolve_asset_graph())
    with dg.partition_loading_context(utc_now(), world.instance):
        return rebuild_ledger(graph, services or Services.of(settings(), PlainMaker), utc_now(), rows=rows, trust=trust)


def newest(feed: str, day: str = DAY) -> updates.UpdateRow:
    with open_ledger(settings().ledger).read() as connection:
        (found,) = updates.newest(connection, [Partition(Feed.parse(feed), day)]).values()
    return found


def contents() -> dict[str, list]:
    """Return every row of the ledger."""
    with open_ledger(settings().ledger).read() as connection:
        return {
            name: sorted(map(tuple, connection.execute(sa.select(table))), key=repr)
            for name, table in metadata.tables.items()
        }


def state(world: Harness, feed: str, day: str = DAY) -> tuple[str, str]:
    graph, services = Graph(world.definitions.resolve_asset_graph()), Services.of(settings())
    with dg.partition_loading_context(utc_now(), world.instance), services.ledger.read() as connection:
        (verdict,) = verdicts(graph, connection, [Partition(Feed.parse(feed), day)], utc_now())
    return verdict.state.value, verdict.reason


def built_in(world: Harness) -> list[tuple[str, str | None, bool]]:
    return sorted(outcomes(world.run_until_idle()))


def test_a_lost_ledger_without_a_rebuild_builds_every_partition_again(built, home):
    lose(home)
    assert built_in(built) == sorted(BOTH_SUMS + BOTH_PICKED)


def test_with_trust_nothing_is_built_again(built, home):
    lose(home)
    rebuilt = rebuild(built, trust=True)
    assert (len(rebuilt.added), len(rebuilt.assumed), rebuilt.unknown, rebuilt.unread) == (6, 4, [], [])
    assert built_in(built) == []
    assert [state(built, feed)[0] for feed in (SUMS, PICKED)] == ["current", "current"]


def test_with_trust_only_data_newer_than_an_update_cause_a_build(built, home):
    lose(home)
    rebuild(built, rows=True, trust=True)
    built.run_until_idle()
    drop(built, DAY, 1, 2, 3, at=utc_now())
    assert built_in(built) == [("picked", DAY, True), ("sums", DAY, True)]


def test_with_trust_data_unbuilt_at_the_loss_are_built(built, home):
    late = drop(built, DAY, 1, 2, 3, at=utc_now())
    lose(home)
    rebuild(built, rows=True, trust=True)
    assert late >= built.newest(SUMS, DAY)
    assert built_in(built) == [("picked", DAY, True), ("sums", DAY, True)]


def test_with_trust_an_input_of_the_same_second_does_not_count_as_consumed(built, home):
    only = built.newest(RAW, DAY)
    built.invalidate(RAW, DAY, only)
    same = f"t/raw/v1.0/{DAY}/{built.newest(SUMS, DAY)}"
    built.board.put(f"{same}/part-1", rows(1, 2).encode())
    built.board.put(f"{same}/_SUCCESS", b"1")
    lose(home)
    rebuilt = rebuild(built, trust=True)
    assert [(str(at.feed), at.key, why) for at, _, why in rebuilt.unknown] == [
        (SUMS, DAY, "an input has no older valid update")
    ]


def test_without_trust_the_inputs_of_updates_are_reported_as_unknown(built, home):
    lose(home)
    published = built.newest(SUMS, DAY)
    rebuilt = rebuild(built)
    assert sorted((str(at.feed), at.key) for at, _, _ in rebuilt.unknown) == [
        (feed, day) for feed in (PICKED, SUMS) for day in (DAY, NEXT_DAY)
    ]
    assert rebuilt.assumed == []
    built.ask()
    assert state(built, SUMS) == ("rebuild", f"it is not known what update {published} was built from")


def test_without_trust_but_with_rows_each_partition_is_built_once(built, home):
    lose(home)
    rebuild(built, rows=True)
    assert built_in(built) == sorted(BOTH_SUMS + BOTH_PICKED)
    assert built_in(built) == []


def test_without_trust_and_rows_downstream_may_be_built_twice(built, home):
    lose(home)
    rebuild(built)
    assert built_in(built) == sorted(BOTH_SUMS + BOTH_PICKED + BOTH_PICKED)


def test_a_rebuild_with_rows_restores_records_and_data_versions(built, home):
    before = {feed: newest(feed) for feed in (SUMS, f"{SUMS.replace('/v', '_rejects/v')}", PICKED)}
    lose(home)
    rebuild(built, rows=True)
    for feed, row in before.items():
        found = newest(feed)
        assert (found.id, found.version, found.records) == (row.id, row.version, row.records)
        assert (found.size, found.files, found.code_version) == (row.size, row.files, None)


def test_a_second_rebuild_with_trust_adds_the_missing_lineage(built, home):
    lose(home)
    rebuild(built)
    rebuilt = rebuild(built, trust=True)
    assert (rebuilt.added, len(rebuilt.assumed), rebuilt.unknown) == ([], 4, [])
    assert built_in(built) == []


@pytest.mark.parametrize("trust", [False, True])
def test_rebuilding_an_intact_ledger_changes_nothing(built, trust):
    before = contents()
    rebuilt = rebuild(built, rows=True, trust=trust)
    assert (rebuilt.added, rebuilt.assumed, rebuilt.unknown) == ([], [], [])
    assert contents() == before


def test_rebuilding_twice_changes_nothing(built, home):
    lose(home)
    rebuild(built, trust=True)
    before = contents()
    rebuild(built, trust=True)
    assert contents() == before


def test_older_updates_are_found_and_invalid_ones_named(built, home):
    drop(built, DAY, 5, at=utc_now())
    built.run_until_idle()
    refused = f"{SUMS}/{NEXT_DAY}/{built.newest(SUMS, NEXT_DAY)}"
    built.board.delete([f"{refused}/_SUCCESS"])
    lose(home)
    rebuilt = rebuild(built)
    assert len(rebuilt.added) == 6 + 3 - 1
    assert [f"{at.path}/{update_id}" for at, update_id, _ in rebuilt.invalid] == [refused]
    numbers = [each.update.id for each in rebuilt.added if each.update.partition.path == f"{SUMS}/{DAY}"]
    assert numbers == sorted(numbers)
    assert len(numbers) == 2


def test_a_rebuild_names_and_records_an_unreadable_update(built, home):
    partition = Partition(Feed.parse(PICKED), DAY)
    bad = write.publish(built.board, partition, {"part-1": b"no rows"}, utc_now())
    lose(home)
    rebuilt = rebuild(built, rows=True)
    assert [(at, update_id) for at, update_id, _ in rebuilt.unread] == [(partition, bad.id)]
    assert newest(PICKED).version == bad.files_digest


def test_a_rebuild_decides_nothing_about_partitions_outside_the_definition(built, home):
    strange = Partition(Feed.parse(SUMS), "1999-12-31")
    write.publish(built.board, strange, {"part-1": b"x"}, utc_now())
    lose(home)
    rebuilt = rebuild(built, trust=True)
    assert strange in [each.update.partition for each in rebuilt.added]
    assert strange not in [each.partition for each in rebuilt.assumed] + [at for at, _, _ in rebuilt.unknown]
    assert built_in(built) == []


@pytest.mark.parametrize("last", [1, 2, 3, 5, 8])
def test_a_rebuild_killed_between_two_partitions_is_finished_by_the_next(built, home, last):
    lose(home)
    rebuild(built, trust=True)
    whole = {name: [row[:4] for row in found] for name, found in contents().items() if name in ("update_", "consumed")}
    lose(home)
    seen = []

    def kill_at_last() -> datetime:
        seen.append(True)
        if len(seen) == last:
            raise Killed
        return utc_now()

    killing = replace(Services.of(settings(), PlainMaker), now=kill_at_last)
    if last <= 6:
        with pytest.raises(Killed):
            rebuild(built, trust=True, services=killing)
    rebuild(built, trust=True)
    assert {name: [row[:4] for row in contents()[name]] for name in whole} == whole
    assert built_in(built) == []


def test_a_rebuilt_ledger_numbers_its_log_from_one(built, home):
    lose(home)
    rebuild(built)
    with open_ledger(settings().ledger).read() as connection:
        assert log.last(connection) == 12  # six updates, each with its write event
