"""A few seeds of the whole system, and the wrong variants that the checker must catch."""

import os
import re
from pathlib import Path

import pytest

from feed_assets_tests.reliability import checker, wrong
from feed_assets_tests.reliability.campaign import SEEDS_OF_A_VARIANT, caught, play, stage
from feed_assets_tests.reliability.schedule import schedule

STEPS = 40
"""Acts of a seed in tests; `make faults` plays as many as fit into its seconds."""
FEW, ALL = 4, 20
"""Seeds of `make test-all`, one for each pair of stores, and of `make soak`."""
IMPORTED = re.compile(r"^\s*(?:from|import) (\S+)", re.MULTILINE)
ASKED = os.environ.get("FAULT_SEED")
SEEDS = [int(ASKED)] if ASKED else [*range(FEW), *(pytest.param(n, marks=pytest.mark.soak) for n in range(FEW, ALL))]


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """Yield the processes and the prepared home of all seeds."""
    with stage(tmp_path_factory.mktemp("whole")) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds_whatever_is_killed_late_or_wrong(ready, seed):
    assert play(ready, seed, steps=STEPS, seconds=10**6).objections == []


def test_a_seed_always_gives_the_same_schedule():
    first, again = (schedule(7) for _ in range(2))
    assert [next(first) for _ in range(500)] == [next(again) for _ in range(500)]


def test_every_invariant_has_a_variant_that_breaks_it():
    assert sorted({*wrong.breaks.values()}) == sorted(checker.invariants())


def test_the_checker_imports_nothing_of_the_system():
    folder = Path(checker.__file__).parent
    files = [*folder.glob("judge_*.py"), *(folder / f"{name}.py" for name in checker.FILES)]
    own = {f"feed_assets_tests.reliability.{file.stem}" for file in files} | {"feed_assets_tests.reliability"}
    named = [module for file in files for module in IMPORTED.findall(file.read_text())]
    assert len(files) > len(checker.FILES)
    assert [name for name in named if name.startswith("feed_assets") and name not in own] == []


@pytest.mark.soak
@pytest.mark.parametrize("variant", sorted(wrong.variants))
def test_a_wrong_variant_is_caught_within_twenty_seeds(ready, variant):
    assert caught(ready, variant, STEPS).seed < SEEDS_OF_A_VARIANT
