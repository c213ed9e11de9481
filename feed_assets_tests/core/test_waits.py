"""Conditions besides inputs: times after the end of a partition, and how many of its inputs are enough."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from feed_assets import Wait
from feed_assets.core.completeness import WindowState
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.facts import Built, Facts, KnownWindow
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import AbsentInput, UpdateInput, WindowInput
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import Need, State, decide
from feed_assets.core.spans import Span
from feed_assets.core.waits import Waits, waits_of
from feed_assets.core.windows import window_at
from feed_assets_tests.support.each_case import each_case

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
START, END = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)
NOW = END + 2 * HOUR
FOO, BAR = Feed.parse("web/foo/v1.0"), Feed.parse("web/bar/v1.0")
TABLE = Feed.parse("web/table")
OUT = Partition(Feed.parse("web/out/v1.0"), "2026-01-02")
PARTS = [Partition(FOO, f"2026-01-02-{hour:02}:00") for hour in range(4)]
WINDOWS = tuple(window_at("hour", f"2026-01-02-{hour:02}:00", "UTC") for hour in range(4))


def pin(partition: Partition, version: str = "1") -> Pin:
    return Pin(partition, "20260102.010000", version, 10, 1)


def verdict(need: Need, **known):
    (found,) = decide([need], Facts(**{"now": NOW, **known}))
    return found


@each_case(
    ("wait", "earliest"),
    [
        (Wait(), None),
        (Wait(delay=HOUR), END + HOUR),
        (Wait(earliest="0 0 * * *"), END),
        (Wait(earliest="0 6 * * *"), END + 6 * HOUR),
        (Wait(earliest="0 6 * * *", delay=7 * HOUR), END + 30 * HOUR),
        (Wait(earliest="0 6 * * *", delay=6 * HOUR), END + 6 * HOUR),
        (Wait(earliest="0 6 * * *", tz="Asia/Singapore"), END + 22 * HOUR),
        (Wait(earliest="0 6 * * *", tz="+08:00"), END + 22 * HOUR),
    ],
)
def test_the_earliest_time_is_the_first_tick_at_or_after_the_end_and_the_delay(wait, earliest):
    assert waits_of(wait, START, END, "UTC").earliest == earliest


def test_all_times_count_from_the_end_of_the_partition():
    wait = Wait(deadline=3 * HOUR, warn=2 * HOUR, at_least="23 of 24", after=HOUR)
    assert waits_of(wait, START, END, "UTC") == Waits(
        None, END + HOUR, 23, 24, END + 2 * HOUR, END + 3 * HOUR, clock_changes=False
    )


@each_case(
    ("options", "said"),
    [
        ({"at_least": "23 of 24"}, ": Wait: no after, expected both: `at_least` inputs are enough"),
        ({"after": HOUR}, ": Wait: no at_least, expected both: `at_least` inputs are enough"),
        ({"at_least": "25 of 24", "after": HOUR}, "such as '23 of 24'"),
        ({"at_least": "0 of 24", "after": HOUR}, "such as '23 of 24'"),
        ({"at_least": "most", "after": HOUR}, "such as '23 of 24'"),
        ({"earliest": "0 6 * *"}, r": Wait: the cron is '0 6 \* \*', expected a cron of five fields"),
        ({"earliest": "0 6 * * *", "tz": "Mars"}, ": Wait: the zone is 'Mars', expected a time zone"),
        ({"warn": HOUR}, ": Wait: `warn` is 1:00:00 and `deadline` not given, expected a deadline later than `warn`"),
        (
            {"warn": HOUR, "deadline": HOUR},
            ": Wait: `warn` is 1:00:00 and `deadline` 1:00:00, expected a deadline later",
        ),
        ({"delay": -HOUR}, "a time of 0 or more"),
        ({"deadline": timedelta(days=10**8)}, "deadline is .*, expected at most 3660 days"),
        ({"at_least": "２ of ３", "after": HOUR}, "such as '23 of 24'"),
    ],
)
def test_an_impossible_wait_is_refused_at_declaration(options, said):
    with pytest.raises(InvalidDefinition, match=said):
        Wait(**options)


def test_a_partition_is_checked_again_at_its_earliest_build_time():
    need = Need(OUT, (UpdateInput(PARTS[0]),), waits=Waits(earliest=NOW + MINUTE))
    found = verdict(need, newest={PARTS[0]: pin(PARTS[0])})
    assert (found.state, found.look_again) == (State.WAITS_FOR_TIME, NOW + MINUTE)
    assert found.reason == "it is not built before 2026-01-03 02:01:00 UTC"
    due = replace(need, waits=Waits(earliest=NOW))
    assert verdict(due, newest={PARTS[0]: pin(PARTS[0])}).state is State.BUILD


def test_a_closed_partition_is_neither_built_nor_late_and_names_who_closed_it():
    need = Need(OUT, (UpdateInput(PARTS[0]),), waits=Waits(earliest=NOW + MINUTE))
    found = verdict(need, newest={PARTS[0]: pin(PARTS[0])}, closed={OUT: "closed by ann: 2024 is final"})
    assert (found.state, found.reason, found.look_again) == (State.CLOSED, "closed by ann: 2024 is final", None)


ENOUGH = Waits(after=NOW, least=3, total=4)
FOUR = tuple(map(UpdateInput, PARTS))


def there(*numbers: int) -> dict[Partition, Pin]:
    return {PARTS[number]: pin(PARTS[number]) for number in numbers}


@each_case(
    ("waits", "hours", "state", "look_again", "said"),
    [
        (
            replace(ENOUGH, after=NOW + MINUTE),
            (0, 1, 3),
            State.WAITS_FOR_INPUT,
            NOW + MINUTE,
            "no valid update of web/foo/v1.0 2026-01-02-02:00; from 2026-01-03 02:01:00 UTC on it is built without "
            "them, because 3 of 4 are enough",
        ),
        (
            ENOUGH,
            (0, 1, 3),
            State.BUILD,
            None,
            "it has no valid update, and 3 of 4 are enough: without web/foo/v1.0 2026-01-02-02:00",
        ),
        (
            ENOUGH,
            (0, 3),
            State.WAITS_FOR_INPUT,
            None,
            "no valid update of web/foo/v1.0 2026-01-02-01:00, web/foo/v1.0 2026-01-02-02:00; 3 of 4 are enough, 2 are "
            "there",
        ),
        (
            replace(ENOUGH, after=NOW + MINUTE),
            (0, 1, 2, 3),
            State.BUILD,
            None,
            "it has no valid update, and every input is there",
        ),
        (
            replace(ENOUGH, total=24, least=23, clock_changes=True),
            (0, 1, 3),
            State.BUILD,
            None,
            "it has no valid update, and 23 of 24 are enough: without web/foo/v1.0 2026-01-02-02:00",
        ),
    ],
    ids=["it waits so long", "then it goes on", "too few", "all are there", "as many may be missing of 23 hours"],
)
def test_so_many_of_so_many_are_enough_after_a_while(waits, hours, state, look_again, said):
    found = verdict(Need(OUT, FOUR, waits=waits), newest=there(*hours))
    assert (found.state, found.reason, found.look_again) == (state, said, look_again)
    assert [each.partition for each in found.pins] == [PARTS[hour] for hour in hours]


def test_a_partial_build_needs_at_least_one_partition_of_each_input():
    one = UpdateInput(Partition(BAR, "2026-01-02"))
    found = verdict(Need(OUT, (*FOUR, one), waits=Waits(after=NOW, least=4, total=5)), newest=there(0, 1, 2, 3))
    assert found.state is State.WAITS_FOR_INPUT
    said = f"4 of 5 are enough, 4 are there, and no partition of {BAR} is there: at least one is needed"
    assert found.reason.endswith(said)


def test_an_input_partition_that_does_not_exist_yet_counts_as_missing():
    need = Need(OUT, (*map(UpdateInput, PARTS[:3]), AbsentInput(PARTS[3])), waits=ENOUGH)
    assert verdict(need, newest=there(0, 1, 2)).state is State.BUILD
    assert verdict(need, newest=there(0, 1)).state is State.WAITS_FOR_INPUT


def test_inputs_after_a_partial_build_are_late_data_and_the_missing_are_named():
    need, pins = Need(OUT, FOUR, waits=ENOUGH), there(0, 1, 3)
    built = {OUT: Built("20260103.020000", tuple(pins.values()))}
    current = verdict(need, newest=pins, outputs=built)
    assert (current.state, current.reason) == (
        State.CURRENT,
        "update 20260103.020000 was built from the newest inputs, without web/foo/v1.0 2026-01-02-02:00",
    )
    late = verdict(need, newest=there(0, 1, 2, 3), outputs=built)
    grown = "web/foo/v1.0 2026-01-02-02:00: was not there before (all together 30 to 40 bytes)"
    assert (late.state, late.reason) == (State.REBUILD, grown)


def test_the_declared_total_must_equal_the_number_of_needed_inputs():
    with pytest.raises(InvalidDefinition, match="needs 4 partitions of its inputs, but at_least is '23 of 24'"):
        Waits(after=NOW, least=23, total=24).refuse(OUT, 4)
    Waits(after=NOW, least=23, total=24, clock_changes=True).refuse(OUT, 23)
    Waits().refuse(OUT, 4)


def test_a_day_in_which_the_clock_changes_needs_another_number_of_hours():
    zone, wait = ZoneInfo("Europe/Berlin"), Wait(at_least="23 of 24", after=HOUR)
    start, end = datetime(2026, 3, 29, tzinfo=zone), datetime(2026, 3, 30, tzinfo=zone)
    assert waits_of(wait, start, end, "Europe/Berlin").clock_changes
    assert not waits_of(wait, start - timedelta(days=1), start, "Europe/Berlin").clock_changes


WINDOWED = WindowInput(Span(TABLE, "", START, START + 4 * HOUR, WINDOWS))
AT = WINDOWED.windows
COMPLETE = KnownWindow(WindowState.COMPLETE, "", 10, 7, data=1)


def known(**states: KnownWindow) -> dict[Partition, KnownWindow]:
    """Return four complete hours, except those replaced by name, such as `h2`."""
    return {at: states.get(f"h{number}", COMPLETE) for number, at in enumerate(AT)}


def test_a_partial_build_pins_the_complete_windows_of_a_table():
    need = Need(OUT, (replace(WINDOWED, is_partial=True),), waits=ENOUGH)
    found = verdict(need, windows=known(h2=KnownWindow()))
    assert (found.state, [each.partition for each in found.pins]) == (State.BUILD, [AT[0], AT[1], AT[3]])
    assert found.reason.endswith("3 of 4 are enough: without web/table hour@2026-01-02-02:00")


def test_a_partial_build_ignores_the_quality_of_missing_inputs():
    bad = {PARTS[2]: "half of it is lost"}
    assert verdict(Need(OUT, FOUR, waits=ENOUGH), newest=there(0, 1, 3), failed=bad).state is State.BUILD
    read = verdict(Need(OUT, FOUR, waits=ENOUGH), newest=there(0, 1, 2), failed=bad)
    assert read.state is State.WAITS_FOR_QUALITY


def test_a_partial_build_needs_no_checks_of_missing_windows():
    need = Need(OUT, (replace(WINDOWED, is_partial=True, checks=("no_bots",)),), waits=ENOUGH)
    passed = {(at, "no_bots"): "" for at in AT if at != AT[2]}
    assert verdict(need, windows=known(h2=KnownWindow()), checks=passed).state is State.BUILD
    assert verdict(need, windows=known(h1=KnownWindow()), checks=passed).state is State.WAITS_FOR_QUALITY


CHECKED = Need(OUT, (UpdateInput(PARTS[0], checks=("no_bots", "sum"), made_checks=frozenset({"sum"})),))


@each_case(
    ("checks", "state", "said"),
    [
        ({}, State.WAITS_FOR_QUALITY, "(check no_bots has no result yet)"),
        ({"no_bots": ""}, State.BUILD, "every input is there"),
        ({"no_bots": "41 % are bots"}, State.WAITS_FOR_QUALITY, "(check no_bots: 41 % are bots)"),
        ({"no_bots": "", "sum": "off"}, State.WAITS_FOR_QUALITY, "(check sum: off)"),
        ({"no_bots": "", "other": "bad"}, State.BUILD, "every input is there"),
    ],
    ids=["no result is not a pass", "known", "failed", "the input's own", "others' failures are not heeded"],
)
def test_an_input_with_named_checks_waits_only_for_these(checks, state, said):
    known_checks = {(PARTS[0], name): why for name, why in checks.items()}
    found = verdict(CHECKED, newest=there(0), checks=known_checks, failed={PARTS[0]: "whatever"})
    assert (found.state, found.reason.endswith(said)) == (state, True), found.reason


def test_windows_with_named_checks_wait_for_these_and_ignore_the_state():
    need = Need(OUT, (replace(WINDOWED, checks=("no_bots",)),))
    states = known(h2=KnownWindow(WindowState.INVALID, "something else", 10, 8, data=1))
    passed = {(at, "no_bots"): "" for at in AT}
    assert verdict(need, windows=states, checks=passed).state is State.BUILD
    found = verdict(need, windows=states, checks={**passed, (AT[1], "no_bots"): "41 % are bots"})
    assert found.reason == "hour 2026-01-02-01:00 of web/table: check no_bots: 41 % are bots"


def test_a_waiver_holds_for_the_very_problem_that_it_was_given_for():
    need, bots = Need(OUT, (UpdateInput(PARTS[0]),)), {PARTS[0]: "41 % are bots"}
    assert verdict(need, newest=there(0), failed=bots, waived=bots).state is State.BUILD
    other = verdict(need, newest=there(0), failed={PARTS[0]: "no rows"}, waived=bots)
    assert other.state is State.WAITS_FOR_QUALITY
    invalid = known(h2=KnownWindow(WindowState.INVALID, "41 % are bots", 10, 8, data=1))
    windowed = Need(OUT, (WINDOWED,))
    assert verdict(windowed, windows=invalid, waived={AT[2]: "41 % are bots"}).state is State.BUILD
    assert verdict(windowed, windows=invalid, waived={AT[2]: "other"}).state is State.WAITS_FOR_QUALITY


def test_a_waiver_still_covers_a_partly_repaired_problem():
    need, both = Need(OUT, (UpdateInput(PARTS[0]),)), {PARTS[0]: "41 % are bots; no rows"}
    assert verdict(need, newest=there(0), failed={PARTS[0]: "no rows"}, waived=both).state is State.BUILD
    assert verdict(need, newest=there(0), failed=both, waived={PARTS[0]: "no rows"}).state is State.WAITS_FOR_QUALITY


def test_a_waiver_holds_for_named_checks_that_failed_but_stands_for_no_result():
    waived = {PARTS[0]: "41 % are bots"}
    failed = {(PARTS[0], "no_bots"): "41 % are bots", (PARTS[0], "sum"): ""}
    assert verdict(CHECKED, newest=there(0), checks=failed, waived=waived).state is State.BUILD
    assert verdict(CHECKED, newest=there(0), checks={}, waived=waived).state is State.WAITS_FOR_QUALITY
    of_windows = Need(OUT, (replace(WINDOWED, checks=("no_bots",)),))
    bots = {(at, "no_bots"): "41 % are bots" * (at == AT[2]) for at in AT}
    assert verdict(of_windows, windows=known(), checks=bots).state is State.WAITS_FOR_QUALITY
    assert verdict(of_windows, windows=known(), checks=bots, waived={AT[2]: "41 % are bots"}).state is State.BUILD


def test_a_feed_s_windows_count_only_for_its_named_checks():
    counted = replace(WINDOWED, counted=(PARTS[0],), checks=("no_bots",))
    need = Need(OUT, (UpdateInput(PARTS[0], checks=("no_bots",)), counted))
    invalid, passed = known(h2=KnownWindow(WindowState.INVALID, "off", 10, 8, data=1)), {(PARTS[0], "no_bots"): ""}
    assert verdict(need, newest=there(0), windows=invalid, checks=passed).state is State.BUILD
    failed = {**passed, (AT[2], "no_bots"): "41 % are bots"}
    assert verdict(need, newest=there(0), windows=invalid, checks=failed).state is State.WAITS_FOR_QUALITY


def reprocessed(reprocess: str, data: int, position: int = 9):
    """Return the verdict on an output whose third hour was backfilled after the build."""
    states = known(h2=KnownWindow(WindowState.BACKFILLED, "", 10, position, data=data))
    consumed = tuple(found for at in AT if (found := COMPLETE.pin(at)))
    need = Need(OUT, (WINDOWED,), reprocess=reprocess)  # type: ignore[arg-type]
    return verdict(need, windows=states, outputs={OUT: Built("20260103.020000", consumed, changed=8)})


@each_case(
    ("reprocess", "data", "state"),
    [
        ("if_data_changed", 1, State.CURRENT),
        ("if_data_changed", 2, State.REBUILD),
        ("always", 1, State.REBUILD),
        ("always", 2, State.REBUILD),
        ("never", 1, State.CURRENT),
        ("never", 2, State.CURRENT),
    ],
)
def test_each_reprocess_policy_has_its_effect_after_a_backfill(reprocess, data, state):
    assert reprocessed(reprocess, data).state is state


def test_always_is_once_for_each_backfill():
    assert reprocessed("always", 1).reason == (
        "web/table hour@2026-01-02-02:00 was backfilled since 20260103.020000: such inputs are always read again"
    )
    assert reprocessed("always", 1, position=7).state is State.CURRENT


def test_changes_after_a_backfill_are_late_data_despite_reprocess_never():
    states = known(h2=KnownWindow(WindowState.COMPLETE, "", 12, 10, data=3))
    consumed = tuple(found for at in AT if (found := COMPLETE.pin(at)))
    need = Need(OUT, (WINDOWED,), reprocess="never")
    assert verdict(need, windows=states, outputs={OUT: Built("20260103.020000", consumed)}).state is State.REBUILD


def test_partitions_of_a_feed_whose_hour_was_backfilled_make_nothing_stale_for_never():
    hours = tuple(
        WindowInput(Span(FOO, "", window.start, window.end, (window,)), counted=(part,))
        for part, window in zip(PARTS, WINDOWS, strict=True)
    )
    states = {each.windows[0]: COMPLETE for each in hours} | {
        hours[2].windows[0]: KnownWindow(WindowState.BACKFILLED, "", 10, 9, data=2)
    }
    need = Need(OUT, (*FOUR, *hours), reprocess="never")
    built = {OUT: Built("20260103.020000", tuple(there(0, 1, 2, 3).values()), changed=8)}
    newest = {**there(0, 1, 2, 3), PARTS[2]: pin(PARTS[2], "2")}
    assert verdict(need, windows=states, newest=newest, outputs=built).state is State.CURRENT
    other = {**there(0, 1, 2, 3), PARTS[1]: pin(PARTS[1], "2")}
    assert verdict(need, windows=states, newest=other, outputs=built).state is State.REBUILD
