"""`state`: reports as lines of JSON, and the state of windows; no Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feed_assets import report_state
from feed_assets.cli import app
from feed_assets.core.completeness import Completeness
from feed_assets.core.errors import IllegalTransition, InvalidEvent, InvalidName, InvalidReport
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.sub_partitions import Regions, SubPartitions, Tracked
from feed_assets.feeds import write
from feed_assets.feeds.opened import open_board
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states.window_queries import declare
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings

pytestmark = pytest.mark.usefixtures("home")

SLOT = ["15:55", "16:00"]
EARLIER = [f"15:{minute:02d}" for minute in range(0, 55, 5)]
PROGRAM = Path(sys.executable).with_name("feed-assets")


def windows(starts, records=1000):
    return [{"start": f"2026-01-01T{start}:00Z", "records": records} for start in starts]


def part(starts, records=1000, name="s3://lake/foo/part-1", **more):
    return {"kind": "part", "dataset": "foo", "part": name, "windows": windows(starts, records), **more}


def source(starts, records=1000, **more):
    return {"kind": "source", "dataset": "foo", "tier": "kafka", "windows": windows(starts, records), **more}


def quality(state, **more):
    at = {"grain": "hour", "start": "2026-01-01T15:00:00Z", "check": "no_bots"}
    return {"kind": "quality", "dataset": "foo", **at, "state": state, "reason": "half are bots", **more}


def said(*args, lines=None):
    return CliRunner().invoke(app, args, input=lines, catch_exceptions=False).stdout


def as_json(*args):
    return json.loads(said(*args, "--json"))


def report(*records):
    """Return the output of `state report` for these valid lines."""
    return json.loads(
        said("state", "report", "-", "--json", lines="".join(f"{json.dumps(each)}\n" for each in records))
    )


def changes(*args):
    return [
        (row["grain"], row["start"][11:16], row["from"], row["to"]) for row in as_json("state", "transitions", *args)
    ]


def test_a_slot_of_the_article_completes_its_windows_in_one_report():
    """Report the slot from 15:58 to 16:08: its windows of 5 minutes and all windows that they complete."""
    report(source([*EARLIER, *SLOT]), part(EARLIER))
    (*_, last) = as_json("state", "transitions")
    found = report(part(SLOT, 999_950, name="part-2"), source(SLOT, 1_000_000, version=1))
    assert (found["accepted"], found["transitions"]) == (3, 4)
    assert changes("--since", str(last["sequence"])) == [
        ("hour", "15:00", "open", "complete"),
        ("10min", "15:50", "open", "complete"),
        ("5min", "15:55", "open", "complete"),
        ("5min", "16:00", "open", "complete"),
    ]


def test_a_transition_has_its_fields_with_person_and_reason():
    report(source(["15:00"], sub_partition={"region": "utc"}), part(["15:00"], sub_partition={"region": "utc"}))
    row = as_json("state", "transitions", "--dataset", "foo")[0]
    assert list(row) == [
        "sequence",
        "dataset",
        "sub_partition",
        "grain",
        "start",
        "end",
        "from",
        "to",
        "at",
        "why",
        "who",
    ]
    assert (row["dataset"], row["sub_partition"], row["grain"]) == ("foo", {"region": "utc"}, "5min")
    assert (row["start"], row["end"]) == ("2026-01-01T15:00:00Z", "2026-01-01T15:05:00Z")
    assert row["why"] == "1,000 of 1,000 records at kafka (100.0000 %)"
    assert row["who"]
    assert "region=utc" in said("state", "transitions")
    assert as_json("state", "transitions", "--dataset", "bar") == []


def test_transitions_go_on_after_a_number_or_from_a_moment_on():
    report(source(EARLIER), part(EARLIER))
    rows = as_json("state", "transitions")
    assert as_json("state", "transitions", "--since", str(rows[2]["sequence"])) == rows[3:]
    assert as_json("state", "transitions", "--since", str(rows[2]["sequence"]), "-n", "2") == rows[3:5]
    assert as_json("state", "transitions", "-n", "2") == rows[-2:]
    assert as_json("state", "transitions", "--since", rows[0]["at"]) == rows
    assert as_json("state", "transitions", "--since", "2100-01-01") == []


def test_a_repeated_report_is_counted_as_known():
    assert report(source(SLOT))["accepted"] == 2
    assert report(source(SLOT)) == {"accepted": 0, "known": 2, "rejected": 0, "transitions": 0, "reasons": []}
    assert said("state", "report", "-", lines=json.dumps(source(SLOT))).splitlines() == [
        "accepted  known  rejected  transitions",
        "0         2      0         0",
    ]


def test_bad_lines_lose_no_good_one_and_are_kept_with_their_reasons():
    bad = ["{", json.dumps(part(["15:00"], -1)), "x" * 2_000_000, json.dumps(source(["15:01"])), "\udcff\0"]
    good = [json.dumps(part(EARLIER)), json.dumps(source(EARLIER))]
    text = "\n".join([bad[0], good[0], *bad[1:], "", good[1]]).encode(errors="surrogateescape")
    run = CliRunner().invoke(app, ["state", "report", "-", "--json"], input=text)
    assert (run.exit_code, type(run.exception)) == (1, InvalidReport)
    assert str(run.exception).startswith("5 rejected, the first because ")
    found = json.loads(run.stdout)
    assert (found["accepted"], found["rejected"], len(found["reasons"])) == (1 + len(EARLIER), 5, 5)
    kept = {row["reason"]: row for row in as_json("events", "ls", "--rejected")}
    assert {row["source"] for row in kept.values()} == {"state"}
    assert kept.keys() == {row["reason"] for row in found["reasons"]}
    (long,) = [row["raw"] for reason, row in kept.items() if "has 2000001 bytes" in reason]
    assert len(long) <= 4096
    assert "2000001 bytes, sha256" in long
    (grid,) = [reason for reason in kept if "is not the start of a window of '5min'" in reason]
    assert grid


def test_equal_versions_that_differ_are_refused():
    report(part(["15:00"], 1000))
    run = CliRunner().invoke(app, ["state", "report", "-"], input=json.dumps(part(["15:00"], 999)))
    assert run.exit_code == 1
    assert "was reported with the same version 0 and other content" in str(run.exception)
    assert report(part(["15:00"], 999, version=1))["accepted"] == 1


@pytest.mark.parametrize("wrong", [source(["15:01"]), part(["15:01"]), quality("failed", start="2026-01-01T15:05:00Z")])
def test_a_rejected_line_is_shown_as_it_was_sent(wrong):
    line = json.dumps(dict(reversed(wrong.items())), separators=(" ,", " :"))
    run = CliRunner().invoke(app, ["state", "report", "-", "--json"], input=line)
    assert [row["raw"] for row in json.loads(run.stdout)["reasons"]] == [line]
    assert [row["raw"] for row in as_json("events", "ls", "--rejected")] == [line]


def test_a_line_whose_windows_are_rejected_is_one_reject_that_says_how_many():
    line = json.dumps(source(["15:00", "15:01", "15:02"]))
    found = json.loads(CliRunner().invoke(app, ["state", "report", "-", "--json"], input=line).stdout)
    assert (found["accepted"], found["rejected"]) == (1, 1)
    (kept,) = as_json("events", "ls", "--rejected")
    assert kept["raw"] == line
    assert kept["reason"] == found["reasons"][0]["reason"]
    assert kept["reason"].startswith("window 2026-01-01T15:01:00Z is not the start of")
    assert kept["reason"].endswith(" (the first of 2 reasons)")


def test_a_line_of_which_several_windows_are_too_much_is_one_reject():
    report(source(["15:05", "15:10", "15:15"], 2**63 - 1, part="huge"))
    line = json.dumps(source(["15:00", "15:05", "15:10", "15:15"]))
    found = json.loads(CliRunner().invoke(app, ["state", "report", "-", "--json"], input=line).stdout)
    assert (found["accepted"], found["rejected"]) == (1, 1)
    assert "records are more than 9223372036854775807" in found["reasons"][0]["reason"]
    assert [found["reasons"][0]["raw"], *(row["raw"] for row in as_json("events", "ls", "--rejected"))] == [line] * 2


@pytest.mark.usefixtures("countries")
def test_a_line_of_no_sub_partition_is_shown_as_it_was_sent():
    line = json.dumps(dict(reversed(source(["15:00", "15:05"]).items())))
    found = json.loads(CliRunner().invoke(app, ["state", "report", "-", "--json"], input=line).stdout)
    assert [row["raw"] for row in found["reasons"]] == [line]


def test_a_mistyped_tier_is_removed_by_a_report_without_windows():
    report(source(["15:00"]), source(["15:00"], 1_000_000, tier="kafak"), part(["15:00"]))
    (window,) = as_json("state", "show", "foo", "5min@2026-01-01-15:00")
    assert (window["state"], sorted(window["sources"])) == ("open", ["kafak", "kafka"])
    kafka = Tracked.of(Completeness(tiers=("kafka",)))
    declare(open_ledger(settings().ledger), {Feed.parse("foo"): kafka}, utc_now())
    (window,) = as_json("state", "show", "foo", "5min@2026-01-01-15:00")
    assert window["state"] == "complete"
    back = {"part": "2026-01-01T15:00Z", "windows": [], "version": 1}
    assert report({**source([], tier="kafak"), **back})["accepted"] == 1
    (window,) = as_json("state", "show", "foo", "5min@2026-01-01-15:00")
    assert (window["state"], window["sources"]) == ("complete", {"kafka": 1000})


def test_counts_that_no_database_holds_together_reject_one_report_alone():
    huge = part(["15:00"], 2**63 - 1, name="huge")
    text = "\n".join(json.dumps(each) for each in [part(["15:00"]), huge, part(["15:05"], name="b"), source(["15:00"])])
    run = CliRunner().invoke(app, ["state", "report", "-", "--json"], input=text)
    found = json.loads(run.stdout)
    assert (found["accepted"], found["rejected"]) == (3, 1)
    assert "records are more than 9223372036854775807" in found["reasons"][0]["reason"]


def test_a_report_in_many_batches_equals_one_in_a_single_batch(tmp_path):
    lines = [json.dumps(part(["15:00"], 1, name=f"part-{number}")) for number in range(2500)]
    (tmp_path / "reports.jsonl").write_text("\n".join([*lines, json.dumps(source(["15:00"], 2500))]))
    found = as_json("state", "report", str(tmp_path / "reports.jsonl"))
    assert (found["accepted"], found["transitions"]) == (2501, 1)


def test_state_report_reads_a_pipe(home):
    done = subprocess.run(
        [PROGRAM, "state", "report", "-"], input=b'{"kind": 5}\n', capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].startswith("feed-assets: 1 rejected, the first because kind: found 5")


def test_quality_makes_a_window_invalid_and_good_again():
    report(source([*EARLIER, "15:55"]), part([*EARLIER, "15:55"]))
    assert report(quality("failed"))["transitions"] >= 1
    (hour,) = as_json("state", "show", "foo", "hour@2026-01-01-15:00")
    assert (hour["state"], hour["complete"], hour["good"]) == ("invalid", False, False)
    assert hour["why"] == "no_bots: half are bots"
    report(quality("passed"))
    (hour,) = as_json("state", "show", "foo", "hour@2026-01-01-15:00")
    assert (hour["state"], hour["complete"], hour["good"]) == ("complete", True, True)


def test_quality_of_no_window_is_rejected():
    run = CliRunner().invoke(
        app, ["state", "report", "-"], input=json.dumps(quality("failed", start="2026-01-01T15:05:00Z"))
    )
    assert "found 2026-01-01T15:05:00Z, expected the start of a window, such as 2026-01-01T15:00:00Z." in str(
        run.exception
    )


def test_state_show_prints_the_progress_of_a_dataset():
    report(source(EARLIER), part(EARLIER, schema="id int"))
    found = as_json("state", "show", "foo")
    assert list(found) == ["dataset", "declared", "grains", "ratio", "tiers", "tz", "schema", "watermarks", "newest"]
    assert (found["dataset"], found["declared"], found["schema"]) == ("foo", False, "id int")
    assert (found["grains"], found["ratio"], found["tz"]) == (["5min", "10min", "hour", "day"], "99.995%", "UTC")
    reached = {row["grain"]: row["contiguous"] for row in found["watermarks"]}
    assert (reached["5min"], reached["10min"]) == ("2026-01-01T15:55:00Z", "2026-01-01T15:50:00Z")
    assert found["watermarks"][0]["windows"] == {"complete": 11}
    assert found["newest"][0]["partition"] == "2026-01-01-15:50"
    text = said("state", "show", "foo")
    assert "5min, 10min, hour, day" in text
    assert "11 complete" in text


def test_state_show_names_what_a_window_waits_for():
    report(source([*EARLIER, "15:55"]), part(EARLIER[:-1]), part(["15:50"], 900, name="p2"))
    (hour,) = as_json("state", "show", "foo", "hour@2026-01-01-15:00")
    assert hour["state"] == "open"
    assert hour["why"] == "5min 2026-01-01-15:50 has 900 of 1,000 records at kafka (90.0000 %)"
    assert [row["window"] for row in hour["waits_for"]] == ["10min@2026-01-01-15:50"]
    rows = {row["grain"]: row for row in as_json("state", "show", "foo", "2026-01-01-15:50")}
    assert rows.keys() == {"5min", "10min"}
    assert rows["5min"]["why"] == "900 of 1,000 records at kafka (90.0000 %)"
    assert (rows["5min"]["records"], rows["5min"]["sources"]) == (900, {"kafka": 1000})
    assert [(row["window"], row["why"]) for row in rows["10min"]["waits_for"]] == [
        ("5min@2026-01-01-15:50", "900 of 1,000 records at kafka (90.0000 %)"),
        ("5min@2026-01-01-15:55", "0 of 1,000 records at kafka (0.0000 %)"),
    ]


def test_state_show_says_that_a_window_was_never_reported():
    report(source(EARLIER))
    (hour,) = as_json("state", "show", "foo", "hour@2026-01-02-15:00")
    assert (hour["complete"], hour["why"], hour["version"]) == (False, "nothing is reported of it", None)
    assert len(hour["waits_for"]) == 6
    with pytest.raises(InvalidName, match=r"grain '7min': expected|is no window"):
        said("state", "show", "foo", "7min@2026-01-02-15:00")
    with pytest.raises(InvalidName, match="nothing is known of foo nothing: expected a window that was reported"):
        said("state", "show", "foo", "nothing")
    with pytest.raises(InvalidName, match="nothing is known of bar: expected a dataset that was reported"):
        said("state", "show", "bar")
    with pytest.raises(InvalidName, match="nothing is known of bar hour@2026-01-01-15:00: expected a window"):
        said("state", "show", "bar", "hour@2026-01-01-15:00")


def test_show_of_a_feeds_partition_says_whether_it_has_a_valid_update():
    shown = Partition(Feed.parse("ads/shown_raw/v1.0"), "2019-11-24/men")
    update_id = write.publish(open_board(settings()), shown, {"part-1.csv": b"a\n"}, utc_now()).id
    said("reconcile")
    (row,) = as_json("state", "show", str(shown.feed), shown.key)
    assert (row["complete"], row["good"], row["version"], row["grain"]) == (True, True, update_id, "")
    assert as_json("state", "show", str(shown.feed))["newest"][0]["partition"] == shown.key


def test_an_operator_accepts_a_window_that_never_will_be_complete():
    report(source(["15:00"]), part(["15:00"], 5))
    found = as_json("state", "accept", "foo", "5min@2026-01-01-15:00", "--why", "the rest is lost", "--who", "ann")
    assert found == {"dataset": "foo", "window": "5min@2026-01-01-15:00", "changed": True}
    (*_, last) = as_json("state", "transitions")
    assert (last["to"], last["who"], last["why"]) == ("complete", "ann", "accepted by ann: the rest is lost")
    again = said("state", "accept", "foo", "5min@2026-01-01-15:00", "--why", "the rest is lost")
    assert again.splitlines()[-1] == "nothing changed"
    with pytest.raises(InvalidName, match="'15:00' is not a window: expected hour@2026-01-01-15:00"):
        said("state", "accept", "foo", "15:00", "--why", "x")


def test_state_backfill_records_window_reason_and_person():
    report(source(["15:00"]), part(["15:00"]))
    again = ["state", "backfill", "foo", "5min@2026-01-01-15:00", "--why", "INC-4711", "--who", "ann"]
    assert as_json(*again) == {"dataset": "foo", "window": "5min@2026-01-01-15:00", "changed": True}
    assert said(*again).splitlines()[-1] == "nothing changed"
    assert as_json(*again, "--done")["changed"]
    moved = [(each["to"], each["who"], each["why"]) for each in as_json("state", "transitions")]
    assert moved[-2:] == [("backfilling", "ann", "INC-4711"), ("backfilled", "ann", "INC-4711")]
    with pytest.raises(InvalidName, match="expected one of them"):
        said(*again, "--done", "--failed")
    with pytest.raises(IllegalTransition, match="is open and cannot become backfilling"):
        said("state", "backfill", "foo", "5min@2026-01-01-16:00", "--why", "x")


ACCEPTED = ["state", "accept", "foo", "5min@2026-01-01-15:00"]


@pytest.mark.parametrize("why", ["", "  ", "x" * 100_000, "lost\nby kafka", "a\x1b[2Jb"])
def test_state_accept_needs_reason_and_person_in_one_line_each(why):
    report(source(["15:00"]), part(["15:00"], 5))
    with pytest.raises(InvalidName, match=r"--why: found .*, expected a line of printable characters, not blank"):
        said(*ACCEPTED, "--why", why)
    with pytest.raises(InvalidName, match=r"--who: found .*, expected a line of printable characters, not blank"):
        said(*ACCEPTED, "--why", "lost", "--who", why)
    assert as_json("state", "transitions") == []


def test_a_reason_of_many_lines_is_one_line_of_the_table():
    starts = [*EARLIER, "15:55"]
    report(source(starts), part(starts), quality("failed", reason="half are bots:\n 1\r\n 2\x1b[2J"))
    rows = as_json("state", "transitions")
    assert next(row for row in rows if row["to"] == "invalid")["why"] == "no_bots: half are bots:\n 1\r\n 2\x1b[2J"
    assert len(said("state", "transitions").splitlines()) == 1 + len(rows)
    assert "\x1b" not in said("state", "transitions")


@pytest.mark.parametrize("since", ["9" * 23, "-1", "0001-01-01T00:00:00+14:00"])
def test_an_invalid_since_option_is_refused_in_one_line(since):
    report(source(["15:00"]))
    with pytest.raises(InvalidEvent, match="expected"):
        said("state", "transitions", "--since", since)


@pytest.fixture
def countries(home):
    """Declare `foo` by region and country."""
    below = SubPartitions("country", {"sg": None, "jp": "Asia/Tokyo"})
    declared = Tracked.of(Completeness(), Regions({"utc+8": "UTC+8"}, below))
    declare(open_ledger(settings().ledger), {Feed.parse("foo"): declared}, utc_now())


@pytest.mark.usefixtures("countries")
def test_the_levels_of_a_sub_partition_come_in_any_order():
    at = {"country": "sg", "region": "utc+8"}
    report(source(["15:00"], sub_partition=at), part(["15:00"], sub_partition=dict(reversed(at.items()))))
    (change,) = as_json("state", "transitions")
    assert (change["sub_partition"], change["to"]) == ({"region": "utc+8", "country": "sg"}, "complete")
    report(quality("failed", sub_partition=at))
    (hour,) = as_json("state", "show", "foo", "hour@2026-01-01-15:00/region=utc+8/country=sg")
    assert (hour["state"], hour["good"], hour["why"]) == ("open", False, "no_bots: half are bots")
    assert as_json("state", "show", "foo")["declared"]


def test_reports_of_a_sub_partition_before_its_declaration_are_kept(request):
    at = [{"region": "utc+8", "country": country} for country in ("sg", "jp")]
    for place in at:
        report(source(["15:00"], sub_partition=place), part(["15:00"], 5, sub_partition=place))
    request.getfixturevalue("countries")
    for place in at:
        report(part(["15:00"], sub_partition=place, version=1))
    rows = as_json("state", "show", "foo", "2026-01-01-15:00")
    found = [([*row["sub_partition"].values()], row["state"], row["records"]) for row in rows if row["grain"] == "5min"]
    assert found == [
        ([], "complete", 2000),
        (["utc+8"], "complete", 2000),
        (["utc+8", "jp"], "complete", 1000),
        (["utc+8", "sg"], "complete", 1000),
    ]


@pytest.mark.usefixtures("countries")
def test_show_says_which_sub_partitions_a_batch_date_waits_for():
    (day,) = as_json("state", "show", "foo", "day@2026-01-01/region=utc+8")
    assert [row["window"] for row in day["waits_for"]] == [
        "day@2026-01-01/region=utc+8/country=jp",
        "day@2026-01-01/region=utc+8/country=sg",
    ]
    assert (day["start"], day["end"]) == ("2025-12-31T15:00:00Z", "2026-01-01T16:00:00Z")


@pytest.mark.usefixtures("countries")
def test_a_sub_partition_that_is_not_declared_is_refused():
    run = CliRunner().invoke(app, ["state", "report", "-"], input=json.dumps(source(["15:00"])))
    assert "sub-partition '': expected one of region=utc+8/country=jp, region=utc+8/country=sg" in str(run.exception)


def test_python_reports_the_same_records():
    outcome = report_state([source(EARLIER), part(EARLIER), {"kind": "part"}, source([utc_now()])])
    assert (outcome.accepted, len(outcome.rejected)) == (1 + len(EARLIER), 2)
    assert report_state(iter([part(EARLIER)]), by="ingest").known == 1
    assert as_json("state", "transitions")[0]["who"]
