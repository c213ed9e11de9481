"""Behaviour of every event source: each kind of database and file, with markers of both kinds."""

import json
import random

import pytest

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.events import Operation
from feed_assets.sources.event_rows import Columns, Constant
from feed_assets_tests.support.foreign_tables import Files, Topics, event, read_all, row


def rows(theirs, *numbers):
    return [row(number, theirs.markers) for number in numbers]


def events(theirs, *numbers):
    return [event(number, theirs.markers) for number in numbers]


def test_events_come_in_order_and_each_once_in_batches_of_any_size(theirs):
    theirs.add(rows(theirs, 1, 2, 3))
    theirs.add(rows(theirs, 4, 5))
    for limit in (1, 2, 3, 4, 5, 6, 100):
        found, rejected, _ = read_all(theirs.source(), limit=limit)
        assert (limit, found, rejected) == (limit, events(theirs, 1, 2, 3, 4, 5), [])


def test_events_after_the_position_are_read_exactly_once(theirs):
    source, position, found = theirs.source(), None, []
    for number in range(1, 13):
        theirs.add(rows(theirs, number))
        if number % 2:
            new, _, position = read_all(source, position)
            found += new
    new, _, position = read_all(source, position)
    assert found + new == events(theirs, *range(1, 13))
    assert read_all(theirs.source(), position) == ([], [], position)


def test_a_lost_position_reads_everything_again(theirs):
    theirs.add(rows(theirs, 1, 2, 3))
    first = read_all(theirs.source())
    theirs.add(rows(theirs, 4))
    assert read_all(theirs.source())[0] == [*first[0], *events(theirs, 4)]


def test_an_empty_table_has_nothing_and_no_position(theirs):
    batch = theirs.source().read(None, 10)
    assert (batch.events, batch.position, batch.is_complete, batch.waits) == ((), None, True, None)


def test_a_row_that_is_no_event_is_kept_with_its_reason_beside_the_others(theirs):
    bad = [row(2, theirs.markers, correlation_id=None), row(3, theirs.markers, write_operation="APPEND")]
    bad += [row(4, theirs.markers, context="[1]"), row(5, theirs.markers, table_name="no name!")]
    theirs.add([row(1, theirs.markers), *bad, row(6, theirs.markers)])
    found, rejected, _ = read_all(theirs.source(), limit=1)
    assert found == events(theirs, 1, 6)
    reasons = [
        "correlation_id: found ''",
        "found 'APPEND', expected one of OVERWRITE",
        "expected a JSON object",
        "'no name!'",
    ]
    assert [said in each.reason for said, each in zip(reasons, rejected, strict=True)] == [True] * 4
    assert json.loads(rejected[1].raw)["write_operation"] == "APPEND"


def test_their_columns_may_have_other_names_or_not_be_there(theirs):
    theirs.add([row(1, theirs.markers, write_operation="delete", partition_key=None, context=None)])
    columns = Columns(
        table_name=Constant("retail/other"),
        marker="event_marker",
        event_marker=None,
        correlation_id="table_name",
        partition_key="correlation_id",
        context=None,
    )
    found = theirs.source(columns).read(None, 10).events[0]
    assert (found.table_name, found.correlation_id, found.partition_key) == (
        "retail/other",
        "retail/purchases/v1.0",
        "c-1",
    )
    assert found.marker == found.event_marker == event(1, theirs.markers).marker
    assert found.write_operation is Operation.DELETE
    found = theirs.source().read(None, 10).events[0]
    assert (found.partition_key, found.context) == ("", {})


def test_other_columns_are_taken_into_the_context_if_that_is_declared(theirs):
    theirs.add([row(1, theirs.markers)])
    found = theirs.source(Columns(partition_key=None, context=None, others_in_context=True)).read(None, 10).events[0]
    assert found.context["partition_key"] == "p-1"
    assert json.loads(found.context["context"]) == {"records": 1}


def test_without_an_operation_it_is_an_upsert(theirs):
    theirs.add([row(1, theirs.markers, write_operation=None)])
    assert theirs.source().read(None, 10).events[0].write_operation is Operation.UPSERT
    theirs.add([row(2, theirs.markers, write_operation="OVERWRITE")])
    found, _, _ = read_all(theirs.source(Columns(write_operation=None)))
    assert {each.write_operation for each in found} == {Operation.UPSERT}


def test_a_missing_column_is_reported_with_the_existing_ones(theirs):
    theirs.add(rows(theirs, 1))
    source = theirs.source(Columns(correlation_id="run_id"))
    if isinstance(theirs, Topics) or (isinstance(theirs, Files) and theirs.format == "jsonl"):  # Each has its own.
        assert "run_id" in source.read(None, 10).rejected[0].reason
        return
    with pytest.raises(SourceUnavailable, match=r"run_id") as raised:
        source.read(None, 10)
    assert "table_name" in str(raised.value)
    assert "correlation_id" in str(raised.value)


def test_a_position_of_another_declaration_is_the_beginning(theirs):
    theirs.add([row(1, theirs.markers, write_operation="wrong"), row(2, theirs.markers)])
    found, rejected, position = read_all(theirs.source())
    assert (found, len(rejected)) == (events(theirs, 2), 1)
    mended = theirs.source(Columns(write_operation=Constant("UPSERT")))
    assert read_all(mended, position)[0] == events(theirs, 1, 2)


@pytest.mark.parametrize("seed", range(5))
def test_readers_that_die_at_any_moment_lose_nothing(theirs, seed):
    dice, position, kept, number = random.Random(seed), None, set(), 0  # noqa: S311
    for _ in range(25):
        action = dice.choice(["add", "read", "read", "die", "forget"])
        if action == "add":
            more = dice.randint(1, 4)
            theirs.add(rows(theirs, *range(number + 1, number + more + 1)))
            number += more
        elif action == "forget":
            position = dice.choice([position, None])
        else:
            batch = theirs.source().read(position, dice.randint(1, 3))
            if action == "read":  # Else it died before what it read was kept.
                kept |= {each.correlation_id for each in batch.events}
                position = batch.position
    found, _, _ = read_all(theirs.source(), position)
    assert kept | {each.correlation_id for each in found} == {f"c-{each}" for each in range(1, number + 1)}, (
        f"seed {seed}"
    )
