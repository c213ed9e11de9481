"""Each check passing and failing, with the sample that a person sees."""

import re
from dataclasses import replace

import pytest

from feed_assets.core.errors import InvalidDefinition, UpdateAbandoned
from feed_assets.runs import checks
from feed_assets.runs.checks import Audited, Check
from feed_assets.runs.outcomes import ROWS_PER_SAMPLE, results, run_checks
from feed_assets_tests.support.each_case import each_case


def audited(frame, rejected=0, records=None, **inputs):
    return Audited(frame, frame.count() if records is None else records, rejected, inputs, inputs)


@pytest.fixture
def frame(spark):
    def make(schema, *rows):
        return spark.createDataFrame([*rows], schema)

    return make


@each_case(
    ("check", "schema", "rows", "found", "sample"),
    [
        pytest.param(checks.not_null("a", "b"), "a int, b int", [(1, 2)], 0, [], id="no NULL"),
        pytest.param(
            checks.not_null("a", "b"),
            "a int, b int",
            [(1, 2), (None, 3), (4, None), (None, None)],
            3,
            [{"a": None, "b": 3}, {"a": 4, "b": None}, {"a": None, "b": None}],
            id="NULLs",
        ),
        pytest.param(checks.not_null("a.b"), "`a.b` int", [(None,)], 1, [{"a.b": None}], id="NULL below a dot"),
        pytest.param(checks.within("ctr", 0, 1), "ctr double", [(0.0,), (1.0,)], 0, [], id="on the limits"),
        pytest.param(
            checks.within("ctr", 0, 1),
            "ctr double",
            [(-0.1,), (0.5,), (1.1,), (None,)],
            3,
            [{"ctr": -0.1}, {"ctr": 1.1}, {"ctr": None}],
            id="below, above and missing",
        ),
        pytest.param(checks.within("n", 1, 3), "n int", [(0,), (3,)], 1, [{"n": 0}], id="an integer out of range"),
        pytest.param(checks.unique("a"), "a int, b int", [(1, 2), (2, 2)], 0, [], id="no key twice"),
        pytest.param(
            checks.unique("a"),
            "a int, b int",
            [(1, 2), (1, 3), (1, 4), (5, 6)],
            2,
            [{"a": 1, "_rows": 3}],
            id="a key three times",
        ),
        pytest.param(
            checks.unique("a", "b"),
            "a int, b int",
            [(1, 2), (1, 3), (1, 2)],
            1,
            [{"a": 1, "b": 2, "_rows": 2}],
            id="a key of two columns",
        ),
        pytest.param(checks.unique("a"), "a int", [(None,), (None,)], 1, [{"a": None, "_rows": 2}], id="NULL twice"),
        pytest.param(
            checks.unique("count"), "count int", [(1,), (1,)], 1, [{"count": 1, "_rows": 2}], id="a column called count"
        ),
        pytest.param(checks.unique("a.b"), "`a.b` int", [(1,), (1,)], 1, [{"a.b": 1, "_rows": 2}], id="a dot in it"),
    ],
)
def test_a_row_check_counts_and_shows_violating_rows(frame, check, schema, rows, found, sample):
    (result,) = run_checks([check], audited(frame(schema, *rows)))
    assert (result.passed, result.number, list(result.sample)) == (found == 0, found, sample)


@pytest.mark.parametrize(("rows", "passed"), [([], False), ([(1,)], True)], ids=["no row", "one row"])
def test_an_update_must_hold_a_row(frame, rows, passed):
    (result,) = run_checks([checks.not_empty()], audited(frame("id int", *rows)))
    assert (result.passed, result.number) == (passed, len(rows))


def test_a_value_that_is_no_number_lies_in_no_range(frame):
    (result,) = run_checks([checks.within("ctr", 0, 1)], audited(frame("ctr double", (float("nan"),))))
    assert (result.passed, result.number) == (False, 1)


def test_a_sample_is_a_handful_however_much_is_wrong(frame):
    (result,) = run_checks([checks.not_null("a")], audited(frame("a int", *[(None,)] * 20)))
    assert (result.number, len(result.sample)) == (20, ROWS_PER_SAMPLE)


@pytest.mark.parametrize(
    ("at_least", "passed"), [(0.5, True), (0.75, True), (0.76, False), (1.0, False)], ids=["50", "75", "76", "100"]
)
def test_a_share_of_clicks_must_have_their_impression(frame, at_least, passed):
    clicked = frame("id int", (1,), (1,), (2,), (9,))
    shown = frame("id int", (1,), (1,), (2,), (3,))
    check = checks.references("clicked", "shown", on="id", at_least=at_least)
    (result,) = run_checks([check], audited(clicked, clicked=clicked, shown=shown))
    assert (result.passed, result.number) == (passed, 0.75)


def test_keys_are_compared_as_numbers_and_the_other_columns_do_not_matter(frame):
    clicked, shown = frame("rows int, id int", (7, 1), (7, 1), (7, 2)), frame("id bigint, known int", (1, 5), (1, 5))
    check = checks.references("clicked", "shown", on="id")
    (result,) = run_checks([check], audited(clicked, clicked=clicked, shown=shown))
    assert result.number == 2 / 3


def test_references_passes_for_an_empty_update(frame):
    none = frame("id int")
    check = checks.references("clicked", "shown", on="id")
    (result,) = run_checks([check], audited(none, clicked=none, shown=none))
    assert (result.passed, result.number) == (True, 1.0)


def test_a_click_without_an_id_has_no_impression(frame):
    ids = frame("`the id` int", (None,))
    check = checks.references("clicked", "shown", on="the id")
    (result,) = run_checks([check], audited(ids, clicked=ids, shown=ids))
    assert (result.passed, result.number) == (False, 0.0)


def test_all_shares_are_found_in_one_job(spark, frame):
    clicked, shown = frame("id int, item int", (1, 7), (2, 7), (3, 8)), frame("id int, item int", (1, 7), (2, 9))
    some = {"shown": ("id", 2 / 3), "items": ("item", 2 / 3), "none": ("id", 0.0)}
    made = [checks.references("clicked", parent, on=on) for parent, (on, _) in some.items()]
    given = audited(clicked, clicked=clicked, shown=shown, items=shown, none=shown.limit(0))
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup
    before = len(jobs(None))
    results([replace(each, passes=lambda _: True) for each in made], {}, given)
    assert len(jobs(None)) - before == 1
    assert [each.number for each in run_checks(made, given)] == [share for _, share in some.values()]


def test_keys_without_their_row_are_named_those_of_the_most_rows_first(frame):
    ids = [(9,), (9,), (9,), (8,), (8,), (None,), (4,), (5,), (6,), (7,), (1,)]
    clicked, shown = frame("`the.id` int", *ids), frame("`the.id` bigint, known int", (1, 5), (None, 5))
    check = checks.references("clicked", "shown", on="the.id", at_least=0.5)
    (result,) = run_checks([check], audited(clicked, clicked=clicked, shown=shown))
    assert result.sample == tuple({"the.id": key, "rows": rows} for key, rows in _NAMED)
    assert result.message.endswith(
        "; found 9.1%; not in shown, such as: 9 (3 rows), 8 (2 rows), NULL (1 row), 4 (1 row), 5 (1 row)"
    )


_NAMED = (9, 3), (8, 2), (None, 1), (4, 1), (5, 1)


def test_a_long_key_is_cut_in_the_message_alone_and_is_one_line(frame):
    clicked = frame("id string", ("a\nb" + "c" * 100,))
    check = checks.references("clicked", "shown", on="id")
    (result,) = run_checks([check], audited(clicked, clicked=clicked, shown=clicked.limit(0)))
    assert result.message.endswith(f"such as: a b{'c' * 36}… (1 row)")
    assert result.sample[0]["id"] == "a\nb" + "c" * 100


def test_a_passed_check_names_no_rows(frame):
    clicked = frame("id int", (1,), (2,))
    check = checks.references("clicked", "shown", on="id", at_least=0.5)
    (result,) = run_checks([check], audited(clicked, clicked=clicked, shown=clicked.limit(1)))
    assert (result.sample, result.explanation, result.rejected) == ((), "", 0)


def emptied(frame, *reasons, rejected=None):
    """Return the outcome of `not_empty` when all records were rejected with these reasons."""
    rejects = frame("reason string, file string, raw string", *((each, "f", "r") for each in reasons))
    none = frame("id int")
    given = Audited(none, 0, len(reasons) if rejected is None else rejected, {}, {}, lambda: rejects)
    return run_checks([checks.not_empty()], given)[0]


def test_an_empty_update_says_how_many_were_rejected_and_the_most_frequent_reasons(frame):
    result = emptied(frame, "a: missing", "a: missing; b: not an int", "b: not an int", "b: not an int", "c", "d", "d")
    assert result.sample == tuple(
        {"reason": reason, "records": count} for reason, count in (("b: not an int", 3), ("a: missing", 2), ("d", 2))
    )
    assert result.rejected == 7
    assert result.message.endswith(
        "; found 0 rows; 7 rejected, most often for 'b: not an int' (3), 'a: missing' (2), 'd' (2)"
    )


def test_not_empty_says_that_no_record_was_rejected(frame):
    result = emptied(frame, "never read", rejected=0)
    assert (result.sample, result.message.split("; ")[-1]) == ((), "no record was rejected")


def test_not_empty_of_a_dataset_without_rejects_does_not_mention_them(frame):
    (result,) = run_checks([checks.not_empty()], audited(frame("id int")))
    assert result.message == "not_empty: the update must hold at least one row; found 0 rows"


@pytest.mark.parametrize(
    ("rejected", "found"),
    [pytest.param(1, 0, id="all"), pytest.param(0, 1, id="one was lost"), pytest.param(2, -1, id="one came twice")],
)
def test_check_compares_rows_in_with_clean_and_rejected_rows(frame, rejected, found):
    read, written = frame("id int", (1,), (2,), (3,)), frame("id int", (1,), (2,))
    (result,) = run_checks([checks.accounted()], audited(written, rejected, raw=read))
    assert (result.number, result.passed) == (found, found == 0)


def test_rows_in_are_those_of_all_inputs(frame):
    one, two = frame("id int", (1,)), frame("id int", (2,), (3,))
    (result,) = run_checks([checks.accounted()], audited(two, 1, one=one, two=two))
    assert result.passed


def test_every_check_is_run_and_answered_in_its_order(frame):
    every = [checks.not_empty(), checks.unique("a"), checks.not_null("a"), checks.within("a", 0, 9)]
    results = run_checks(every, audited(frame("a int", (1,), (1,))))
    assert [(result.check.name, result.passed) for result in results] == [
        ("not_empty", True),
        ("unique_a", False),
        ("not_null_a", True),
        ("within_a", True),
    ]


def test_without_checks_it_is_still_seen_that_rows_are_missing(frame):
    with pytest.raises(UpdateAbandoned, match="1 rows were read back where 2 were written"):
        run_checks([], audited(frame("a int", (1,)), records=2))


def test_a_message_says_what_was_expected_and_found(frame):
    (result,) = run_checks([checks.within("ctr", 0, 1)], audited(frame("ctr double", (2.0,), (0.5,))))
    assert result.message == "within_ctr: ctr must be in [0, 1]; not in it: 1 of 2 rows"


def test_a_message_counts_what_its_check_counts(frame):
    made = [checks.not_null("a"), checks.unique("a"), checks.not_empty(), checks.references("x", "y", "a")]
    rows = frame("a int", (1,), (1,), (None,))
    results = run_checks(made, audited(rows, x=rows, y=rows.limit(0)))
    assert [each.message.split("; ")[1] for each in results] == [
        "lacking it: 1 of 3 rows",
        "repeated: 1 of 3 rows",
        "found 3 rows",
        "found 0.0%",
    ]
    assert results[-1].message.endswith("; found 0.0%; not in y, such as: 1 (2 rows), NULL (1 row)")


def test_a_check_of_one_s_own_is_an_aggregate_and_a_rule(frame):
    few = Check("few", "at most one row", lambda found: found <= 1, "count(1)")
    (result,) = run_checks([few], audited(frame("a int", (1,), (2,))))
    assert (result.passed, result.number, result.sample) == (False, 2, ())


@each_case("make", [checks.not_null, checks.unique])
def test_a_check_of_no_column_is_refused(make):
    with pytest.raises(InvalidDefinition, match="was given no column"):
        make()


def test_a_severity_is_a_value_or_what_a_function_says_of_the_number():
    some = Check("a", "b", bool, "count(1)", severity=lambda found: "WARN" if found < 3 else "ERROR")
    assert [some.severity_of(found) for found in (2, 3)] == ["WARN", "ERROR"]
    assert (checks.not_empty().severity_of(0), checks.not_empty().warn().severity_of(0)) == ("ERROR", "WARN")


def test_an_invalid_severity_is_refused():
    wrong = Check("a", "b", bool, "count(1)", severity=lambda found: "warn")
    with pytest.raises(InvalidDefinition, match="its severity for 2 is 'warn', expected 'ERROR' or 'WARN'"):
        wrong.severity_of(2)


@each_case(
    ("schema", "why"),
    [
        ("item int", "check clicked_in_shown: input 'shown' has no column 'id': expected one of item. Correct"),
        ("id string", "check clicked_in_shown: 'id' is int in 'clicked', string in 'shown': expected one type."),
    ],
)
def test_keys_that_cannot_be_compared_are_named_with_their_check(frame, schema, why):
    clicked, shown = frame("id int", (1,)), frame(schema)
    with pytest.raises(InvalidDefinition, match=re.escape(why)):
        run_checks([checks.references("clicked", "shown", on="id")], audited(clicked, clicked=clicked, shown=shown))
