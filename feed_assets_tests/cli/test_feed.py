"""`feed-assets feed`, as a user types it."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.cli import main
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import latest
from feed_assets.feeds.write import publish
from feed_assets.settings import settings

MEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
OLD, NEW = "20191125.060000", "20191126.060000"
PROGRAM = Path(sys.executable).with_name("feed-assets")


@pytest.fixture(params=["local", "s3"])
def shared(request, monkeypatch) -> Blackboard:
    """Provide a blackboard that the command line can open, on a machine in Tokyo, with fresh settings."""
    settings.cache_clear()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield request.getfixturevalue(f"{request.param}_board")
    settings.cache_clear()
    monkeypatch.delenv("TZ")
    time.tzset()


@pytest.fixture
def feed(shared, monkeypatch, capsys):
    """Run `feed-assets feed …` in this process: exit code, standard output, standard error."""

    def run(*arguments, blackboard=shared.url):
        where = ["--blackboard", blackboard] if blackboard else []
        monkeypatch.setattr(sys, "argv", ["feed-assets", "feed", *map(str, arguments), *where])
        with pytest.raises(SystemExit) as ended:
            sys.exit(main())
        output = capsys.readouterr()
        return ended.value.code or 0, output.out, output.err

    return run


@pytest.fixture
def published(shared):
    for name in (OLD, NEW):
        publish(shared, MEN, {"part-1.csv": name.encode(), "sub/b": b""}, moment(name))
    return shared


def moment(name):
    return datetime.strptime(name + "Z", "%Y%m%d.%H%M%S%z").astimezone(UTC)


def test_ls_lists_feeds_then_partitions_then_updates(feed, published):
    published.put("ads/shown/v1.0/café/x", b"")
    assert json.loads(feed("ls", "--json")[1]) == [{"feed": "ads/shown/v1.0"}]
    partitions = json.loads(feed("ls", "ads/shown/v1.0", "--json")[1])
    assert [row["partition"] for row in partitions] == ["2019-11-24/men", "café"]
    assert "cannot be a path segment" in partitions[1]["skipped"]
    assert json.loads(feed("ls", "ads/shown/v1.0", "2019-11-24/men", "--json")[1]) == [
        {"id": NEW, "valid": True, "files": 2, "bytes": 15, "reason": "", "compacted_from": ""},
        {"id": OLD, "valid": True, "files": 2, "bytes": 15, "reason": "", "compacted_from": ""},
    ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["ls"], "ads/shown/v1.0"),
        (["ls", "ads/shown/v1.0"], "2019-11-24/men"),
        (["ls", "ads/shown/v1.0", "2019-11-24/men"], OLD),
        (["show", "ads/shown/v1.0", "2019-11-24/men"], f"{NEW} is valid, 2 files, 15 bytes"),
        (["verify", "ads/shown/v1.0"], "2019-11-24/men"),
    ],
)
def test_humans_get_a_table(feed, published, arguments, shown):
    code, output, errors = feed(*arguments)
    assert (code, errors) == (0, "")
    assert shown in output


def test_an_empty_blackboard_lists_nothing(feed):
    assert feed("ls", "--json") == (0, "[]\n", "")


def test_show_prints_latest_and_skipped_updates_newer_versions_and_history(feed, published):
    published.put(f"{MEN.path}/20191127.060000/_SUCCESS", b"5")
    published.put(f"{MEN.path}/20180231.000000/_SUCCESS", b"0")
    publish(published, Partition(Feed.parse("ads/shown/v2.0")), {}, moment(NEW))
    shown = json.loads(feed("show", "ads/shown/v1.0", "2019-11-24/men", "--json")[1])
    assert (shown["feed"], shown["partition"], shown["latest"]["id"]) == ("ads/shown/v1.0", "2019-11-24/men", NEW)
    assert [file["key"] for file in shown["latest"]["files"]] == [
        f"{MEN.path}/{NEW}/part-1.csv",
        f"{MEN.path}/{NEW}/sub/b",
    ]
    assert {skipped["id"]: skipped["reason"] for skipped in shown["skipped"]} == {
        "20191127.060000": "its manifest says 5 files and there are 0",
    }
    assert shown["newer_versions"] == ["ads/shown/v2.0"]
    assert [(row["id"], row["valid"]) for row in shown["history"]] == [
        ("20191127.060000", False),
        (NEW, True),
        (OLD, True),
        ("20180231.000000", False),
    ]
    assert shown["history"][-1]["reason"].startswith("'20180231.000000' is not an update id: expected YYYYMMDD.HHMMSS")
    output = feed("show", "ads/shown/v1.0", "2019-11-24/men")[1]
    assert "  skipped\n    id               reason\n    20191127.060000  its manifest says 5 files and" in output
    assert "  newer_versions\n    ads/shown/v2.0\n" in output


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], NEW),
        (["--as-of", "2019-11-25T23:00Z"], OLD),
        (["--as-of", "2019-11-26T07:00:00+01:00"], NEW),
        (["--as-of", "2019-11-26T06:00:00"], NEW),
        (["--as-of", OLD], OLD),
        (["--update", OLD], OLD),
    ],
)
def test_get_copies_the_files_of_one_update(feed, published, tmp_path, options, expected):
    code, output, _ = feed("get", "ads/shown/v1.0", "2019-11-24/men", "--to", tmp_path / "out", *options, "--json")
    assert (code, json.loads(output)["id"]) == (0, expected)
    assert (tmp_path / "out" / "part-1.csv").read_text() == expected
    assert (tmp_path / "out" / "sub" / "b").read_text() == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--as-of", "2019-11-01"], "has no update"),
        (["--as-of", "yesterday"], "'yesterday' is not a time: expected ISO 8601"),
        (["--as-of", OLD, "--update", OLD], "exclude each other"),
        (["--update", "20191127.000000"], "no valid update 20191127.000000: it has no manifest"),
        (["--update", "20180231.000000"], "is not an update id"),
    ],
)
def test_get_reports_an_impossible_copy_in_one_line(feed, published, tmp_path, options, message):
    code, output, errors = feed("get", "ads/shown/v1.0", "2019-11-24/men", "--to", tmp_path / "out", *options)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith("feed-assets: ")
    assert message in errors
    assert not (tmp_path / "out").exists()


def test_publish_writes_the_files_as_an_update_and_prints_it(feed, shared, tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(name)
    code, output, errors = feed(
        "publish", "ads/shown/v1.0", "2019-11-24/men", tmp_path / "a.csv", tmp_path / "b.csv", "--json"
    )
    update = latest(shared, MEN).update
    assert (code, json.loads(output)["id"], errors) == (
        0,
        update.id,
        f"published ads/shown/v1.0 2019-11-24/men {update.id}\n",
    )
    assert [shared.get(file.key) for file in update.files] == [b"a.csv", b"b.csv"]


def test_publish_refuses_two_files_of_one_name_and_files_that_are_not_there(feed, shared, tmp_path):
    (tmp_path / "sub").mkdir()
    for path in (tmp_path / "a.csv", tmp_path / "sub" / "a.csv"):
        path.touch()
    code, _, errors = feed("publish", "ads/shown/v1.0", "x", tmp_path / "a.csv", tmp_path / "sub" / "a.csv")
    assert (code, "have the same name" in errors) == (1, True)
    assert feed("publish", "ads/shown/v1.0", "x", tmp_path / "none.csv")[0] == 2
    assert shared.files("") == ()


def test_verify_fails_with_the_reason_when_the_newest_update_is_not_valid(feed, published):
    assert feed("verify", "ads/shown/v1.0")[0] == 0
    published.put(f"{MEN.path}/{NEW}/extra", b"")
    for scope in ([], ["2019-11-24/men"]):
        code, output, errors = feed("verify", "ads/shown/v1.0", *scope, "--json")
        assert (code, "its manifest says 2 files and there are 3" in errors) == (1, True)
        assert json.loads(output)[0]["problem"] == f"{NEW}: its manifest says 2 files and there are 3"
    assert feed("verify", "ads/shown/v1.0", "2019-11-24/men", "--update", OLD)[0] == 0
    assert feed("verify", "ads/shown/v1.0", "2019-11-24/men", "--update", NEW)[0] == 1


def test_verify_of_a_missing_partition_fails(feed, published):
    assert "there is nothing to verify" in feed("verify", "ads/none/v1.0")[2]
    code, _, errors = feed("verify", "ads/shown/v1.0", "2019-11-25/men")
    assert (code, "it has no update" in errors) == (1, True)


@pytest.mark.parametrize("how", ["manifest", "file"])
def test_invalidate_restores_the_previous_update_and_prints_it(feed, published, how):
    code, output, errors = feed("invalidate", "ads/shown/v1.0", "2019-11-24/men", NEW, "--how", how)
    assert (code, errors) == (0, f"invalidated ads/shown/v1.0 2019-11-24/men {NEW}\n")
    assert f"{OLD} is valid" in output
    assert latest(published, MEN).update.id == OLD
    shown = json.loads(feed("invalidate", "ads/shown/v1.0", "2019-11-24/men", NEW, "--how", how, "--json")[1])
    assert shown["latest"]["id"] == OLD


def test_invalidating_a_missing_update_is_an_error(feed, published):
    code, _, errors = feed("invalidate", "ads/shown/v1.0", "2019-11-24/men", "20191127.000000")
    assert (code, "no update to invalidate" in errors) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "v1.0"], "is not a feed"),
        (["show", "ads/shown/v1.0", "../x"], "cannot be a path segment"),
        (["show", "ads/shown/v1.0", "20191125.060000"], "looks like an update id"),
        (["ls", "_feed_assets/claims"], "is not a feed"),
    ],
)
def test_bad_names_are_one_line(feed, shared, arguments, message):
    code, output, errors = feed(*arguments)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert message in errors


def test_the_blackboard_of_the_settings_is_used_and_printed(feed, published, monkeypatch, tmp_path):
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", published.url)
    settings.cache_clear()
    code, output, errors = feed("ls", "--json", blackboard=None)
    assert (code, json.loads(output), errors) == (0, [{"feed": "ads/shown/v1.0"}], f"blackboard: {published.url}\n")


def test_a_folder_that_cannot_be_written_is_one_line(feed, published, tmp_path):
    (tmp_path / "file").touch()
    code, _, errors = feed("get", "ads/shown/v1.0", "2019-11-24/men", "--to", tmp_path / "file" / "out")
    assert (code, errors.count("\n"), "Traceback" in errors) == (1, 1, False)


def test_a_missing_blackboard_is_reported_in_one_line():
    command = [PROGRAM, "feed", "ls", "--blackboard", "file:///no/such/folder"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("feed-assets: No blackboard at file:///no/such/folder: the folder does not exist. ")
    assert done.stderr.count("\n") == 1


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from feed_assets.cli import app\n"
        "for arguments in ['--help'], ['feed', '--help'], ['state', '--help']:\n"
        "    try: app(arguments)\n"
        "    except SystemExit: pass\n"
        "heavy = {'dagster', 'pyspark', 'pandas', 'boto3', 'obstore', 'sqlalchemy', 'rich', 'psutil'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def appended(shared):
    """Write a day with three batches: one with two updates, one whose newest update is invalid, one without any."""
    day = Partition(MEN.feed, "2019-11-24")
    for name, update_id in (("a", OLD), ("a", NEW), ("b", OLD)):
        publish(shared, day.batch(name), {"part": update_id.encode()}, moment(update_id))
    shared.put(f"{day.path}/b/{NEW}/part", b"")
    shared.put(f"{day.path}/c/{NEW}/part", b"")
    return shared


DAY = ("ads/shown/v1.0", "2019-11-24", "--batches")
NO_MANIFEST = "it has no manifest: still being written, refused by its audit, abandoned or invalidated"
HELD = [
    {"batch": "a", "id": NEW, "valid": True, "files": 1, "bytes": 15, "reason": ""},
    {"batch": "b", "id": OLD, "valid": True, "files": 1, "bytes": 15, "reason": ""},
    {"batch": "c", "id": "", "valid": False, "files": None, "bytes": None, "reason": f"{NEW}: {NO_MANIFEST}"},
]


def test_the_batches_of_a_partition_are_listed_and_shown_with_what_is_left_out(feed, appended):
    assert json.loads(feed("ls", *DAY, "--json")[1]) == HELD
    shown = json.loads(feed("show", *DAY, "--json")[1])
    assert [(batch["partition"], batch["latest"] and batch["latest"]["id"]) for batch in shown["batches"]] == [
        ("2019-11-24/a", NEW),
        ("2019-11-24/b", OLD),
        ("2019-11-24/c", None),
    ]
    assert shown["left_out"] == [{"id": "c", "reason": f"{NEW}: {NO_MANIFEST}"}]
    assert feed("show", *DAY)[1].endswith("2 of 3 batches have a valid update\n")


@pytest.mark.parametrize(("as_of", "first"), [([], NEW), (["--as-of", OLD], OLD)])
def test_get_copies_every_batch_into_a_folder_of_its_own(feed, appended, tmp_path, as_of, first):
    code, _, _ = feed("get", *DAY, "--to", tmp_path / "out", *as_of)
    found = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in (tmp_path / "out").rglob("part")}
    assert (code, found) == (0, {"out/a/part": first, "out/b/part": OLD})


def test_verify_checks_every_batch(feed, appended):
    code, output, errors = feed("verify", *DAY, "--json")
    assert [bool(row["problem"]) for row in json.loads(output)] == [False, True, True]
    assert (code, "2 of 3 partitions are bad" in errors) == (1, True)


def test_a_batch_is_published_and_invalidated_by_a_longer_partition_path(feed, appended, tmp_path):
    (tmp_path / "part").write_text("new")
    published = json.loads(feed("publish", "ads/shown/v1.0", "2019-11-24/c", tmp_path / "part", "--json")[1])
    assert [row["id"] for row in json.loads(feed("ls", *DAY, "--json")[1])] == [NEW, OLD, published["id"]]
    feed("invalidate", "ads/shown/v1.0", "2019-11-24/a", NEW)
    assert json.loads(feed("ls", *DAY, "--json")[1])[0]["id"] == OLD
