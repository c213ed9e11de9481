"""Seeds of a fault test: a tenth or less in `make test-all`, all in `make soak`, one by FAULT_SEED."""

import os
import re
from collections.abc import Callable

import pytest


def seeds(few: int, all_of_them: int, in_make_test: int = 0) -> list:
    """Return parameters for a test that takes a range of seeds. `make test` may run the first ones alone."""
    if one := os.environ.get("FAULT_SEED"):
        return [pytest.param(range(int(one), int(one) + 1), id=f"seed {one}")]
    full = pytest.param(range(all_of_them), id=f"{all_of_them} seeds", marks=pytest.mark.soak)
    if in_make_test:
        first = pytest.param(range(in_make_test), id=f"{in_make_test} seeds")
        return [first, pytest.param(range(in_make_test, few), id=f"seeds {in_make_test} to {few - 1}"), full]
    return [pytest.param(range(few), id=f"{few} seeds"), full]


def single_seeds(first: int, last: int) -> list:
    """Return one parameter for each seed: the first, or FAULT_SEED, in `make test-all`, the others in `make soak`."""
    asked = int(os.environ.get("FAULT_SEED", first))
    return [asked, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(first, last) if seed != asked)]


def assert_caught(case: Callable[[int], object], said: str, first: int = 0) -> None:
    """Fail unless a wrong way fails its test within a hundred seeds, and for the right reason.

    `first` is a seed that is known to catch it: a search for one takes time.
    """
    for seed in range(first, first + 100):
        try:
            case(seed)
        except AssertionError as error:
            assert re.search(said, str(error))  # noqa: PT017
            return
    pytest.fail("a hundred seeds did not catch it")
