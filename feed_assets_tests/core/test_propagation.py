"""The scenarios of "Data Orchestration via Events" (2024), each by its sentence."""

from dataclasses import replace
from time import process_time

from feed_assets.core.events import Operation, encode
from feed_assets.core.propagation import is_whole
from feed_assets_tests.core.arrivals import START, arrived, consumer, due_of, feed, ranges, taken
from feed_assets_tests.support.each_case import each_case

BOTH = {"purchases": ["purchases", "num_purchases_per_day"]}
SUMMARY = consumer("purchases", "num_purchases_per_day", pipelines=BOTH)
ARTICLE = {
    "purchases": ["purchases", "num_purchases_per_day", "purchases_per_buyer"],
    "exchange_rate": ["exchange_rate"],
}
WITH_RATE = ("purchases", "num_purchases_per_day", "purchases_per_buyer", "exchange_rate")


def test_two_tables_of_one_pipeline_only_one_was_updated():
    found = due_of(SUMMARY, arrived(("purchases", "X")))
    assert found.selected == ()
    assert found.slices == ()
    assert found.incomplete[0].missing == {feed("num_purchases_per_day")}
    assert found.incomplete[0].since == arrived(("purchases", "X"))[0].at
    assert found.waits == "update X has not reached num_purchases_per_day (pipeline purchases)"


def test_two_tables_of_one_pipeline_both_were_updated():
    found = due_of(SUMMARY, arrived(("purchases", "X"), ("num_purchases_per_day", "X")))
    assert taken(found) == ["X"]
    assert found.waits is None
    assert ranges(found) == {"purchases": (None, 1), "num_purchases_per_day": (None, 2)}


def test_the_update_did_not_write_anything_new_to_the_second_table_but_there_is_an_event():
    history = arrived(("purchases", "W", 1), ("num_purchases_per_day", "W", 2))
    events = arrived(
        ("purchases", "W", 1),
        ("num_purchases_per_day", "W", 2),
        ("purchases", "X", 5),
        ("num_purchases_per_day", "X", 2),
    )[2:]
    found = due_of(SUMMARY, events, history)
    assert taken(found) == ["X"]
    assert ranges(found)["purchases"] == (1, 5)


@each_case("on_incomplete", ["skip", "block"])
def test_the_update_failed_to_propagate_to_all_the_tables(on_incomplete):
    who = consumer("purchases", "num_purchases_per_day", pipelines=BOTH, on_incomplete=on_incomplete)
    failed = [("purchases", "X")]
    assert not due_of(who, arrived(*failed)).selected
    assert taken(due_of(who, arrived(*failed, ("num_purchases_per_day", "X")))) == ["X"]


FAILED_THEN_GOOD = [("purchases", "X"), ("purchases", "Y"), ("num_purchases_per_day", "Y")]


def test_a_failed_update_is_skipped_and_consumed_once_it_is_repaired():
    found = due_of(SUMMARY, arrived(*FAILED_THEN_GOOD))
    assert taken(found) == ["Y"]
    assert ranges(found) == {"purchases": (1, 2), "num_purchases_per_day": (None, 3)}
    assert [each.correlation for each in found.incomplete] == ["X"]

    every = arrived(*FAILED_THEN_GOOD, ("num_purchases_per_day", "X"))
    rest = [event for event in every if event.correlation == "X"]
    mended = due_of(SUMMARY, rest, every)
    assert taken(mended) == ["X"]
    assert ranges(mended) == {"purchases": (None, 1), "num_purchases_per_day": (3, 4)}


def test_an_update_failed_and_a_later_one_succeeded_blocks_until_it_is_mended():
    who = consumer("purchases", "num_purchases_per_day", pipelines=BOTH, on_incomplete="block")
    found = due_of(who, arrived(*FAILED_THEN_GOOD))
    assert found.selected == ()
    assert found.waits
    mended = due_of(who, arrived(*FAILED_THEN_GOOD, ("num_purchases_per_day", "X")))
    assert taken(mended) == ["X", "Y"]
    assert ranges(mended) == {"purchases": (None, 2), "num_purchases_per_day": (None, 4)}


def test_updates_before_an_incomplete_one_are_not_blocked():
    who = consumer("purchases", "num_purchases_per_day", pipelines=BOTH, on_incomplete="block")
    events = arrived(("purchases", "W"), ("num_purchases_per_day", "W"), *FAILED_THEN_GOOD)
    assert taken(due_of(who, events)) == ["W"]


def test_the_source_now_updates_more_tables_for_the_same_correlation_id():
    more = {"purchases": [*BOTH["purchases"], "purchases_per_buyer"]}
    who = consumer("purchases", "num_purchases_per_day", pipelines=more)
    events = arrived(("purchases", "X"), ("num_purchases_per_day", "X"), ("purchases_per_buyer", "X"))
    assert taken(due_of(who, events)) == ["X"]
    assert taken(due_of(who, events[:2])) == ["X"]


def test_the_source_now_updates_fewer_tables_for_the_same_correlation_id():
    found = due_of(SUMMARY, arrived(("purchases", "X"), ("purchases", "Y"), ("purchases", "Z")))
    assert found.selected == ()
    assert [each.missing for each in found.incomplete] == [{feed("num_purchases_per_day")}] * 3


def test_the_downstream_system_changes_its_upstream_dependencies():
    events = arrived(("purchases", "X"), ("num_purchases_per_day", "X"), ("purchases", "Y"))
    fewer = consumer("purchases", pipelines=BOTH)
    assert taken(due_of(fewer, events)) == ["X", "Y"]
    more = consumer("purchases", "num_purchases_per_day", "purchases_per_buyer", pipelines=ARTICLE)
    assert due_of(more, events).selected == ()


def test_several_pipelines_do_not_wait_for_each_other():
    who = consumer(*WITH_RATE, pipelines=ARTICLE)
    assert taken(due_of(who, arrived(("exchange_rate", "R")))) == ["R"]
    assert taken(due_of(who, arrived(("purchases", "X"), ("exchange_rate", "R")))) == ["R"]


def test_wait_for_multiple_of_these_unrelated_tables_before_propagating_downstream():
    who = consumer(*WITH_RATE, pipelines=ARTICLE, wait_for="all")
    whole = [("purchases", "X"), ("num_purchases_per_day", "X"), ("purchases_per_buyer", "X")]
    found = due_of(who, arrived(*whole))
    assert found.selected == ()
    assert found.waits == "no complete update of exchange_rate"
    assert [each.correlation for each in found.later] == ["X"]
    assert taken(due_of(who, arrived(*whole, ("exchange_rate", "R")))) == ["X", "R"]


def test_a_table_in_no_pipeline_is_a_pipeline_of_its_own():
    who = consumer("purchases", "num_purchases_per_day", "weather", pipelines=BOTH)
    assert who.needed["weather"] == {feed("weather")}
    assert taken(due_of(who, arrived(("weather", "W")))) == ["W"]


def test_an_overwrite_restarts_the_slice_from_the_beginning():
    one = consumer("orders")
    found = due_of(one, arrived(("orders", "A", 1), ("orders", "B", 2, Operation.OVERWRITE), ("orders", "C", 3)))
    assert ranges(found) == {"orders": (None, 3)}
    assert found.slices[0].operations == {Operation.INSERT, Operation.OVERWRITE}
    history = arrived(("orders", "A", 1))
    later = arrived(("orders", "A", 1), ("orders", "B", 2, Operation.OVERWRITE))[1:]
    assert ranges(due_of(one, later, history)) == {"orders": (None, 2)}


def test_markers_of_different_tables_are_never_compared():
    events = arrived(("purchases", "X", 7200), ("num_purchases_per_day", "X", 1), ("purchases", "Y", 7201))
    found = due_of(SUMMARY, events)
    assert taken(found) == ["X"]
    assert ranges(found) == {"purchases": (None, 7200), "num_purchases_per_day": (None, 1)}


def test_two_propagations_at_once_are_one_run_over_both_slices_if_they_may_be_merged():
    events = arrived(
        ("purchases", "X"), ("purchases", "Y"), ("num_purchases_per_day", "Y"), ("num_purchases_per_day", "X")
    )
    assert ranges(due_of(SUMMARY, events)) == {"purchases": (None, 2), "num_purchases_per_day": (None, 4)}
    single = consumer("purchases", "num_purchases_per_day", pipelines=BOTH, merge=False)
    found = due_of(single, events)
    assert taken(found) == ["X"]
    assert [each.correlation for each in found.later] == ["Y"]
    assert ranges(found) == {"purchases": (None, 1), "num_purchases_per_day": (3, 4)}


def test_a_slice_never_spans_skipped_events():
    whole = [("purchases", "W"), ("num_purchases_per_day", "W")]
    found = due_of(SUMMARY, arrived(*whole, *FAILED_THEN_GOOD))
    assert taken(found) == ["W"]
    assert [each.correlation for each in found.later] == ["Y"]


def test_two_events_of_one_table_do_not_count_for_another_table():
    found = due_of(SUMMARY, arrived(("purchases", "X"), ("purchases", "X")))
    assert found.selected == ()
    whole = due_of(SUMMARY, arrived(("purchases", "X"), ("purchases", "X"), ("num_purchases_per_day", "X")))
    assert ranges(whole) == {"purchases": (None, 2), "num_purchases_per_day": (None, 3)}


def test_a_very_first_correlation_id_that_is_partial_is_not_complete():
    """Compare with the article's `count == max(count)`, which accepts it because nothing has more events yet."""
    assert due_of(SUMMARY, arrived(("purchases", "very first"))).selected == ()


def test_an_event_out_of_order_extends_the_slice_back_to_it():
    found = due_of(consumer("orders"), arrived(("orders", "A", 10), ("orders", "B", 20), ("orders", "late", 15))[2:])
    assert ranges(found) == {"orders": (10, 15)}


def test_propagation_is_judged_for_each_partition():
    one = arrived(("purchases", "X"), ("num_purchases_per_day", "X"), key="2010-12-01")
    other = arrived(("purchases", "X"), key="2010-12-02")
    found = due_of(SUMMARY, one + other)
    assert [each.partition_key for each in found.selected] == ["2010-12-01"]
    assert str(found.incomplete[0]) == ("X of 2010-12-02 has not reached num_purchases_per_day (pipeline purchases)")


def test_a_table_of_two_pipelines_is_served_by_the_one_that_is_complete():
    two = {"daily": ["a", "b"], "hourly": ["a", "c"]}
    found = due_of(consumer("a", "b", "c", pipelines=two), arrived(("a", "X"), ("c", "X")))
    assert [each.pipeline for each in found.selected] == ["hourly"]
    assert found.incomplete == ()


def test_consumed_events_count_for_completeness_and_are_not_read_again():
    history = arrived(("purchases", "X"))
    events = arrived(("purchases", "X"), ("num_purchases_per_day", "X"))[1:]
    assert ranges(due_of(SUMMARY, events, history)) == {"num_purchases_per_day": (None, 2)}


def test_without_new_events_nothing_is_due():
    found = due_of(SUMMARY, [])
    assert (found.selected, found.slices, found.waits) == ((), (), None)
    assert due_of(consumer("a", "b", wait_for="all"), []).waits is None


def test_a_slice_is_a_condition_with_both_its_bounds():
    first, second = arrived(("orders", "A", 10), ("orders", "B", 20))
    whole = due_of(consumer("orders"), [first, second]).slices[0]
    assert whole.where("version") == "version <= 20"
    assert due_of(consumer("orders"), [second], [first]).slices[0].where("version") == "version > 10 AND version <= 20"
    by_time = arrived(("orders", "A", START))
    assert due_of(consumer("orders"), by_time).slices[0].where("updated_at") == (
        "updated_at <= '2024-01-01 00:00:00.000000+00:00'"
    )


def test_the_bounds_of_a_slice_are_moments_or_versions():
    (piece,) = due_of(consumer("orders"), arrived(("orders", "A", 10), ("orders", "B", 20))[1:]).slices
    assert (piece.after, piece.upto) == (10, 20)
    (piece,) = due_of(consumer("orders"), arrived(("orders", "A", START))).slices
    assert (piece.after, piece.upto) == (None, START)


EMPTY = {"no_new_data": True}


@each_case("operation", list(Operation))
def test_an_event_without_new_data_is_an_empty_slice_however_it_was_written(operation):
    events = arrived(("orders", "A", 10), ("orders", "B", 20, operation, EMPTY))
    (piece,) = due_of(consumer("orders"), events[1:], events).slices
    assert (piece.after, piece.upto) == (20, 20)
    assert piece.interval.is_empty


def test_the_cure_of_a_stuck_update_reads_nothing_of_the_table_that_was_missing():
    history = arrived(("num_purchases_per_day", "W", 5))
    cured = [
        ("num_purchases_per_day", "W", 5),
        ("purchases", "X", 7),
        ("num_purchases_per_day", "X", 5, Operation.OVERWRITE, EMPTY),
    ]
    found = due_of(SUMMARY, arrived(*cured)[1:], history)
    assert taken(found) == ["X"]
    assert ranges(found) == {"purchases": (None, 7), "num_purchases_per_day": (5, 5)}


def test_an_event_without_new_data_holds_two_slices_together_between_which_it_lies():
    events = arrived(("orders", "A", 10), ("orders", "B", 20, Operation.INSERT, EMPTY), ("orders", "C", 30))
    found = due_of(consumer("orders"), events)
    assert (taken(found), ranges(found)) == (["A", "B", "C"], {"orders": (None, 30)})


TWICE = [("purchases", "X"), ("num_purchases_per_day", "X"), ("purchases", "X")]


def test_a_restarted_propagation_is_a_new_one():
    events = arrived(*TWICE, ("num_purchases_per_day", "X"))
    found = due_of(SUMMARY, events[2:3], events[:3])
    assert found.selected == ()
    assert [each.missing for each in found.incomplete] == [{feed("num_purchases_per_day")}]
    assert taken(due_of(SUMMARY, events[2:], events)) == ["X"]


def test_two_rounds_of_one_correlation_id_wait_side_by_side():
    found = due_of(SUMMARY, arrived(*TWICE))
    assert (taken(found), [each.correlation for each in found.incomplete]) == (["X"], ["X"])
    assert ranges(found) == {"purchases": (None, 1), "num_purchases_per_day": (None, 2)}


def test_a_table_that_publishes_again_before_the_round_is_complete_stays_in_it():
    found = due_of(SUMMARY, arrived(("purchases", "X"), ("purchases", "X"), ("num_purchases_per_day", "X")))
    assert (taken(found), ranges(found)["purchases"]) == (["X"], (None, 2))


def test_rounds_are_counted_for_each_pipeline_of_a_table():
    two = {"daily": ["a", "b"], "hourly": ["a", "c"]}
    who = consumer("a", "b", "c", pipelines=two)
    found = due_of(who, arrived(("a", "X"), ("c", "X"), ("a", "X")))
    assert [(each.pipeline, len(each.events)) for each in found.selected] == [("hourly", 2)]
    assert [(each.pipeline, each.missing) for each in found.incomplete] == [("daily", {feed("b")})]
    assert due_of(who, arrived(("a", "X"), ("c", "X"), ("a", "X"), ("b", "X"))).incomplete == ()


def test_an_event_between_two_events_of_one_update_blocks_neither():
    who = consumer("a", "b", pipelines={"p": ["a", "b"]})
    events = arrived(("a", "X"), ("a", "Y"), ("a", "X"), ("b", "X"))
    first = due_of(who, events)
    assert ranges(first) == {"a": (None, 1), "b": (None, 4)}
    assert taken(first) == ["X"]
    second = due_of(who, [events[1], events[2]], events)
    assert ranges(second) == {"a": (2, 3)}


def test_a_slice_of_which_something_was_consumed_is_not_whole():
    who = consumer("a")
    events = arrived(("a", "X"), ("a", "Y"), ("a", "Z"))
    (piece,) = due_of(who, events).slices
    assert is_whole(piece, events[::-1])
    assert not is_whole(piece, events[1:])
    assert not is_whole(piece, [events[0], events[2]])
    assert not is_whole(piece, [])


def test_ten_thousand_events_are_judged_within_a_tick():
    who = consumer("a", "b", pipelines={"p": ["a", "b"]})
    events = arrived_at_once([f"X{number}" for number in range(5000)], "ab")
    began = process_time()
    assert len(due_of(who, events).selected) == 5000
    assert process_time() - began < 2


def arrived_at_once(correlations, tables):
    """Return one event for each table and correlation id; unlike `arrived`, in linear time."""
    found = []
    for marker, correlation in enumerate(correlations, 1):
        for table in tables:
            one = arrived((table, correlation, marker))[0]
            found.append(replace(one, sequence=len(found) + 1, previous=encode(marker - 1), start=encode(marker - 1)))
    return found
