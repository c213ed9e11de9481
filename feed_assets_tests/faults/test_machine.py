"""The state machine on each store, and the wrong ways that it must catch."""

import os
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.faults.machine import FeedMachine
from feed_assets_tests.faults.ways import (
    RIGHT,
    Unconditional,
    Ways,
    latest_by_int,
    latest_without_count,
    prune_parts_first,
)
from feed_assets_tests.support.each_case import each_case

FULL = pytest.mark.soak


def run(opened, examples: int, steps: int, ways: Ways = RIGHT, *, shrink: bool = True) -> None:
    """Run the same examples each time, or those of FAULT_SEED. Hypothesis prints a failure as a list of calls."""
    machine = type("Machine", (FeedMachine,), {"opened": staticmethod(opened), "ways": ways})
    one = os.environ.get("FAULT_SEED")
    phases = (Phase.explicit, Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=one is None,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(int(one))(machine) if one else machine, settings=profile)


def in_memory():
    return nullcontext(Blackboard.open("memory://"))


@contextmanager
def on_disk():
    with TemporaryDirectory() as folder:
        yield Blackboard.open(Path(folder).as_uri())


@pytest.mark.parametrize(("examples", "steps"), [(50, 30), pytest.param(500, 50, marks=FULL)])
def test_in_memory_readers_see_what_the_model_says(examples, steps):
    run(in_memory, examples, steps)


@pytest.mark.parametrize(("examples", "steps"), [(15, 30), pytest.param(500, 50, marks=FULL)])
def test_on_disk_readers_see_what_the_model_says(examples, steps):
    run(on_disk, examples, steps)


@FULL
def test_on_s3_readers_see_what_the_model_says(s3_board):
    numbers = count(1)
    run(lambda: nullcontext(Blackboard.open(f"{s3_board.url}/{next(numbers)}")), 100, 50)


@each_case(
    ("ways", "said"),
    [
        (Ways(client=Unconditional), "was given out twice"),
        (Ways(latest=latest_without_count), "Failing test case"),
        (Ways(latest=latest_by_int), "Failing test case"),
        (Ways(prune=prune_parts_first), "Failing test case"),
    ],
    ids=["a claim that overwrites", "no count", "int()", "a prune of parts first"],
)
def test_oracle_of_the_machine_catches_a_wrong_rule(ways, said):
    with pytest.raises(AssertionError, match=said):
        run(in_memory, 100, 30, ways, shrink=False)
