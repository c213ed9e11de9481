"""A build killed after each of its steps, by SIGKILL in a separate process; then reconcile, as the next tick does."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from feed_assets.core.feeds import Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import log, updates
from feed_assets.ledger.updates import UpdateRow
from feed_assets.runs.maker import Maker
from feed_assets.runs.phases import Published, Unchanged
from feed_assets.runs.reconcile import FinishedRun, reconcile
from feed_assets.settings import Settings
from feed_assets.spark.session import conf
from feed_assets_tests.runs.killed import build_and_die, services_on
from feed_assets_tests.support.build_lake import CLEAN, RAW, REJECTS, Lake, stepping, with_spark
from feed_assets_tests.support.feed_processes import start
from feed_assets_tests.support.servers import connect_server

OLD, NEW, BAD = "1,2019-11-24 01:00:00", "2,2019-11-24 02:00:00", "x,2019-11-24 03:00:00"
AT_ONCE = 3
"""Number of simultaneous processes that build, and are killed."""


@dataclass(frozen=True)
class Killed:
    """A partition whose second build was killed after one of the steps."""

    step: str
    is_visible: bool
    """Set if the manifest of the main update had been written."""
    before: UpdateRow
    """Update that the first build published."""
    pin: Pin
    """Input that the second build read."""

    @property
    def key(self) -> str:
        """Return the key of the partition."""
        return key_of(self.step)


@dataclass(frozen=True)
class Aftermath:
    """A lake with every killed partition, after one reconcile."""

    lake: Lake
    killed: tuple[Killed, ...]
    expected: UpdateRow
    """Update that the second build publishes if it is not killed."""
    finished: tuple[FinishedRun, ...]


def key_of(step: str) -> str:
    return step.replace("/", "-")


def ids(lake: Lake, feed, key) -> tuple[str | None, str | None]:
    """Return the newest update by the blackboard and by the ledger."""
    valid, newest = lake.valid(feed, key), lake.newest(feed, key)
    return valid.id if valid else None, newest.id if newest else None


@contextmanager
def killed_in(
    folder: Path, maker: Maker | None = None, spark_remote: str | None = None, boards: Sequence[str] = ("lake",)
) -> Iterator[Aftermath]:
    """Build each partition, add input, and build it again in a process that is killed."""
    urls, ledger_url = [(folder / each).as_uri() for each in boards], f"sqlite:///{folder / 'ledger.db'}"
    lake = Lake(services_on(urls, ledger_url, (lambda: maker) if maker else None))
    steps = steps_of_a_build(lake)
    expected = lake.newest(key="undisturbed")
    killed = [prepare(lake, step, steps) for step in steps]
    for first in range(0, len(steps), AT_ONCE):
        some = steps[first : first + AT_ONCE]
        children = [start(build_and_die, urls, ledger_url, spark_remote, key_of(step), step) for step in some]
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [-signal.SIGKILL] * len(some)
    yield Aftermath(lake, tuple(killed), expected, reconcile(lake.services))
    lake.services.ledger.engine.dispose()


@pytest.fixture(scope="module", params=[("lake",), ("lake", "archive")], ids=["one", "two"])
def aftermath(tmp_path_factory, request: pytest.FixtureRequest) -> Iterator[Aftermath]:
    """Yield the aftermath with all feeds on one blackboard, and with datasets on another one than raw feeds."""
    with killed_in(tmp_path_factory.mktemp("killed"), boards=request.param) as made:
        yield made


def steps_of_a_build(lake: Lake) -> list[str]:
    """Return the steps that a second build announces, in order."""
    steps: list[str] = []
    lake.drop(OLD, key="undisturbed")
    lake.clean("undisturbed")
    lake.drop(OLD, NEW, BAD, key="undisturbed")
    lake.clean("undisturbed", services=stepping(lake, steps.append))
    return steps


def prepare(lake: Lake, step: str, steps: list[str]) -> Killed:
    key = key_of(step)
    lake.drop(OLD, key=key)
    lake.clean(key)
    dropped = lake.drop(OLD, NEW, BAD, key=key)
    pin = Pin(Partition(RAW, key), dropped.id, dropped.files_digest, dropped.size, 1)
    is_visible = steps.index(step) >= steps.index(f"manifest of {CLEAN} written")
    return Killed(step, is_visible, lake.newest(key=key), pin)


def test_a_build_was_killed_after_every_step(aftermath):
    assert len(aftermath.killed) >= 9
    assert {killed.is_visible for killed in aftermath.killed} == {True, False}


def test_readers_see_the_previous_update_or_the_whole_new_one(aftermath):
    lake = aftermath.lake
    for killed in aftermath.killed:
        valid = lake.valid(key=killed.key)
        if killed.is_visible:
            assert valid.id > killed.before.id, killed.step
            assert lake.newest(key=killed.key).records == 2, killed.step
        else:
            assert valid.id == killed.before.id, killed.step


def test_ledger_and_blackboard_agree(aftermath):
    for killed in aftermath.killed:
        for feed in (CLEAN, REJECTS):
            by_board, by_ledger = ids(aftermath.lake, feed, killed.key)
            assert by_board == by_ledger is not None, (killed.step, feed)


def test_every_killed_run_and_claim_is_settled(aftermath):
    finished = {each.run.output.key: each.is_published for each in aftermath.finished}
    assert finished == {killed.key: killed.is_visible for killed in aftermath.killed if killed.step != "published"}
    assert aftermath.lake.running() == []
    for killed in aftermath.killed:
        for feed in (CLEAN, REJECTS):
            assert updates.CLAIMED not in aftermath.lake.states(feed, killed.key), killed.step


def test_killed_runs_with_a_manifest_are_published_as_the_run_would_have(aftermath):
    for killed in aftermath.killed:
        if killed.is_visible:
            found, expected = aftermath.lake.newest(key=killed.key), aftermath.expected
            assert (found.version, found.records, found.files) == (expected.version, 2, expected.files), killed.step
            assert found.code_version == expected.code_version, killed.step
            with aftermath.lake.services.ledger.read() as connection:
                assert updates.consumed_by(connection, found.partition, found.id) == (killed.pin,), killed.step


def test_swept_updates_leave_no_objects(aftermath):
    board = aftermath.lake.services.board_of(CLEAN)
    swept = [row for finished in aftermath.finished for row in finished.swept]
    assert {row.partition.feed for row in swept} == {CLEAN, REJECTS}
    assert [board.files(f"{row.partition.path}/{row.id}") for row in swept] == [()] * len(swept)


def test_reconciling_twice_after_a_kill_changes_nothing(aftermath):
    ledger, before = aftermath.lake.services.ledger, aftermath.lake.objects()
    with ledger.read() as connection:
        number = log.last(connection)
    again = reconcile(aftermath.lake.services)
    with ledger.read() as connection:
        assert (again, log.last(connection)) == ((), number)
    assert aftermath.lake.objects() == before


def test_published_updates_are_not_rebuilt_and_all_others_are(aftermath):
    """Keep this test last, as it builds what was killed."""
    for killed in aftermath.killed:
        built = aftermath.lake.clean(killed.key)
        assert isinstance(built, Unchanged if killed.is_visible else Published), killed.step
        assert lake_is_whole(aftermath, killed), killed.step


@pytest.mark.soak
def test_the_kill_tests_hold_with_spark_as_the_maker(spark, tmp_path):
    holds = [each for name, each in globals().items() if name.startswith("test_") and "spark" not in name]
    with (
        connect_server(tmp_path, conf(Settings(blackboard=(tmp_path / "lake").as_uri())), os.environ) as remote,
        killed_in(tmp_path, with_spark(spark)(), remote) as aftermath,
    ):
        for each in holds:
            each(aftermath)


def lake_is_whole(aftermath: Aftermath, killed: Killed) -> bool:
    """Return True if readers, ledger and the undisturbed partition agree."""
    by_board, by_ledger = ids(aftermath.lake, CLEAN, killed.key)
    return by_board == by_ledger and aftermath.lake.newest(key=killed.key).version == aftermath.expected.version
