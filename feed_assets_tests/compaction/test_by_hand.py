"""`feed-assets feed compact`: the job's compaction by hand, without a wait for complete windows."""

import json
import re
import sys
from importlib import import_module

import pytest

from feed_assets import Compact
from feed_assets.cli import compact_command, main
from feed_assets.compaction.due_partitions import due
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.errors import NotAsDeclared
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, quality, runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings
from feed_assets.testing import Given, PlainMaker
from feed_assets_tests.support import appended_world, sum_projects
from feed_assets_tests.support.appended_world import OUTPUT, SALES, compacted_rows, held
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, SUMS, UNLUCKY, chain, rows
from feed_assets_tests.support.versioned_shop import Shop

explain = import_module("feed_assets.cli.explain")  # The package has the command of this name.
SORTED = Compact(sort_by=("k",), files=1)
SUMS_FEED = Feed.parse(SUMS)
BOTH = [Partition(SUMS_FEED, key) for key in (DAY, NEXT_DAY)]


@pytest.fixture
def command(home, monkeypatch, capsys):
    """Return a function that runs `feed compact` on a world's definitions: its exit code, stdout and stderr."""
    recipes = []

    def give(task):
        recipes.append(task.recipe)
        return compacted_rows(task)

    rewritten = Services.of(settings(), lambda: PlainMaker(give))
    monkeypatch.setattr(compact_command, "open_services", lambda **_: rewritten)

    def run(world, *arguments, of=("feed", "compact")):
        graph = Graph(world.definitions.resolve_asset_graph())
        monkeypatch.setattr(compact_command, "load_graph", lambda module: graph)
        monkeypatch.setattr(explain, "load_graph", lambda module: graph)
        monkeypatch.setattr(sys, "argv", ["feed-assets", *of, *arguments])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
        return ended.value.code or 0, *capsys.readouterr()

    run.recipes = recipes
    yield run
    sum_projects.opened.close()


def built(**options):
    """Return a world with two built partitions, whose job `compact` has not run yet."""
    world = chain(**options)
    for key in (DAY, NEXT_DAY):
        world.drop(RAW, key, rows(1, 2))
    world.tick()
    return world


def report(partition, state):
    with open_ledger(settings().ledger).change() as connection:
        quality.report(connection, partition, "seen", state, "the sums are odd", "eve", utc_now())


def test_a_partition_is_compacted_by_hand_although_its_windows_are_not_complete(command):
    world = built(compact=SORTED)
    before = world.newest(SUMS, DAY)
    with open_ledger(settings().ledger).read() as connection:
        of_day = [WindowAddress(SUMS_FEED, "", "day", DAY)]
        assert due(connection, SUMS_FEED, SORTED, lambda _: of_day, now=utc_now()) == []
    would = {"partition": DAY, "before": before, "after": "", "files_before": 1, "files_after": 1}
    assert json.loads(command(world, SUMS, DAY, "--json")[1]) == [would]
    assert world.newest(SUMS, DAY) == before
    code, out, _ = command(world, SUMS, DAY, "--apply")
    assert (code, out.splitlines()[-1]) == (0, "1 partitions were compacted")
    assert world.newest(SUMS, DAY) > before
    code, out, _ = command(world, SUMS, DAY, "--apply")
    assert code == 0
    assert out.endswith("no newest update was written by a run and has the files for it: 1 or more, and any size\n")
    code, out, _ = command(world, SUMS)
    assert out.splitlines()[-1] == "1 partitions would be compacted: add --apply"
    assert command(world, SUMS, "--least", "2")[1].startswith("no newest update"), "each has one file"
    check_refused(command, world)


def check_refused(command, world):
    """Check that a dataset of other definitions, or without an update of ours, is not compacted."""
    code, _, errors = command(sum_projects.harness(sum_projects.raw_feed("t/other/v1.0")), SUMS)
    assert (code, "is no dataset of the definitions" in errors) == (1, True)
    code, _, errors = command(world, "t/nothing/v1.0")
    assert (code, "has no update that our runs wrote" in errors) == (1, True)


def test_show_and_explain_name_the_update_that_was_compacted(command):
    world = built(compact=SORTED)
    before = world.newest(SUMS, DAY)
    command(world, SUMS, DAY, "--apply")
    after = world.newest(SUMS, DAY)
    for of in (["feed", "show"], ["feed", "ls"]):
        shown = json.loads(command(world, SUMS, DAY, "--json", of=of)[1])
        history = shown["history"] if of[1] == "show" else shown
        assert {each["id"]: each["compacted_from"] for each in history} == {after: before, before: ""}
    reason = json.loads(command(world, SUMS, DAY, "--json", of=["explain"])[1])["reason"]
    assert f"its update {after} was compacted from {before}, with the same rows" in reason
    assert "compact" not in command(world, SUMS, NEXT_DAY, of=["explain"])[1]
    wrong = Services.of(settings(), lambda: PlainMaker(lambda task: Given([{"k": "a", "n": 4}])))
    with pytest.raises(NotAsDeclared):
        compact_partition(wrong, BOTH[1], SORTED)
    reason = json.loads(command(world, SUMS, NEXT_DAY, "--json", of=["explain"])[1])["reason"]
    assert re.search(r"compaction failed and is not tried again before 20.* UTC: .*the compaction has 1 rows", reason)


def test_blocked_partitions_are_left_out_by_hand_and_by_the_job(command):
    world = built()
    report(BOTH[0], "failed")
    world.drop(RAW, NEXT_DAY, rows(UNLUCKY))
    world.tick()
    world = chain(compact=SORTED)
    ids = [world.newest(SUMS, at.key) for at in BOTH]
    reasons = [
        f"{BOTH[0]} is not compacted, because a check blocks its readers: seen: the sums are odd. Repair that first.",
        f"{BOTH[1]} is not compacted, because its last build failed: FunctionFailed: ",
    ]
    for options in ((), ("--apply",)):
        code, out, errors = command(world, SUMS, *options)
        assert (code, out.splitlines()[-1][:16]) == (0, "no newest update")
        for at, why in zip(BOTH, reasons, strict=True):
            assert f"left out: {why}" in errors
            assert (command(world, SUMS, at.key, *options)[0], why in command(world, SUMS, at.key)[2]) == (1, True)
    job = world.definitions.resolve_job_def("compact")
    config = {"ops": {"compact_partitions": {"config": {"dataset": SUMS, "partitions": [DAY, NEXT_DAY]}}}}
    assert job.execute_in_process(instance=world.instance, run_config=config).success
    assert [world.newest(SUMS, at.key) for at in BOTH] == ids
    with open_ledger(settings().ledger).read() as connection:
        assert len(runs.open_attempts(connection, BOTH)) == 1, "a compaction would have ended the count of failures"
    report(BOTH[0], "passed")
    closures.close(open_ledger(settings().ledger), [BOTH[0]], by="eve", why="booked", now=utc_now())
    assert "closed by eve" in command(world, SUMS, DAY)[2]


def test_batches_are_compacted_by_hand_in_the_order_of_the_dataset_and_not_while_a_check_fails(command, tmp_path):
    shop = Shop(tmp_path)
    world = appended_world.world(shop, [], compact=Compact(sort_by=("key",), files=9))
    for key in "abc":
        shop.write(key)
        world.tick()
        world.tick()
    assert len(held()) == 3
    report(OUTPUT, "failed")
    code, _, errors = command(world, str(SALES), "", "--least", "2", "--apply")
    assert (code, "because a check blocks its readers" in errors, len(held())) == (1, True, 3)
    report(OUTPUT, "passed")
    code, out, _ = command(world, str(SALES), "", "--least", "2", "--apply")
    assert (code, out.splitlines()[-1], len(held())) == (0, "1 batches were made of 3", 1)
    assert " was compacted from older batches" in command(world, str(SALES), of=["explain"])[1]
    assert [recipe.transform.sort_by for recipe in command.recipes] == [("key",)]
