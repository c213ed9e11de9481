"""`status`: one day of a table and of its outputs, in the terminal, as JSON and as a page; no Spark."""

import json
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.status_page import partition_table
from feed_assets_tests.support import status_project
from feed_assets_tests.support.status_project import DAY, NASTY


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, empty_ledger: Path):
    """Fill a home once for all tests, as none changes anything."""
    with status_project.filled_home(tmp_path_factory.mktemp("status"), empty_ledger) as folder:
        yield folder


def said(*args: str) -> str:
    return newest("--day", DAY, "--days", "1", *args)


def newest(*args: str) -> str:
    command = ["status", "-m", status_project.__name__, *args]
    return CliRunner().invoke(app, command, catch_exceptions=False).stdout


@pytest.fixture(scope="module")
def found(filled):
    return json.loads(said("--json"))


def line(found, dataset, of=""):
    (row,) = [row for row in found["datasets"] if (row["dataset"], row["of"]) == (dataset, of)]
    return row


def states(found, dataset, of=""):
    return [each["state"] for each in line(found, dataset, of)["partitions"]]


def test_each_hour_is_shown_by_its_state(found):
    complete, missing = ["complete"], ["missing"]
    expected = [*complete * 9, *missing, *complete * 2, "waiting", *missing * 11]
    expected[3], expected[5] = "invalid", "waiting"
    assert states(found, "web/foo") == expected
    expected[3], expected[5], expected[12] = "with issue", "late", "missing"
    assert states(found, "web/feature/v1.0") == expected


def test_a_key_of_another_dimension_has_a_line_of_its_own(found):
    assert states(found, "web/raw/v1.0", "apac") == states(found, "web/sums/v1.0", "emea") == ["complete"]
    assert states(found, "web/sums/v1.0", "apac") == ["invalid"]


def test_status_and_explain_name_the_same_reasons(found):
    by_key = {each["partition"]: each for each in line(found, "web/feature/v1.0")["partitions"]}
    for hour in ("05:00", "09:00", "12:00"):
        shown = by_key[f"{DAY}-{hour}"]
        command = ["explain", "web/feature/v1.0", shown["partition"], "-m", status_project.__name__, "--json"]
        told = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)
        assert (shown["verdict"], shown["why"]) == (told["state"], told["reason"])


def explained(*args):
    command = ["explain", *args, "-m", status_project.__name__, "--json"]
    return CliRunner().invoke(app, command)


def test_explain_of_an_output_with_bad_input_names_the_issue(filled):
    told = json.loads(explained("web/feature/v1.0", f"{DAY}-03:00").stdout)
    assert told["state"] == "current"
    assert told["issue"] == f"hour {DAY}-03:00 of web/foo is invalid: no_bots: {NASTY}"
    assert told["reason"].endswith(f"; with issue: {told['issue']}")
    assert json.loads(explained("web/feature/v1.0", f"{DAY}-02:00").stdout)["issue"] is None


def test_explain_of_a_state_table_leads_to_what_says_how_far_it_is(filled):
    assert "`feed-assets state show web/foo` shows its content" in str(explained("web/foo").exception)


def test_watermarks_and_the_first_hole(found):
    row = line(found, "web/foo")
    assert (row["contiguous"], row["latest"]) == (f"{DAY}T03:00:00Z", f"{DAY}T12:00:00Z")
    (gap,) = [each for each in found["gaps"] if each["dataset"] == "web/foo"]
    assert (gap["start"], gap["end"]) == (row["contiguous"], f"{DAY}T04:00:00Z"), "the hours behind it are good"
    assert gap["why"] == f"no_bots: {NASTY}"
    (gap,) = [each for each in found["gaps"] if each["dataset"] == "web/feature/v1.0"]
    assert (gap["start"], gap["end"]) == (f"{DAY}T09:00:00Z", f"{DAY}T10:00:00Z")


def test_status_stale_lists_all_out_of_date_partitions(found, filled):
    (stale,) = found["stale"]
    assert (stale["dataset"], stale["partition"]) == ("web/feature/v1.0", f"{DAY}-05:00")
    assert stale["state"] == "waits for input"
    assert json.loads(said("--stale", "--json")) == [stale]
    assert json.loads(said("--stale", "--json", "--dataset", "web/metric/v1.0")) == []


def test_status_counts_are_followed_by_the_most_urgent_problems(found):
    assert [*found["counts"]] == ["invalid", "with issue", "late", "waiting", "missing", "complete"]
    assert found["counts"]["invalid"] == 2
    assert [each["state"] for each in found["waits"]][:4] == ["invalid", "invalid", "with issue", "late"]


def test_the_terminal_shows_a_sign_for_each_hour(filled):
    lines = said().splitlines()
    assert "00 03 06 09 12 15 18 21" in lines[1]
    assert "web/feature/v1.0    ===!=L===-==------------" in lines
    assert "web/foo             ===X=w===-==w-----------" in lines
    assert f"web/sums/v1.0 apac  {'X' * 24}" in lines
    assert any(each.startswith("= complete  > running") for each in lines)


def test_status_can_be_limited_to_some_datasets(filled):
    assert [row["dataset"] for row in json.loads(said("--json", "--dataset", "web/foo"))["datasets"]] == ["web/foo"]


def test_a_week_has_a_column_for_each_day(filled):
    lines = said("--days", "7", "--dataset", "web/foo").splitlines()
    assert lines[0].split() == ["14", "15", "16", "17", "18", "19", "20"]
    assert lines[1].rstrip() == "web/foo  -- -- -- -- -- -- XX"


class _Read(HTMLParser):
    """Parser that reads a page like a browser: tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_status_page_is_one_file_and_escapes_foreign_texts(filled, tmp_path):
    assert said("--html", str(tmp_path / "status.html")) == ""
    page = _Read((tmp_path / "status.html").read_text())
    names = [name for name, _ in page.tags]
    assert {*names} & {"img", "link", "iframe"} == set()
    assert names.count("script") == 1, "that of the filter, which the policy names by its digest"
    assert {name for _, attrs in page.tags for name in attrs} & {"onerror", "onload", "src"} == set()
    assert [attrs["href"] for _, attrs in page.tags if not attrs.get("href", "#").startswith("#")] == []
    assert NASTY in page.text
    assert f"{DAY}-03:00: invalid: no_bots: {NASTY}" in [attrs.get("title") for _, attrs in page.tags]


def test_without_a_day_each_dataset_has_its_newest_periods_the_worst_first(filled, tmp_path):
    """Set the time long after the last day with data."""
    found = json.loads(newest("--json"))
    assert (found["start"], found["end"]) == (None, None)
    assert [row["dataset"] for row in found["datasets"]][:2] == ["web/foo", "web/sums/v1.0"], "these are invalid"
    shown = [each for each in line(found, "web/foo")["partitions"] if each["state"] != "not over yet"]
    assert [each["partition"] for each in shown][-3:-1] == [f"{DAY}-11:00", f"{DAY}-12:00"]
    assert (shown[-1]["state"], shown[-1]["partition"] > DAY) == ("missing", True), "the newest that is over"
    lines = newest().splitlines()
    foo = next(each for each in lines if each.startswith("web/foo"))
    assert foo.split()[1].endswith("===X=w===-==w-")
    assert foo.split()[2] == shown[-1]["partition"]
    newest("--html", str(tmp_path / "newest.html"))
    page = (tmp_path / "newest.html").read_text()
    assert f"<small>a hole at {DAY} 03:00</small>" in page
    assert ' apart"' in page, "the newest period of foo does not follow the one before it"
    assert "@media (prefers-color-scheme: dark)" in page


def test_a_topic_that_was_never_read_has_a_line_without_periods(filled, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "never_read.py"
    module.write_text(
        "import dagster as dg\nfrom feed_assets import kafka_topic\n\n"
        'clicks = kafka_topic("web/clicks", topic="clicks", key=["id"])\n'
        "defs = dg.Definitions([clicks])\n"
    )
    file = tmp_path / "status.html"
    CliRunner().invoke(app, ["status", "-m", module.stem, "--html", str(file)], catch_exceptions=False)
    assert "web/clicks" in _Read(file.read_text()).text


def test_one_dataset_has_a_page_with_its_partitions_which_lead_to_dagster(filled, tmp_path):
    file = tmp_path / "status.html"
    newest("--live", "--dataset", "web/sums/v1.0", "--html", str(file))
    page = _Read(file.read_text())
    links = [attrs["href"] for name, attrs in page.tags if name == "a"]
    assert "/assets/web/sums?view=partitions" in links
    assert f"/assets/web/sums?view=partitions&partition={DAY}%7Capac" in links
    assert links[0] == "/status"
    assert "within_n: n must be in [0, 100]" in page.text


def test_cells_lead_to_the_lines_that_are_printed_of_one_dataset(filled, tmp_path, monkeypatch):
    monkeypatch.setattr(partition_table, "PARTITIONS_SHOWN", 3)
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    for options, lines in ([(), 3], [("--day", tomorrow, "--days", "2"), 0], [("--day", DAY), 3]):
        newest("--dataset", "web/sums/v1.0", "--html", str(tmp_path / "status.html"), *options)
        page = _Read((tmp_path / "status.html").read_text())
        anchors = {f"#{attrs['id']}" for name, attrs in page.tags if name == "tr" and "id" in attrs}
        assert len(anchors) == lines
        assert {attrs["href"] for name, attrs in page.tags if name == "a"} == anchors


def test_status_refuses_an_invalid_day(filled):
    with pytest.raises(Exception, match="expected a day, such as 2026-01-01"):
        said("--day", "yesterday")
