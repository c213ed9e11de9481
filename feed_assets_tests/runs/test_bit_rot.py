"""Old updates of ours are read in turn, a few each day; damage is remembered until it is repaired or gone."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate
from feed_assets.ledger import update_changes, updates
from feed_assets.runs import bit_rot
from feed_assets.runs.bit_rot import PAUSE, UPDATES, look_in_turn
from feed_assets.runs.services import Services
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.own_updates import publish_own, rewrite

MADE = datetime(2019, 11, 25, 6, tzinfo=UTC)
SHOWN, TOTAL = Feed.parse("ads/shown/v1.0"), Feed.parse("ads/total/v1.0")
GOOD, BAD = damaged.parquet(damaged.numbers()), damaged.with_flipped_bit(damaged.parquet(damaged.numbers()))
NOTHING: Mapping[str, str] = {}


def no_spark():
    raise AssertionError("looking needs no Spark")


def never() -> bool:
    return False


@pytest.fixture
def services(ledger) -> Services:
    return Services(Blackboard.open("memory://"), ledger, no_spark)


def look(services: Services, day: int, known: Mapping[str, str] = NOTHING, feeds: Collection[Feed] = (SHOWN, TOTAL)):
    return look_in_turn(services, feeds, known, MADE + day * PAUSE, never)


def test_each_old_update_has_its_turn_once_in_a_round(services):
    made = [publish_own(services, Partition(SHOWN, f"{number:03}"), MADE, BAD) for number in range(UPDATES + 3)]
    made.append(publish_own(services, Partition(TOTAL), MADE, BAD))
    found = [{*look(services, day).damaged} for day in range(1, 4)]
    assert [len(each) for each in found] == [UPDATES, 4, UPDATES]
    assert found[0] | found[1] == {f"{each.partition.feed}|{each.partition.key}/{each.id}" for each in made}
    assert found[2] == found[0]


def test_bit_rot_is_checked_once_a_day_and_not_in_new_updates(services):
    publish_own(services, Partition(SHOWN, "a"), MADE, BAD)
    assert look(services, 0).damaged == {}
    assert look_in_turn(services, [SHOWN, TOTAL], NOTHING, MADE + PAUSE - timedelta(seconds=1), never) is None
    assert len(look(services, 1).damaged) == 1
    assert look_in_turn(services, (), NOTHING, MADE, never) is None


def test_damage_stays_reported_until_repaired_or_replaced(services):
    rotten, again, _ = (publish_own(services, Partition(SHOWN, key), MADE, BAD) for key in "abc")
    known = look(services, 1).damaged
    assert len(known) == 3
    rewrite(services, again, GOOD)
    publish_own(services, Partition(SHOWN, "c"), MADE + timedelta(hours=1), GOOD)
    known = look(services, 2, known).damaged
    assert [*known] == [f"{SHOWN}|a/{rotten.id}"]
    assert "is damaged" in known[f"{SHOWN}|a/{rotten.id}"]
    invalidate(services.board, rotten.partition, rotten.id)
    with services.ledger.change() as connection:
        update_changes.change(connection, rotten.partition, rotten.id, updates.INVALIDATED, MADE)
    assert look(services, 3, known).damaged == {}


def test_files_of_a_large_update_are_checked_over_several_days(services, monkeypatch):
    """Keep the damage until a check has read the whole update at once."""
    update = publish_own(services, Partition(SHOWN, "a"), MADE)
    for name in ("b", "c"):
        services.board.put(f"{update.path}/part-{name}.parquet", BAD if name == "b" else GOOD)
    services.board.put(f"{update.path}/_SUCCESS", b"3")
    with services.ledger.change() as connection:
        files = services.board.files(update.path)
        now = type(update)(update.partition, update.id, tuple(file for file in files if "part" in file.key))
        connection.execute(updates.update.update().values(**updates.files_of(now), records=60_000))
    monkeypatch.setattr(bit_rot, "BYTES", len(GOOD) + 10)
    found = [look(services, day).damaged for day in range(1, 4)]
    assert sorted(map(len, found)) == [0, 0, 1]
    (known,) = [each for each in found if each]
    assert all(look(services, day, known).damaged.keys() == known.keys() for day in range(4, 7))


def test_a_check_out_of_time_is_resumed_by_the_next(services):
    for key, data in (("a", GOOD), ("b", BAD)):
        publish_own(services, Partition(SHOWN, key), MADE, data)
    found = look_in_turn(services, [SHOWN], NOTHING, MADE + PAUSE, lambda: True)
    assert [each.partition("|")[2][0] for each in found.unfinished] == ["a"]
    assert next(iter(look(services, 2, feeds=[SHOWN]).damaged)).startswith(f"{SHOWN}|b/")

    class KilledError(BaseException):
        pass

    def kill() -> bool:
        raise KilledError

    for _ in range(2):
        with pytest.raises(KilledError):
            look_in_turn(services, [SHOWN], NOTHING, MADE + 3 * PAUSE, kill)
    last = look_in_turn(services, [SHOWN], NOTHING, MADE + 3 * PAUSE, never)
    assert "2 searches for bit rot ended while they read it" in last.problems[str(SHOWN)]
    assert next(iter(last.damaged)).startswith(f"{SHOWN}|b/"), "the others are read"


def test_a_missing_update_is_not_reported_as_damage(services):
    """Leave missing updates to `verify`."""
    update = publish_own(services, Partition(SHOWN, "a"), MADE, BAD)
    known = look(services, 1).damaged
    services.board.sweep(update.path)
    assert look(services, 2, known).damaged == {}


def test_a_store_that_fails_is_a_problem_of_its_feed_and_forgets_no_damage(services):
    publish_own(services, Partition(SHOWN, "a"), MADE, BAD)
    known = look(services, 1).damaged

    class Failing(Blackboard):
        def part(self, key, start, length):
            raise BlackboardUnavailable("the store is down")

    services.board.__class__ = Failing
    found = look(services, 2, known)
    assert (found.damaged, found.problems) == (known, {str(SHOWN): "the store is down"})
