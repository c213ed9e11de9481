"""A build by events killed after each of its steps, by SIGKILL in a separate process; then reconciled or repeated."""

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from obstore import exceptions

from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Partition
from feed_assets.core.plans import RunSpec
from feed_assets.core.propagation import Consumer
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import event_store, inbox, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets.ledger.tables import update
from feed_assets.runs import reconcile
from feed_assets.runs.phases import Published, Unchanged
from feed_assets.runs.services import Services
from feed_assets.testing import PlainMaker
from feed_assets_tests.runs.killed_by_events import REPORT, A, B, build_and_die, play
from feed_assets_tests.support.build_lake import NOW
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.feed_processes import start
from feed_assets_tests.support.ledger_records import due_of

AT_ONCE = 3
UNDISTURBED = "undisturbed"
STEPS = [
    "started",
    "pinned",
    "claimed on the blackboard",
    "claimed in the ledger",
    f"parts of {REPORT} written",
    "statistics in the ledger",
    "audited",
    f"manifest of {REPORT} written",
    "published",
]
VISIBLE = STEPS[-2:]


@dataclass(frozen=True)
class Team:
    """A ledger with events of two tables that every output will consume."""

    services: Services
    keys: tuple[str, ...]

    def deliver(self, number: int) -> None:
        """Record an update of both tables, and deliver it to every output."""
        new = [WriteEvent(f"team/{name}", number, NOW, f"X{number}", Operation.UPSERT) for name in "ab"]
        with self.services.ledger.change() as connection:
            event_store.record(connection, "team", new, NOW, refuse_out_of_order=False)
        affected = Affected([(Partition(REPORT, key), NOW) for key in self.keys], takes_events=True)
        edges = [(str(REPORT), str(table)) for table in (A, B)]
        fan_out(self.services.ledger, edges, lambda _consumer, _changed: affected, NOW, lambda: False)

    def run_spec(self, key: str) -> RunSpec | None:
        """Return the run spec that the sensor would request."""
        consumer = Consumer(REPORT, frozenset({A, B}), {"p": frozenset({A, B})})
        with self.services.ledger.read() as connection:
            due = due_of(connection, consumer, [key]).get(key)
        return RunSpec({each.partition: each for each in due.slices}, consumes=True) if due else None

    def published(self, key: str) -> list[set[str]]:
        """Return, for each published update, the slices that it was built from."""
        with self.services.ledger.read() as connection:
            mine = updates.is_(Partition(REPORT, key)) & (update.c.state == updates.PUBLISHED)
            ids = connection.execute(sa.select(update.c.id).where(mine).order_by(update.c.id)).scalars().all()
            found = [updates.consumed_by(connection, Partition(REPORT, key), each) for each in ids]
        return [{f"{pin.partition.feed} {int(pin.update_id)}" for pin in pins} for pins in found]

    def markers(self, key: str) -> dict[str, int]:
        with self.services.ledger.read() as connection:
            return {row["input_feed"]: int(row["marker"]) for row in inbox.markers(connection, REPORT, key)}


def key_of(step: str) -> str:
    return step.replace("/", "-").replace(" ", "_")


def opened(folder: Path) -> Team:
    """Return the team whose ledger and lake are in a folder."""
    board = Blackboard.open((folder / "lake").as_uri(), create=True)
    services = Services(board, open_ledger(f"sqlite:///{folder / 'ledger.db'}"), PlainMaker, lambda: NOW)
    return Team(services, (UNDISTURBED, *map(key_of, STEPS)))


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """Kill the build of each output after the step of its key."""
    folder = tmp_path_factory.mktemp("killed by events")
    team = opened(folder)
    team.deliver(1)
    urls = team.services.board.url, f"sqlite:///{folder / 'ledger.db'}"
    for first in range(0, len(STEPS), AT_ONCE):
        some = STEPS[first : first + AT_ONCE]
        children = [start(build_and_die, *urls, key_of(step), team.run_spec(key_of(step)), step) for step in some]
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [-signal.SIGKILL] * len(children)
    team.services.ledger.engine.dispose()
    return folder


@pytest.fixture
def team(killed, tmp_path) -> Iterator[Team]:
    """Provide a fresh copy of the state after the kills."""
    shutil.copytree(killed, tmp_path / "left")
    made = opened(tmp_path / "left")
    yield made
    made.services.ledger.engine.dispose()


def test_the_listed_steps_are_all_steps_of_a_build_by_events(team):
    steps: list[str] = []
    play(replace(team.services, on_step=steps.append), UNDISTURBED, team.run_spec(UNDISTURBED))
    assert steps == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_run_that_is_reconciled_and_repeated_consumes_its_slices_once(team, step):
    key = key_of(step)
    run_spec = team.run_spec(key)
    assert (run_spec is None) == (step == "published")
    reconcile.reconcile(team.services, output=Partition(REPORT, key))
    after = team.run_spec(key)
    assert (after is None) == (step in VISIBLE)
    assert after in (None, run_spec)
    judge_repeat(team, key, step)


@pytest.mark.parametrize("step", STEPS)
def test_the_repeat_of_a_killed_run_consumes_its_slices_once(team, step):
    judge_repeat(team, key_of(step), step)


@pytest.mark.parametrize("step", STEPS)
def test_a_run_with_an_unchecked_end_is_settled_before_the_next(team, step):
    """Record the end in the ledger; the next build finds the manifest once the blackboard is reachable."""
    key = key_of(step)
    away = Counting.around(team.services.board)

    def refuse():
        raise exceptions.GenericError("no answer")

    away.before = dict.fromkeys(("list", "children", "get", "put", "create", "delete"), refuse)
    reconcile.reconcile(replace(team.services, board=away.board), output=Partition(REPORT, key))
    judge_repeat(team, key, step)


def judge_repeat(team, key, step) -> None:
    """Check that the repeat finds its slices published, or publishes them, and that nothing is due afterwards."""
    run_spec = team.run_spec(UNDISTURBED)
    again = play(team.services, key, run_spec)
    assert isinstance(again, Unchanged if step in VISIBLE else Published)
    assert team.published(key) == [{"team/a 1", "team/b 1"}]
    assert team.markers(key) == {"team/a": 1, "team/b": 1}
    assert team.run_spec(key) is None
    assert isinstance(play(team.services, key, run_spec), Unchanged)
    assert len(team.published(key)) == 1
