"""Our own data that others have deleted: reported, and built again."""

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from feed_assets import Retention
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.runs.prune import prune
from feed_assets.runs.services import Services
from feed_assets.runs.verify import Gone, verify_all
from feed_assets.settings import settings
from feed_assets_tests.support.harness_queries import verdict_of
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.sum_projects import DAY, PICKED, RAW, SUMS, chain, outcomes, requested, rows, short


def board(home: Path) -> Path:
    return home / "blackboard"


def folder(home: Path, feed: str, update_id: str, day: str = DAY) -> Path:
    return board(home) / feed / day / update_id


def states(feed: str, day: str = DAY) -> list[tuple[str, str | None]]:
    """Return state and reason of each published update, oldest first."""
    at = Partition(Feed.parse(feed), day)
    with open_ledger(settings().ledger).read() as connection:
        found = connection.execute(
            sa.select(update.c.state, update.c.reason).where(updates.is_(at)).order_by(update.c.id)
        )
        return [(row.state, row.reason) for row in found]


def without_folder(path: Path) -> None:
    shutil.rmtree(path)


def without_partition(path: Path) -> None:
    shutil.rmtree(path.parent)


def without_a_part(path: Path) -> None:
    next(each for each in path.iterdir() if each.name != "_SUCCESS").unlink()


def without_manifest(path: Path) -> None:
    (path / "_SUCCESS").unlink()


GONE = [
    (without_folder, "it is no longer there"),
    (without_partition, "it is no longer there"),
    (without_a_part, "its manifest says 1 files and there are 0"),
    (without_manifest, "it has no manifest"),
]


@pytest.fixture
def built():
    """Build a day of a dataset and of its consumer."""
    world = chain()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    return world


@pytest.mark.parametrize(("damage", "why"), GONE)
def test_a_damaged_newest_update_is_reported_and_built_again(built, home, capfd, damage, why):
    lost = built.newest(PICKED, DAY)
    damage(folder(home, PICKED, lost))
    capfd.readouterr()
    assert outcomes(built.tick()) == [("picked", DAY, True)]
    assert f"update {lost} of {PICKED} {DAY} is no longer valid: {why}" in capfd.readouterr().err
    assert states(PICKED)[0][0] == updates.INVALIDATED
    assert why in (states(PICKED)[0][1] or "")
    assert (built.newest(PICKED, DAY) or "") > lost
    assert built.run_until_idle() == []


def test_a_vanished_update_is_an_alert_until_the_next_tick(built, home):
    lost = built.newest(PICKED, DAY)
    without_folder(folder(home, PICKED, lost))
    built.ask()
    assert open_reasons() == {
        f"failing:feeds:{PICKED}": f"update {lost} of {PICKED} {DAY} is no longer valid: it is no longer there"
    }
    built.ask()
    assert open_reasons() == {}


def test_readers_of_a_vanished_update_wait_until_it_is_rebuilt(built, home):
    without_folder(folder(home, SUMS, built.newest(SUMS, DAY)))
    assert requested(built) == [DAY]
    state, reason = verdict_of(built, PICKED)
    assert state == "waits for input"
    assert f"no valid update of {SUMS} {DAY}" in reason
    assert ("sums", DAY, True) in outcomes(built.run_until_idle())
    assert verdict_of(built, PICKED)[0] == "current"


def test_an_older_update_is_served_until_the_vanished_one_is_rebuilt(built, home):
    older = built.newest(SUMS, DAY)
    built.drop(RAW, DAY, rows(1, 2))
    built.run_until_idle()
    without_manifest(folder(home, SUMS, built.newest(SUMS, DAY)))
    built.ask()
    assert [state for state, _ in states(SUMS)] == [updates.PUBLISHED, updates.INVALIDATED]
    assert built.newest(SUMS, DAY) == older
    built.run_until_idle()
    assert (built.newest(SUMS, DAY) or "") > older


def test_vanished_rejects_are_an_alert(built, home):
    rejects = "t/sums_rejects/v1.0"
    without_folder(folder(home, rejects, built.newest(rejects, DAY)))
    built.ask()
    assert [*open_reasons()] == [f"failing:feeds:{rejects}"]
    assert states(rejects) == [(updates.INVALIDATED, "it is no longer there")]


def test_a_fully_deleted_dataset_is_rebuilt_if_its_input_is_there(home):
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    for feed in (SUMS, "t/sums_rejects/v1.0"):
        shutil.rmtree(board(home) / feed)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_an_update_that_cannot_be_verified_is_logged_without_an_alert(built, home, capfd):
    path = folder(home, PICKED, built.newest(PICKED, DAY)).parent
    shutil.rmtree(path)
    path.symlink_to(path)
    capfd.readouterr()
    built.ask()
    assert PICKED in capfd.readouterr().err
    assert states(PICKED) == [(updates.PUBLISHED, None)]
    assert open_reasons() == {}


def test_pruned_updates_and_updates_in_progress_do_not_count_as_vanished(home):
    world = short(
        during=lambda: seen.append(verify_all(Services.of(settings()), [Feed.parse(SUMS)], [Feed.parse(SUMS)]).gone)
    )
    seen: list[list[Gone]] = []
    for numbers in ((1,), (1, 2), (1, 2, 3)):
        world.drop(RAW, DAY, rows(*numbers))
        world.run_until_idle()
    prune(Services.of(settings()), Partition(Feed.parse(SUMS), DAY), Retention(keep=1), apply=True)
    assert (len(seen), [each for each in seen if each]) == (3, [])
    assert world.run_until_idle() == []
    assert [state for state, _ in states(SUMS)] == [updates.PRUNED, updates.PRUNED, updates.PUBLISHED]


def test_an_empty_wrong_blackboard_invalidates_nothing(built, home):
    board(home).rename(home / "aside")
    board(home).mkdir()
    assert requested(built) == []
    assert "has none of the feeds declared here" in open_reasons()[f"failing:feeds:{PICKED}"]
    assert [state for feed in (SUMS, PICKED) for state, _ in states(feed)] == [updates.PUBLISHED] * 2
    board(home).rmdir()
    (home / "aside").rename(board(home))
    assert built.run_until_idle() == []
    assert open_reasons() == {}
