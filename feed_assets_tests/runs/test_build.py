"""One partition from its pinned inputs to a published update, with real Spark on a local blackboard."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import InvalidDefinition, InvalidName, NoValidUpdate, UnreadableUpdate
from feed_assets.core.feeds import MANIFEST, Partition
from feed_assets.core.pins import Pin
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate
from feed_assets.ledger import updates
from feed_assets.ledger.tables import update as table
from feed_assets.runs import checks
from feed_assets.runs.build import build
from feed_assets.runs.phases import Published, Refused, Unchanged
from feed_assets.runs.recipe import RecipeInput
from feed_assets.spark.rejects import reject
from feed_assets_tests.support.build_lake import (
    CLEAN,
    CLEANING,
    DAY,
    RAW,
    REJECTS,
    SCHEMA,
    TOP,
    TOPPING,
    Lake,
    at,
    rows,
    stepping,
)

ONE, TWO, BAD = f"1,{DAY} 01:00:00", f"2,{DAY} 02:00:00", f"x,{DAY} 03:00:00"
RAW_DAY, CLEAN_DAY, REJECTS_DAY = Partition(RAW, DAY), Partition(CLEAN, DAY), Partition(REJECTS, DAY)
MAYBE = checks.Check("not_two", "id 2 must not occur", lambda found: found == 0, "count_if(id = 2)")


class Mistake(Exception):
    """Raised by a user's function."""


def test_an_update_is_published_with_its_rejects_before_it(lake):
    lake.drop(ONE, BAD, TWO)
    built = lake.clean()
    assert isinstance(built, Published)
    assert [output.partition.feed for output in built.outputs] == [REJECTS, CLEAN]
    assert [output.written.records for output in built.outputs] == [1, 2]
    assert [row[0] for row in rows(lake)] == [1, 2]
    ((reason, file, raw),) = rows(lake, REJECTS)
    assert reason.startswith("id: ")
    assert (file, raw) == (f"{RAW_DAY.path}/{lake.valid(RAW).id}/part-0.csv", BAD)


def test_a_manifest_counts_exactly_the_parts_that_were_written(lake):
    lake.drop(ONE)
    (rejects, main) = lake.clean().outputs
    for output in (rejects, main):
        path = f"{output.partition.path}/{output.id}"
        assert lake.services.board.get(f"{path}/{MANIFEST}") == str(len(output.written.files)).encode()
        listed = {file.key for file in lake.services.board.files(path)}
        assert listed == {f"{path}/{MANIFEST}", *(file.key for file in output.written.files)}


def test_the_ledger_records_the_written_update(lake):
    lake.drop(ONE, TWO)
    output = lake.clean().outputs[-1]
    row = lake.newest()
    assert (row.id, row.version, row.records) == (output.id, output.written.data_version, 2)
    assert (row.size, row.files) == (output.written.bytes, len(output.written.files))
    assert (row.code_version, row.state) == ("1", updates.PUBLISHED)
    with lake.services.ledger.read() as connection:
        times = connection.execute(sa.select(table.c.first, table.c.last).where(updates.is_(CLEAN_DAY))).one()
    assert tuple(times) == (at(1), at(2))


def test_measuring_a_written_update_again_gives_the_same_result(lake):
    lake.drop(ONE, TWO)
    output = lake.clean().outputs[-1]
    measured = lake.services.maker().measure(lake.services.board, lake.valid())
    assert measured == (2, output.written.data_version)


def test_an_update_that_spark_cannot_read_is_refused_by_measure(lake):
    bad = lake.drop(ONE)
    with pytest.raises(UnreadableUpdate, match=rf"{bad.path}.* cannot be read"):
        lake.services.maker().measure(lake.services.board, bad)


def test_the_lineage_names_the_inputs_and_the_rejects(lake):
    dropped = lake.drop(ONE)
    built = lake.clean()
    with lake.services.ledger.read() as connection:
        inputs = updates.consumed_by(connection, CLEAN_DAY, built.outputs[-1].id)
        every = connection.exec_driver_sql("SELECT input_feed, position, is_input FROM consumed ORDER BY 1").all()
    assert inputs == built.pins == (Pin(RAW_DAY, dropped.id, dropped.files_digest, dropped.size, 1),)
    assert [tuple(row) for row in every] == [
        (str(REJECTS), built.outputs[0].id, 0),
        (str(RAW), dropped.id, 1),
    ]


def test_a_preview_and_a_chart_come_with_what_was_published(lake):
    lake.drop(ONE)
    built = lake.clean(chart=lambda frame: f"{frame.count()} rows")
    assert (built.preview.splitlines()[0], built.chart) == ("| id | at |", "1 rows")


def test_equal_pins_publish_nothing(lake):
    lake.drop(ONE)
    first = lake.clean()
    before = lake.objects()
    assert lake.clean() == Unchanged(CLEAN_DAY, first.outputs[-1].id, first.pins)
    assert (lake.objects(), lake.running(), lake.bad_ends()) == (before, [], [])


def test_equal_rows_of_a_newer_input_are_a_new_update_with_the_same_data_version(lake):
    lake.drop(ONE, TWO)
    first = lake.clean().outputs[-1]
    lake.drop(TWO, ONE)
    second = lake.clean().outputs[-1]
    assert second.id > first.id
    assert second.written.data_version == first.written.data_version


def test_a_rebuild_with_equal_rows_does_not_propagate(lake):
    lake.drop(ONE, TWO)
    lake.clean()
    top = lake.top().outputs[-1].id
    lake.drop(TWO, ONE)
    lake.clean()
    assert lake.top() == Unchanged(Partition(TOP, DAY), top, (lake.newest().pin,))


def test_a_new_code_version_rebuilds_from_equal_pins(lake):
    lake.drop(ONE)
    lake.clean()
    assert isinstance(lake.clean(code_version="2"), Published)
    assert lake.newest().code_version == "2"


def test_a_named_older_update_is_read(lake):
    first = lake.drop(ONE)
    lake.drop(ONE, TWO)
    built = lake.clean(named={RAW_DAY: first.id})
    assert [pin.update_id for pin in built.pins] == [first.id]
    assert [row[0] for row in rows(lake)] == [1]


def test_a_named_older_update_of_ours_is_pinned_by_the_digest_of_its_rows(lake):
    lake.drop(ONE)
    first = lake.clean().outputs[-1]
    lake.drop(ONE, TWO)
    lake.clean()
    named = {CLEAN_DAY: first.id}
    built = build(TOPPING, Partition(TOP, DAY), {"clean": [CLEAN_DAY]}, lake.services, named)
    assert built.pins == (
        Pin(CLEAN_DAY, first.id, first.written.data_version, first.written.bytes, len(first.written.files)),
    )


def test_a_named_update_that_is_not_valid_is_an_error(lake):
    lake.drop(ONE)
    with pytest.raises(NoValidUpdate, match=r"no valid update 20180516\.120000: it has no manifest"):
        lake.clean(named={RAW_DAY: "20180516.120000"})


def test_a_roll_back_of_an_input_is_built(lake):
    first, second = lake.drop(ONE), lake.drop(ONE, TWO)
    lake.clean()
    invalidate(lake.services.board, RAW_DAY, second.id)
    assert [pin.update_id for pin in lake.clean().pins] == [first.id]
    assert lake.states(RAW) == [updates.PUBLISHED, updates.INVALIDATED]


def test_an_output_that_was_invalidated_is_built_again_from_equal_pins(lake):
    lake.drop(ONE)
    first = lake.clean().outputs[-1].id
    invalidate(lake.services.board, CLEAN_DAY, first)
    assert isinstance(lake.clean(), Published)
    assert lake.states() == [updates.INVALIDATED, updates.PUBLISHED]


def test_a_function_that_asks_for_it_gets_the_partition(lake):
    asked = []

    def remember(raw, partition):
        asked.append(partition)
        return raw

    lake.drop(ONE)
    lake.clean(transform=remember, wants=frozenset({"partition"}))
    assert asked == [CLEAN_DAY]


def test_rows_of_an_input_that_fans_in_tell_their_partition(lake):
    for key, line in {"2019-11-24": ONE, "2019-11-25": TWO}.items():
        lake.drop(line, key=key)
        lake.clean(key)
    sources = (RecipeInput("clean", CLEAN, fans_in=True),)
    lake.top(["2019-11-24", "2019-11-25"], sources=sources, transform=lambda clean: clean.select("id", "_partition"))
    assert rows(lake, TOP) == [(1, "2019-11-24"), (2, "2019-11-25")]


@pytest.mark.parametrize("batch", ["", "/batch"])
def test_records_of_a_foreign_input_that_fans_in_do_so_too_and_are_read_as_one_frame(lake, batch):
    keys, plans = ("2019-11-24", "2019-11-24+1"), []
    for key, line in zip(keys, (ONE, TWO), strict=True):
        lake.drop(line, key=f"{key}{batch}")

    def watching(raw):
        plans.append(raw._jdf.queryExecution().analyzed().toString())
        return raw

    source = RecipeInput("raw", RAW, "csv", SCHEMA, fans_in=True, is_appendable=bool(batch))
    inputs = {"raw": [Partition(RAW, key) for key in keys]}
    build(replace(CLEANING, sources=(source,), transform=watching), CLEAN_DAY, inputs, lake.services)
    assert [(row[0], row[2]) for row in rows(lake)] == [(1, keys[0]), (2, keys[1])]
    assert plans[0].count("Union") == 0


def test_a_tagged_input_reaches_the_function_with_what_does_not_parse(lake):
    sources = (RecipeInput("raw", RAW, "csv", SCHEMA, tagged=True),)

    def no_two(raw):
        return reject(raw, raw.id == 2, "id: is two")

    lake.drop(ONE, TWO, BAD)
    lake.clean(sources=sources, transform=no_two, checks=(checks.accounted(),))
    assert [row[0] for row in rows(lake)] == [1]
    assert [(row[0].split(":")[0], row[2]) for row in rows(lake, REJECTS)] == [("id", TWO), ("id", BAD)]


@pytest.mark.parametrize(
    ("tagged", "transform"),
    [
        (True, lambda raw: raw.select("id", "at")),
        (False, lambda raw: raw.selectExpr("*", "'' AS _raw", "'' AS _file", "array('bad') AS _reasons")),
    ],
)
def test_rows_with_reasons_come_from_tagged_inputs_and_from_nothing_else(lake, tagged, transform):
    lake.drop(ONE)
    with pytest.raises(InvalidDefinition, match="Keep the three columns, or take the input untagged"):
        lake.clean(sources=(RecipeInput("raw", RAW, "csv", SCHEMA, tagged=tagged),), transform=transform)


def test_rejects_that_are_none_and_a_preview_take_no_job(lake, spark):
    """Use one job, which writes the rows and counts for the check."""
    sources = (RecipeInput("raw", RAW, "csv", SCHEMA, tagged=True),)
    jobs = {}

    def count(step):
        jobs[step] = max(spark.sparkContext.statusTracker().getJobIdsForGroup(None), default=-1)

    lake.drop(ONE, TWO)
    lake.clean(sources=sources, services=stepping(lake, count), checks=(checks.not_empty(),))
    assert jobs["audited"] - jobs["claimed in the ledger"] == 1
    assert jobs[f"parts of {REJECTS} written"] == jobs[f"parts of {CLEAN} written"]
    assert rows(lake, REJECTS) == []


def test_rows_that_a_function_drops_without_a_reason_are_not_accounted_for(lake):
    sources = (RecipeInput("raw", RAW, "csv", SCHEMA, tagged=True),)
    lake.drop(ONE, TWO, BAD)
    refused = lake.clean(sources=sources, transform=lambda raw: raw.where("id = 1"), checks=(checks.accounted(),))
    assert isinstance(refused, Refused)
    assert refused.reason.endswith("differing by 2 rows")


def test_rows_that_a_function_never_asks_for_are_not_accounted_for(lake):
    """Count records that the function does not read; counting on the way would miss them."""
    sources = (RecipeInput("raw", RAW, "csv", SCHEMA, tagged=True),)
    lake.drop(ONE, TWO, BAD)
    refused = lake.clean(sources=sources, transform=lambda raw: raw.limit(1), checks=(checks.accounted(),))
    assert isinstance(refused, Refused)
    assert refused.reason.endswith("differing by 2 rows")


def test_a_parsed_input_accounts_for_what_did_not_parse(lake):
    lake.drop(ONE, TWO, BAD)
    assert isinstance(lake.clean(checks=(checks.accounted(),)), Published)


def test_an_input_without_an_update_is_named(lake):
    with pytest.raises(NoValidUpdate, match=r"ads/raw/v1\.0 2019-11-24 has no update: there is nothing at"):
        lake.clean()
    assert [state for state, _ in lake.bad_ends()] == [updates.ABANDONED]


def test_an_input_without_a_valid_update_is_named_with_the_reasons(lake):
    dropped = lake.drop(ONE)
    lake.services.board.put(f"{dropped.path}/more", b"")
    with pytest.raises(NoValidUpdate, match=rf"{dropped.id}: its manifest says 1 files and there are 2"):
        lake.clean()


def test_an_input_in_another_format_is_named(lake):
    dropped = lake.drop(ONE)
    with pytest.raises(UnreadableUpdate, match=rf"{dropped.path}/part-0.csv is not as declared: its header is"):
        lake.clean(sources=(replace(CLEANING.sources[0], schema="other int, at timestamp"),))


def test_spark_refuses_an_in_memory_blackboard(lake):
    memory = Lake(replace(lake.services, board=Blackboard.open("memory://")))
    memory.drop(ONE)
    with pytest.raises(InvalidName, match=r"Spark cannot read a blackboard at 'memory://'.*use a file:// URL"):
        memory.clean()
    assert (memory.states(), memory.running()) == ([updates.ABANDONED], [])


def test_every_step_is_announced_in_its_order(lake):
    steps = []
    lake.drop(ONE)
    lake.clean(services=stepping(lake, steps.append))
    assert steps == [
        "started",
        "pinned",
        "claimed on the blackboard",
        "claimed in the ledger",
        f"parts of {CLEAN} written",
        f"parts of {REJECTS} written",
        "statistics in the ledger",
        "audited",
        f"manifest of {REJECTS} written",
        f"manifest of {CLEAN} written",
        "published",
    ]
