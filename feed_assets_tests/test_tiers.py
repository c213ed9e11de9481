"""Every test has one tier, every promise its tests, and `make test` stays small."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.tiers import (
    IN_MAKE_TEST,
    PLACES,
    PROMISES,
    TESTS,
    TIERS,
    Tier,
    place_of,
    servers_of,
    tiers_of_parameters,
)

MOST_TESTS = 4_000
"""Maximum number of tests in `make test`."""
MARKS = {tier.mark for tier in Tier}


def test_each_file_has_a_place_and_each_place_has_tests():
    places = set()
    for file in TESTS.rglob("test_*.py"):
        functions = re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        places |= {place_of(file), *(place_of(file, function) for function in functions)}
    assert places == {*TIERS}
    assert len(TIERS) == sum(map(len, PLACES.values()))


def test_each_test_of_this_session_has_exactly_one_tier(request):
    marks = {item.nodeid: MARKS & {mark.name for mark in item.iter_markers()} for item in request.session.items}
    assert {test: found for test, found in marks.items() if len(found) != 1} == {}


@each_case(
    ("value", "tiers"),
    [
        ("local", [Tier.FAST]),
        ("csv on s3", [Tier.FAST, Tier.FAST, Tier.SERVERS]),
        ("sqlite by marker", [Tier.FAST, Tier.FAST, Tier.SLOW]),
        ("lost by kafka", []),
        (3, []),
    ],
)
def test_a_parameter_raises_the_tier_if_it_names_an_implementation_and_nothing_else(value, tiers):
    item = SimpleNamespace(callspec=SimpleNamespace(params={"any": value}))
    assert [*tiers_of_parameters(item)] == tiers


@each_case(("names", "refused"), [(["tmp_path"], []), (["seaweedfs", "spark", "home"], ["seaweedfs", "spark"])])
def test_a_fast_test_that_got_a_server_is_refused(names, refused):
    item = SimpleNamespace(_request=SimpleNamespace(_fixture_defs=dict.fromkeys(names)))
    assert servers_of(item) == refused


SMALL_CONFTEST = """
from pathlib import Path
import pytest
from feed_assets_tests import tiers

tiers.TESTS = Path(__file__).parent
tiers.TIERS["test_small.py"] = tiers.Tier.FAST

@pytest.fixture
def broker():
    return "a server"
"""
SMALL_TESTS = """
def test_needs_no_server():
    pass

def test_names_its_server(broker):
    pass

def test_gets_a_server_while_it_runs(request):
    request.getfixturevalue("broker")
"""


def test_a_fast_test_that_gets_a_server_while_it_runs_fails(tmp_path):
    (tmp_path / "conftest.py").write_text(SMALL_CONFTEST)
    (tmp_path / "test_small.py").write_text(SMALL_TESTS)
    plugins = ["-p", f"{TESTS.name}.conftest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    settings = ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *plugins, *settings, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    printed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False).stdout
    assert "3 passed, 1 error" in printed, printed
    assert "found ['broker'] in a test of the tier fast; expected none" in printed
    assert "ERROR at teardown of test_gets_a_server_while_it_runs" in printed


@pytest.fixture(scope="module")
def collected(pytestconfig):
    """Return the names of the tests that `make test` runs. Collect them if this run has not collected everything."""
    if tests := pytestconfig.stash.get(IN_MAKE_TEST, None):
        return tests
    options = ["--collect-only", "-q", "-o", "addopts=", "-m", "(fast or promise) and not soak"]
    command = [sys.executable, "-m", "pytest", *options, str(TESTS)]
    printed = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout
    return [line.removeprefix(f"{TESTS.name}/") for line in printed.splitlines() if "::" in line]


def test_make_test_stays_below_its_limit_of_tests(collected):
    assert 1_000 < len(collected) <= MOST_TESTS


def test_each_promise_names_existing_tests(collected):
    gone = {
        name
        for names in PROMISES.values()
        for name in names
        if not any(test == name or test.startswith((f"{name}::", f"{name}[")) for test in collected)
    }
    assert gone == set()


class Recorder:
    """Stand-in for pytest's `subtests` that notes failures."""

    def __init__(self):
        self.failed = {}

    def test(self, msg):
        recorder = self

        class Block:
            def __enter__(self):
                return self

            def __exit__(self, _kind, error, _traceback):
                if error is not None:
                    recorder.failed[msg] = str(error)
                return True

        return Block()


def test_a_table_reports_each_row_that_fails():
    @each_case("number", [1, 2, 3, pytest.param(4, id="four")])
    def odd(number):
        if number % 2 == 0:
            raise ValueError(number)

    recorder = Recorder()
    odd(recorder)
    assert recorder.failed == {"(2,)": "2", "four": "4"}


def test_two_tables_are_every_pair_of_their_rows():
    seen = []

    @each_case("left", "ab")
    @each_case(("right", "more"), [(1, 2), (3, 4)])
    def note(left, right, more):
        seen.append((left, right, more))

    note(Recorder())
    assert seen == [("a", 1, 2), ("a", 3, 4), ("b", 1, 2), ("b", 3, 4)]


def test_a_row_with_marks_is_refused():
    with pytest.raises(ValueError, match="on a row, which is no test of its own"):
        each_case("name", [pytest.param("a", marks=pytest.mark.soak)])


def test_a_table_without_rows_is_refused():
    with pytest.raises(ValueError, match="expected at least one row"):
        each_case("name", [])
