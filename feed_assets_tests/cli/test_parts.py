"""`state show --parts`: what each part of a window contributed, and which file or offsets are missing."""

import json

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.errors import InvalidName

pytestmark = pytest.mark.usefixtures("home")

FILE = "s3://lake/foo/part-{}"
WINDOW = "5min@2026-01-01-15:55"


def said(*args, lines=None):
    return CliRunner().invoke(app, args, input=lines, catch_exceptions=False).stdout


def report(*records):
    """Report these valid lines."""
    found = json.loads(said("state", "report", "-", "--json", lines="".join(f"{json.dumps(one)}\n" for one in records)))
    assert not found["rejected"], found


def line(kind, starts, records, **more):
    windows = [{"start": f"2026-01-01T{start}:00Z", "records": records} for start in starts]
    return {"kind": kind, "dataset": "foo", "windows": windows, **more}


def part(starts, records=1000, name="s3://lake/foo/part-1", **more):
    return line("part", starts, records, part=name, **more)


def source(starts, records=1000, **more):
    return line("source", starts, records, tier="kafka", **more)


def shown(window=WINDOW):
    (found,) = json.loads(said("state", "show", "foo", window, "--parts", "--json"))
    return found


def test_each_part_is_listed_with_what_it_contributed():
    told = {"min": "2026-01-01T15:51:00Z", "max": "2026-01-01T15:59:00Z", "snapshot": 7, "batch": "b"}
    first = part(["15:50", "15:55"], 700, name=FILE.format(1), offsets={"0": [0, 1499]}, **told)
    report(source(["15:55"], 1500), {**first, "records": 1500})
    report(part(["15:55"], 800, name=FILE.format(2), version=3))
    found = shown()
    assert (found["state"], found["records"], found["missing"], found["twice"]) == ("complete", 1500, [], [])
    one, other, counted = found["parts"]
    assert (one["part"], one["records"], one["of"], one["offsets"]) == (FILE.format(1), 700, 1500, {"0": [0, 1499]})
    assert (one["min"][:16], one["max"][:16]) == ("2026-01-01T15:51", "2026-01-01T15:59")
    assert (one["snapshot"], one["batch"]) == ("7", "b")
    assert (other["part"], other["records"], other["version"]) == (FILE.format(2), 800, "3")
    assert (counted["tier"], counted["records"]) == ("kafka", 1500)
    hour = shown("hour@2026-01-01-15:00")
    assert [(each["part"], each["records"]) for each in hour["parts"][:2]] == [
        (FILE.format(1), 1400),
        (FILE.format(2), 800),
    ]


def test_a_missing_file_is_named():
    files = [source(["15:55"], 100, part=FILE.format(n)) for n in (1, 2, 3)]
    report(*files, part(["15:55"], 100, name=FILE.format(1)), part(["15:55"], 100, name=FILE.format(3)))
    (missing,) = shown()["missing"]
    assert (missing["tier"], missing["part"], missing["records"]) == ("kafka", FILE.format(2), 100)
    assert FILE.format(2) in said("state", "show", "foo", WINDOW, "--parts")
    report(part(["15:55"], 100, name=FILE.format(2)))
    assert shown()["missing"] == []


def test_missing_offsets_are_named_with_their_neighbouring_parts():
    ranges = {1: [0, 99], 2: [150, 199], 3: [190, 250]}
    report(source(["15:55"], 300))
    report(*(part(["15:55"], 100, name=FILE.format(n), offsets={"0": each}) for n, each in ranges.items()))
    found = shown()
    (missing,) = found["missing"]
    assert (missing["partition"], missing["first"], missing["last"]) == ("0", 100, 149)
    assert (missing["after"], missing["before"]) == (FILE.format(1), FILE.format(2))
    (twice,) = found["twice"]
    assert (twice["first"], twice["last"], twice["parts"]) == (190, 199, [FILE.format(2), FILE.format(3)])
    assert "offsets 100-149 of partition 0 are in no part" in found["why"]
    assert "over-counted: offsets 190-199 of partition 0 are in several parts" in found["why"]


def test_a_window_is_needed():
    report(part(["15:55"]))
    with pytest.raises(InvalidName, match="hour@2026-01-01-15:00"):
        said("state", "show", "foo", "--parts")
