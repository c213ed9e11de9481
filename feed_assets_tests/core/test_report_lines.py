"""Any line of JSON is a report, or is refused with the found and expected values."""

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.errors import InvalidReport
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed
from feed_assets.core.limits import ROW_BYTES
from feed_assets.core.report_lines import QualityReport, parse_report
from feed_assets.core.reports import Report
from feed_assets_tests.support.each_case import each_case

AT, NEXT = (datetime(2026, 1, 1, 15, minute, tzinfo=UTC) for minute in (50, 55))
WINDOWS = [{"start": "2026-01-01T15:50:00Z", "records": 7}, {"start": "2026-01-01T15:55:00Z", "records": 1234}]
PLACE = {"dataset": "web/foo", "sub_partition": {"region": "utc"}}
PART = {"kind": "part", **PLACE, "part": "s3://lake/foo/part-1", "windows": WINDOWS, "offsets": {"0": [10, 20]}}
SOURCE = {"kind": "source", **PLACE, "tier": "kafka", "windows": WINDOWS}
QUALITY = {"kind": "quality", **PLACE, "grain": "hour", "start": "2026-01-01T15:00:00Z", "check": "no_bots"}
QUALITY |= {"state": "failed", "reason": "half are bots\nof one network"}
FOO = Feed.parse("web/foo")
MORE = {"version": 3, "records": 1241, "min": "2026-01-01T15:50:01Z", "max": "2026-01-01T15:59:59.5Z", "batch": "b"}
MORE |= {"snapshot": 4711, "schema": "id int,\n at timestamp"}


def parsed(record, **changed):
    return parse_report(json.dumps({**record, **changed}))


def refusal(record, **changed):
    with pytest.raises(InvalidReport) as refused:
        parsed(record, **changed)
    return str(refused.value)


def test_a_part_is_one_report_with_counts_of_windows_even_in_a_repeated_hour():
    (report,) = parsed(PART)
    assert report == Report(
        FOO, "region=utc", "s3://lake/foo/part-1", ((AT, 7), (NEXT, 1234)), offsets='{"0": [10, 20]}'
    )
    assert report.tier == ""
    twice = datetime(2024, 11, 3, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    counts = Report(FOO, "", "part", ((twice, 1), (twice.replace(fold=1), 2))).counts
    assert counts == '[["2024-11-03-05:30", 1], ["2024-11-03-06:30", 2]]'


def test_optional_fields_of_a_report_are_kept():
    (report,) = parsed(PART, **MORE)
    assert (report.version, report.records, report.snapshot, report.batch) == (encode(3), 1241, "4711", "b")
    assert (report.first, report.last) == (AT + timedelta(seconds=1), NEXT + timedelta(seconds=299.5))
    assert report.schema == "id int,\n at timestamp"


def test_a_part_may_have_no_window_at_all():
    (report,) = parsed(PART, windows=[])
    assert report.windows == ()


def test_a_source_without_a_part_is_a_report_for_each_window():
    assert parsed(SOURCE, records=1241, batch="b") == (
        Report(FOO, "region=utc", "2026-01-01T15:50Z", ((AT, 7),), "kafka", batch="b"),
        Report(FOO, "region=utc", "2026-01-01T15:55Z", ((NEXT, 1234),), "kafka", batch="b"),
    )


def test_a_source_may_name_a_part_which_is_replaced_whole():
    (report,) = parsed(SOURCE, part="consumer 1", offsets={"0": [0, 9]})
    assert (report.tier, report.part, report.windows) == ("kafka", "consumer 1", ((AT, 7), (NEXT, 1234)))


def test_however_a_source_spreads_its_windows_the_reports_are_the_same():
    each = tuple(report for window in WINDOWS for report in parsed(SOURCE, windows=[window]))
    assert each == parsed(SOURCE, windows=WINDOWS[::-1])[::-1] == parsed(SOURCE)


def test_quality_is_of_one_window():
    found = parsed(QUALITY)
    assert found == QualityReport(
        FOO, "region=utc", "hour", AT.replace(minute=0), "no_bots", "failed", QUALITY["reason"]
    )


def test_quality_has_a_version_if_it_names_one():
    assert parsed(QUALITY).version is None
    assert parsed(QUALITY, version=0).version == f"{0:020d}"
    assert "version: found null" in refusal(QUALITY, version=None)


def test_without_a_sub_partition_it_is_all_of_the_dataset():
    (report,) = parse_report(json.dumps({key: value for key, value in PART.items() if key != "sub_partition"}))
    assert report.sub_partition == ""


@each_case(
    ("version", "text"),
    [
        (0, "00000000000000000000"),
        (2**63 - 1, "09223372036854775807"),
        ("2026-01-01T15:00:00+01:00", "20260101.140000"),
        ("2026-01-01 14:00:00.5", "20260101.140000.500000"),
        ("20260101.140000", "20260101.140000"),
    ],
)
def test_versions_are_encoded_as_markers_are(version, text):
    assert parsed(PART, version=version)[0].version == text


@each_case("start", ["2026-01-01T15:50", "2026-01-01 15:50:00Z", "2026-01-01T16:50+01:00"])
def test_a_moment_without_a_zone_is_utc_as_of_markers(start):
    assert parsed(PART, windows=[{"start": start, "records": 1}])[0].windows == ((AT, 1),)


def window(**changed):
    return {"windows": [{**WINDOWS[0], **changed}]}


WRONG = [
    ({"kind": "parts"}, "kind: found 'parts', expected one of part, source, quality"),
    ({"kind": ["part"]}, 'kind: found ["part"], expected one of'),
    (window(records=-1), "windows[0].records: found -1, expected greater than or equal to 0"),
    (window(records=1.0), "windows[0].records: found 1.0, expected a valid integer"),
    (window(records=True), "windows[0].records: found true, expected a valid integer"),
    (window(records="5"), "windows[0].records: found '5', expected a valid integer"),
    (window(records=None), "windows[0].records: found null, expected a valid integer"),
    (window(records=2**63), "windows[0].records: found 9223372036854775808, expected less than or equal to"),
    (window(records=float("nan")), "found NaN, expected a JSON number"),
    (window(records=float("inf")), "found Infinity, expected a JSON number"),
    (window(start="2026-01-01T15:50:01Z"), "expected the start of a window, on a whole minute"),
    (window(start=1767282600), "windows[0].start: found 1767282600, expected a moment"),
    (window(start="7"), "windows[0].start: found '7', expected a moment"),
    (window(start="now"), "windows[0].start: found 'now', expected a moment"),
    (window(start="9999-12-31T23:55:00Z"), "expected a moment in the years 1970 to 9998"),
    (window(start="0001-01-01T00:00:00+14:00"), "expected a moment in the years 1970 to 9998"),
    (window(end="2026-01-01T15:55:00Z"), "windows[0].end: found a field that a report does not have"),
    ({"windows": WINDOWS * 2}, "expected each window once, but 2026-01-01T15:50Z occurs twice"),
    ({"windows": {}}, "windows: found {}, expected a list"),
    ({"windows": [5]}, "windows[0]: found 5, expected an object."),
    ({"extra": 1}, "extra: found a field that a report does not have"),
    ({"tier": "kafka"}, "tier: found a field that a report does not have"),
    ({"dataset": "../../etc"}, "feed name '..' cannot be a path segment"),
    ({"dataset": ""}, "dataset: found '', expected printable characters"),
    ({"dataset": "a" * 201}, "cannot be a path segment: expected 1 to 200"),
    ({"dataset": "a/" * 8 + "a"}, "9 segments: expected at most 500 and 8"),
    ({"dataset": 5}, "dataset: found 5, expected a valid string"),
    ({"part": ""}, "part: found '', expected printable characters of up to 1100 bytes"),
    ({"part": "p" * 1101}, "expected printable characters of up to 1100 bytes"),
    ({"part": "é" * 551}, "expected printable characters of up to 1100 bytes"),
    ({"part": "a\0b"}, "part: found 'a\\x00b', expected printable characters"),
    ({"part": "a\nb"}, "part: found 'a\\nb', expected printable characters"),
    ({"part": "(folded)"}, "part: found '(folded)', expected another name: this one is reserved for the row"),
    ({"part": "\ud800"}, "part: found '\\ud800', expected printable characters"),
    ({"schema": "a\0b"}, "schema: found 'a\\x00b', expected a text of up to 65536 bytes"),
    ({"schema": "\udfff"}, "schema: found '\\udfff', expected a text"),
    ({"batch": True}, "batch: found true, expected a valid string"),
    ({"snapshot": 1.5}, "snapshot: found 1.5, expected a valid string"),
    ({"version": -1}, "version: found -1, expected a whole number from 0 to 9223372036854775807, or a moment"),
    ({"version": 2**63}, "version: found 9223372036854775808, expected a whole number"),
    ({"version": "9223372036854775808"}, "expected a whole number from 0 to 9223372036854775807"),
    ({"version": False}, "version: found false, expected a whole number"),
    ({"version": 1.0}, "version: found 1.0, expected a whole number"),
    ({"version": "soon"}, "version: found 'soon', expected a whole number"),
    ({"version": None}, "version: found null, expected a whole number"),
    (
        {"min": "2026-01-01T16:00Z", "max": "2026-01-01T15:00Z"},
        "min: found 2026-01-01T16:00:00Z, which is after max, 2026-01-01T15:00:00Z: expected",
    ),
    ({"offsets": {"0": [20, 10]}}, "offsets.0: found [20, 10], expected two offsets"),
    ({"offsets": {"0": [1]}}, "offsets.0: found [1], expected two offsets"),
    ({"offsets": {"0": 5}}, "offsets.0: found 5, expected a list"),
    ({"offsets": [1, 2]}, "offsets: found [1, 2], expected an object"),
    ({"sub_partition": "region=utc"}, "sub_partition: found 'region=utc', expected an object"),
    ({"sub_partition": {"region": 5}}, "sub_partition.region: found 5, expected a valid string"),
    ({"sub_partition": {"region": "a/b"}}, "sub-partition 'region=a/b' cannot be a path segment"),
    ({"sub_partition": {"region": ".."}}, "sub-partition 'region=..' cannot be a path segment"),
    ({"sub_partition": {"": "a"}}, "sub_partition..[key]: found '', expected printable characters"),
    ({"sub_partition": {"re=gion": "a"}}, "'re=gion': expected a name without '='"),
    ({"sub_partition": {f"l{level}": "v" for level in range(8)}}, "9 segments: expected at most 500 and 8"),
]


@each_case(("changed", "said"), WRONG, ids=[said for _, said in WRONG])
def test_invalid_part_reports_are_refused_with_found_and_expected_values(changed, said):
    assert said in refusal(PART, **changed)


@each_case("name", ["dataset", "part", "windows"])
def test_missing_required_fields_of_a_report_are_refused(name):
    record = {key: value for key, value in PART.items() if key != name}
    assert refusal(record) == f"{name}: found nothing, expected a value."


@each_case(
    ("changed", "said"),
    [
        ({"tier": ""}, "tier '' cannot be a path segment"),
        ({"tier": "a/b"}, "tier 'a/b' cannot be a path segment"),
        ({"windows": []}, "windows: found none, expected at least one window, or the name"),
    ],
)
def test_invalid_source_reports_are_refused(changed, said):
    assert said in refusal(SOURCE, **changed)


@each_case(
    ("changed", "said"),
    [
        ({"state": "bad"}, "state: found 'bad', expected 'passed', 'warned' or 'failed'"),
        ({"grain": "7min"}, "grain: found '7min', expected minutes that divide an hour"),
        ({"check": ""}, "check: found '', expected printable characters"),
        ({"reason": "r" * 4097}, "expected a text of up to 4096 bytes"),
        ({"windows": WINDOWS}, "windows: found a field that a report does not have"),
        ({"check": "inputs"}, "expected another name: this check is computed from lineage"),
    ],
)
def test_invalid_quality_reports_are_refused(changed, said):
    assert said in refusal(QUALITY, **changed)


@each_case(
    ("line", "said"),
    [
        ("", "found '', expected a JSON object on one line"),
        ("[1]", "found '[1]', expected a JSON object on one line"),
        ("null", "found 'null', expected a JSON object on one line"),
        ("{'kind': 'part'}", "expected a JSON object on one line"),
        ('{"kind": "part"} {"kind": "part"}', "expected a JSON object on one line"),
        ("[" * 500_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ("9" * 100_000, "expected a JSON object on one line"),
        ('{"kind": "part", "kind": "source"}', "found 'kind' twice in an object"),
        (" " * (ROW_BYTES + 1), f"expected at most {ROW_BYTES} on a line"),
        ("\udc80", "expected a JSON object on one line"),
    ],
)
def test_report_lines_that_are_no_json_object_are_refused(line, said):
    with pytest.raises(InvalidReport) as refused:
        parse_report(line)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_reasons_of_refusal_stay_short_for_any_input():
    assert len(refusal(PART, part=["x" * 100_000] * 5)) < 1000
    assert len(refusal(PART, **{"x" * 100_000: 1})) < 1000
    assert len(refusal(PART, sub_partition={"r": "x" * 100_000})) < 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=6,
)


RECORDS = st.sampled_from([PART, SOURCE, QUALITY])
FIELDS = st.sampled_from([*{**PART, **SOURCE, **QUALITY, **MORE}])


def refused_or_sound(line):
    try:
        found = parse_report(line)
    except InvalidReport:
        return
    for report in [found] if isinstance(found, QualityReport) else found:
        "".join(str(value) for value in vars(report).values()).encode()


@given(RECORDS, st.dictionaries(FIELDS, JSON))
def test_any_value_of_a_report_field_is_accepted_or_refused(record, changed):
    refused_or_sound(json.dumps({**record, **changed}))


@given(RECORDS, st.integers(0, 400), st.text(max_size=3), st.integers(0, 9))
def test_any_damaged_report_line_is_accepted_or_refused(record, at, put, cut):
    line = json.dumps({**record})
    refused_or_sound(line[:at] + put + line[at + cut :])


@given(st.text(st.characters(codec=None)) | st.binary().map(lambda data: data.decode(errors="surrogateescape")))
def test_any_text_as_a_report_line_is_accepted_or_refused(text):
    refused_or_sound(text)
