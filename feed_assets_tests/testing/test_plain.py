"""Tests of a user's pipeline without Spark: rows of a run are given, and published as usual."""

import re
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import with_automation
from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.source_lines import as_seen_from_here
from feed_assets.feeds import read
from feed_assets.runs.maker import Task
from feed_assets.testing import Given, Harness, PlainMaker, rows_of
from feed_assets_tests.testing.raw_to_out import OUT, RAW, REJECTS, definitions

pytestmark = pytest.mark.usefixtures("home")

ROOT = Path(__file__).parents[2]


def ran(give=None):
    """Return a harness after one update of raw."""
    harness = Harness(definitions(), maker=PlainMaker(give) if give else PlainMaker())
    harness.drop(RAW, "", "n\n1\n")
    harness.run_until_idle()
    return harness


def update(harness: Harness, feed: str):
    return read.require(read.latest(harness.board, Partition(Feed.parse(feed))))


def test_given_rows_and_rejects_are_published_checked_and_reported():
    with ran(lambda task: Given([{"n": 1}, {"n": 2}], rejects=[{"reason": "bad"}])) as harness:
        assert [run.error for run in harness.runs] == [None]
        assert rows_of(harness.board, update(harness, OUT)) == [{"n": 1}, {"n": 2}]
        assert rows_of(harness.board, update(harness, REJECTS)) == [{"reason": "bad"}]
        assert harness.checks("t/out") == {"not_empty": True, "within_n": True}
        assert harness.reported("t/out")[0].metadata["preview"] == "| n |\n| --- |\n| 1 |\n| 2 |"
        assert harness.reported("t/out")[0].metadata["dagster/row_count"] == 2


def test_a_check_given_as_failed_refuses_the_update():
    with ran(lambda task: Given(failed={"within_n": 3})) as harness:
        (run,) = harness.runs
        assert "within_n: n must be in [0, 9]; not in it: 3 of" in run.error
        assert harness.checks("t/out") == {"not_empty": True, "within_n": False}
        assert harness.newest(OUT) is None


def test_a_check_that_the_dataset_has_not_cannot_be_given():
    with ran(lambda task: Given(failed={"withn": 3})) as harness:
        assert re.match(rf"InvalidDefinition: \S+: {OUT} has no check withn", harness.runs[0].error)


def test_an_error_of_the_given_function_fails_the_run():
    def give(task: Task) -> Given:
        raise RuntimeError(f"not {task.output}")

    with ran(give) as harness:
        line = f"{as_seen_from_here(__file__)}:{give.__code__.co_firstlineno + 1}"
        assert {run.error for run in harness.runs} == {f"FunctionFailed: {line}: RuntimeError: not {OUT}"}


def test_without_a_word_a_row_differs_whenever_an_input_does():
    with ran() as harness:
        first = update(harness, OUT)
        assert rows_of(harness.board, first) == [{"raw": [update(harness, RAW).path]}]
        harness.drop(RAW, "", "n\n1\n2\n")
        harness.run_until_idle()
        versions = [reported.version for reported in harness.reported("t/out")]
        assert len({*versions}) == len(versions) == 2


def test_equal_rows_have_an_equal_data_version():
    with ran(lambda task: Given([{"n": 1}])) as harness:
        harness.drop(RAW, "", "n\n1\n2\n")
        harness.run_until_idle()
        first, second = (reported.version for reported in harness.reported("t/out"))
        assert first == second


def test_plain_maker_measures_only_its_own_updates():
    with ran(lambda task: Given([{"n": 1}, {"n": 2}])) as harness:
        version = harness.reported("t/out")[0].version
        assert PlainMaker().measure(harness.board, update(harness, OUT)) == (2, version)
        with pytest.raises(UnreadableUpdate, match="holds no JSON lines"):
            PlainMaker().measure(harness.board, update(harness, RAW))


def test_a_manual_run_on_the_harness_s_instance_uses_its_maker():
    with Harness(definitions(), maker=PlainMaker(lambda task: Given([{"n": 5}]))) as harness:
        harness.drop(RAW, "", "n\n1\n")
        assets = [*harness.definitions.assets]
        assert dg.materialize(assets, instance=harness.instance, selection=["t/out", "t/out_rejects"]).success
        assert rows_of(harness.board, update(harness, OUT)) == [{"n": 5}]


def test_two_harnesses_share_no_maker():
    with Harness(definitions(), maker=PlainMaker(lambda task: Given([{"n": 1}]))) as one, ran() as other:
        one.drop(RAW, "", "n\n1\n2\n")
        one.run_until_idle()
        assert one.reported("t/out")[0].metadata["preview"].startswith("| n |")
        assert other.reported("t/out")[0].metadata["preview"].startswith("| raw |")


def test_the_example_of_the_docs_passes():
    scope: dict = {"__name__": "an_example"}
    for page, found in (("README.md", "def effectiveness"), ("docs/datasets.md", "PlainMaker(give)")):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
        (code,) = [each for each in blocks if found in each][:1]
        exec(compile(code, f"<{page}>", "exec"), scope)  # noqa: S102
    assets = [scope["shown"], scope["clicked"], scope["effectiveness"]]
    scope["test_a_day_that_fails_its_audit_is_not_published"](with_automation(dg.Definitions(assets=assets)))
