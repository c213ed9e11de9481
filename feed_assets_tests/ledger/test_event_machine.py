"""The state machine of event tables and consumers, and the wrong ways that it must catch."""

import os
import shutil

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from feed_assets.ledger import inbox
from feed_assets.ledger.database import open_ledger
from feed_assets_tests.ledger.event_machine import EventMachine

FULL = pytest.mark.soak


@pytest.fixture
def ledger(tmp_path, empty_ledger):
    """A ledger on disk, without a sync for each of its many transactions."""
    shutil.copyfile(empty_ledger, tmp_path / "ledger.db")
    opened = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    opened.engine.dispose()
    sa.event.listen(opened.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    yield opened
    opened.engine.dispose()


@pytest.fixture
def run(ledger, monkeypatch):
    """The same examples each time, or those of FAULT_SEED; one that fails is printed as a list of calls."""
    monkeypatch.setattr(inbox, "SOME", 3)

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


@pytest.mark.parametrize(("number", "steps"), [(60, 40), pytest.param(20_000, 100, marks=FULL)])
def test_every_event_is_consumed_once_whatever_is_interleaved_and_whoever_dies(run, number, steps):
    run(number, steps)
