"""The state machine of event tables and consumers, and the wrong ways that it must catch."""

import os
import shutil
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from feed_assets.core.events import Operation
from feed_assets.ledger import inbox
from feed_assets.ledger.database import open_ledger
from feed_assets_tests.ledger.event_machine import TABLES, EventMachine

FULL = pytest.mark.soak


@pytest.fixture
def ledger(tmp_path, empty_ledger):
    """Yield a ledger on disk that does not sync after each of its many transactions."""
    shutil.copyfile(empty_ledger, tmp_path / "ledger.db")
    opened = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    opened.engine.dispose()
    sa.event.listen(opened.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    yield opened
    opened.engine.dispose()


@pytest.fixture
def run(ledger):
    """Run the same examples each time, or those of FAULT_SEED. Hypothesis prints a failure as a list of calls."""

    def examples(number: int, steps: int, *, shrink: bool = True) -> None:
        machine = type("Machine", (EventMachine,), {"ledger": ledger})
        one = os.environ.get("FAULT_SEED")
        phases = (Phase.explicit, Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
        profile = settings(
            max_examples=number,
            stateful_step_count=steps,
            derandomize=one is None,
            database=None,
            deadline=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(seed(int(one))(machine) if one else machine, settings=profile)

    return examples


@pytest.mark.parametrize(("number", "steps"), [(20, 40), pytest.param(5_000, 100, marks=FULL)])
def test_every_event_is_consumed_once_under_any_interleaving_and_kill(run, number, steps):
    run(number, steps)


def by_marker_alone(monkeypatch):
    """Consume everything up to the end of a slice."""

    within = inbox._within

    def from_the_beginning(connection, slices):
        return within(connection, {output: [replace(each, start=None) for each in of] for output, of in slices.items()})

    monkeypatch.setattr(inbox, "_within", from_the_beginning)
    whatever_was_requested(monkeypatch)


def consumed_when_requested(monkeypatch):
    """Take what a run has claimed for consumed, as if a cursor were the only record."""
    claim = inbox.claim

    def claim_and_forget(connection, output, run, slices):
        claim(connection, output, run, slices)
        connection.execute(sa.delete(inbox.inbox).where(inbox.inbox.c.run == run))

    monkeypatch.setattr(inbox, "claim", claim_and_forget)


def by_what_is_recorded(monkeypatch):
    """Take an update for complete as soon as all of it is recorded, delivered or not."""
    seen = inbox._history_of

    def seen_already(consumer, correlations, every, _):
        recorded = {(str(consumer.feed), str(table)): 10**9 for table in consumer.tables}
        return seen(consumer, correlations, every, recorded)

    monkeypatch.setattr(inbox, "_history_of", seen_already)


def whatever_was_requested(monkeypatch):
    """Read the slices of a request although some of them were consumed since."""
    monkeypatch.setattr(inbox, "are_whole", lambda *_: True)


def half_delivered(machine):
    machine.publish_to_all("V")
    machine.ingest(9, "")
    machine.deliver("early", frozenset(TABLES[:1]), 0)
    machine.decide("early")


def with_a_skipped_one_below(machine):
    machine.publish(TABLES[0], "", "W", Operation.UPSERT)
    requested(machine, "V")
    machine.run_begins("early", 0, repeat=False)


def killed_after_its_claim(machine):
    requested(machine, "V")
    machine.run_begins("early", 0, repeat=False)
    machine.nothing_is_lost_and_nothing_is_consumed_twice()


def requested_twice_with_more(machine):
    requested(machine, "V")
    requested(machine, "W")
    for _ in range(2):
        machine.run_begins("early", 0, repeat=False)
        machine.run_publishes("early")


def requested(machine, correlation):
    machine.publish_to_all(correlation)
    machine.ingest(9, "")
    machine.deliver_all("early")
    machine.decide("early")


@pytest.mark.parametrize(
    ("steps", "wrong", "said"),
    [
        (with_a_skipped_one_below, by_marker_alone, "was claimed and not decided about"),
        (killed_after_its_claim, consumed_when_requested, "consumed|delivered and lost"),
        (half_delivered, by_what_is_recorded, "is not complete"),
        (requested_twice_with_more, whatever_was_requested, "was read before"),
    ],
)
def test_wrong_consumption_is_caught_at_its_first_wrong_step(ledger, monkeypatch, steps, wrong, said):
    monkeypatch.setattr(EventMachine, "ledger", ledger, raising=False)
    for is_wrong in (False, True):
        machine = EventMachine()
        machine.begin(refuse=False, wait="any", skip=True, merge=True)
        if not is_wrong:
            steps(machine)
            machine.teardown()
            continue
        wrong(monkeypatch)
        with pytest.raises(AssertionError, match=said):
            steps(machine)


def test_wrong_consumption_is_found_by_random_steps(run, monkeypatch):
    consumed_when_requested(monkeypatch)
    with pytest.raises(AssertionError, match="delivered and lost"):
        run(100, 40, shrink=False)
