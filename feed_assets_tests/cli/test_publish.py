"""`feed publish` checked against the declaration, and the output of `feed ls --unknown`."""

import gzip
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from feed_assets.cli import app
from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.runs.file_schema import check_file
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case

pytestmark = pytest.mark.usefixtures("home", "project")

SHOP = """
import dagster as dg
from feed_assets import feed_asset, foreign_feed, with_automation

days = dg.DailyPartitionsDefinition("2020-01-01")
places = dg.MultiPartitionsDefinition({"day": days, "place": dg.StaticPartitionsDefinition(["north", "south"])})
names = dg.DynamicPartitionsDefinition(name="names")
orders = foreign_feed("shop/orders/v1.0", partitions_def=places, schema="id string, n int")
ended = foreign_feed(
    "shop/ended/v1.0", schema="id string, n int",
    partitions_def=dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-02-01"),
)
sent = foreign_feed("shop/sent/v1.0", partitions_def=days, schema="id string, n int", appendable=True)
named = foreign_feed("shop/named/v1.0", partitions_def=names, schema="id string", format="json")

@feed_asset("shop/made/v1.0", inputs={"orders": orders}, partitions_def=places)
def made(orders):
    return orders

defs = with_automation(dg.Definitions(assets=[orders, ended, sent, named, made]))
"""
ORDERS, GOOD = "shop/orders/v1.0", "id,n\na,1\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "published_shop.py").write_text(SHOP)
    (tmp_path / "pyproject.toml").write_text('[tool.dagster]\nmodule_name = "published_shop"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def file(name: str, text: str) -> str:
    path = Path("files", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def feed(*args: str) -> Result:
    return CliRunner().invoke(app, ["feed", *args])


def texts(key: str, name: str = ORDERS) -> list[str]:
    update = read.latest(open_board(settings()), Partition(Feed.parse(name), key)).update
    return [open_board(settings()).get(each.key).decode() for each in update.files] if update else []


@pytest.mark.parametrize("key", ["2020-01-02/north", "2020-01-02|north"])
def test_publish_accepts_a_partition_path_or_its_key_in_the_ui(key: str) -> None:
    assert feed("publish", ORDERS, key, file("a.csv", GOOD)).exit_code == 0
    assert texts("2020-01-02/north") == [GOOD]


@each_case(
    ("name", "key", "text", "says"),
    [
        (ORDERS, "2020-01-02/nroth", GOOD, "'2020-01-02/nroth' is no partition of shop/orders/v1.0: expected north"),
        ("shop/ended/v1.0", "2099-01-02", GOOD, "is no partition of shop/ended/v1.0: expected 2020-01-01 to"),
        (ORDERS, "2019-01-02/north", GOOD, "is no partition of shop/orders/v1.0"),
        (ORDERS, "2020-01-02/north", "id,m\na,1\n", "a.csv: its header is id,m: expected id,n."),
        (ORDERS, "2020-01-02/north", '{"id": "a"}\n', "expected id,n"),
        ("shop/named/v1.0", "x", GOOD, "its first line is 'id,n': expected a JSON object with 'id'"),
        (
            "shop/sent/v1.0",
            "2020-01-02",
            GOOD,
            "'2020-01-02' names no batch, but each update of this feed must belong to a batch: expected 2020-",
        ),
        ("shop/sent/v1.0", "2019-01-02/b", GOOD, "'2019-01-02' is no partition of shop/sent/v1.0"),
        ("shop/made/v1.0", "2020-01-02/north", GOOD, "shop/made/v1.0 is a dataset feed, and only a run may publish it"),
        ("shop/order/v1.0", "2020-01-02/north", GOOD, "no asset has the feed shop/order/v1.0"),
    ],
)
def test_publish_refuses_files_that_no_run_could_read(name: str, key: str, text: str, says: str) -> None:
    refused = feed("publish", name, key, file("a.csv", text))
    assert isinstance(refused.exception, FeedAssetsError)
    assert says in str(refused.exception)
    assert [*read.feeds(open_board(settings()))] == []


@pytest.mark.parametrize("key", ["a/b/c/d/e/f/g/h/i", "/".join(["x" * 150] * 4)])
def test_a_partition_that_no_listing_would_show_is_refused_and_nothing_is_published(key: str) -> None:
    """Neither it nor, of a tree, what could be."""
    (Path("tree") / "ok").mkdir(parents=True)
    (Path("tree") / key).mkdir(parents=True)
    for folder in ("ok", key):
        (Path("tree") / folder / "a.csv").write_text(GOOD)
    for args in ((key, file("a.csv", GOOD)), ("--tree", "tree")):
        refused = feed("publish", "strange/feed", *args, "--blackboard", open_board(settings()).url)
        assert "expected at most 500 and 8" in str(refused.exception)
    assert [*read.feeds(open_board(settings()))] == []


def test_publish_accepts_a_new_dynamic_partition() -> None:
    assert feed("publish", "shop/named/v1.0", "new", file("a.json", '{"id": "a"}\n')).exit_code == 0


def test_without_a_module_and_on_another_blackboard_everything_is_published(tmp_path: Path) -> None:
    wrong = str(Path(file("a.csv", "x\n")).resolve())
    (tmp_path / "elsewhere").mkdir()
    elsewhere = ("--blackboard", (tmp_path / "elsewhere").as_uri())
    assert feed("publish", ORDERS, "2020-01-02/nroth", wrong, *elsewhere).exit_code == 0
    (tmp_path / "pyproject.toml").unlink()
    assert feed("publish", ORDERS, "2020-01-02/sotuh", wrong).exit_code == 0
    assert isinstance(feed("publish", ORDERS, "2020-01-02/x", wrong, "-m", "published_shop").exception, FeedAssetsError)


def test_a_tree_is_published_partition_by_partition_or_not_at_all() -> None:
    for place in ("north", "south"):
        file(f"2020-01-02/{place}/a.csv", GOOD)
    file("2020-01-02/north/b.csv", "id,n\nb,2\n")
    wrong = Path(file("2020-01-03/nroth/a.csv", GOOD))
    assert "'2020-01-03/nroth' is no partition" in str(feed("publish", ORDERS, "--tree", "files").exception)
    assert texts("2020-01-02/north") == []
    wrong.unlink()
    published = json.loads(feed("publish", ORDERS, "--tree", "files", "--json").stdout)
    assert [each["partition"] for each in published] == ["2020-01-02/north", "2020-01-02/south"]
    assert texts("2020-01-02/north") == [GOOD, "id,n\nb,2\n"]


def test_a_tree_with_an_invalid_part_name_publishes_nothing() -> None:
    file("2020-01-02/north/a.csv", GOOD)
    success = Path(file("2020-01-02/south/_SUCCESS", ""))
    refused = str(feed("publish", ORDERS, "--tree", "files").exception)
    assert refused.startswith("files/2020-01-02/south/_SUCCESS: part name '_SUCCESS' cannot be a path segment")
    success.unlink()
    link = success.with_name("b.csv")
    for target in ("nowhere", success.parents[1] / "north" / "a.csv"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert "b.csv is a link: expected files" in str(feed("publish", ORDERS, "--tree", "files").exception)
    assert texts("2020-01-02/north") == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_that_replaces_a_checked_part_of_a_tree_is_not_followed(kind: str, monkeypatch) -> None:
    """Whoever may write to the tree must not get a private file published by replacing one while others are copied."""
    file("2020-01-02/north/a.csv", GOOD)
    later, private = Path(file("2020-01-02/south/b.csv", GOOD)), Path(file("private/b.csv", "id,n\nsecret,1\n"))
    private.parent.rename("private")
    private = Path("private", "b.csv").absolute()
    claim = write.claim

    def claimed(board, partition, token, now):
        if partition.key == "2020-01-02/south":
            later.unlink()
            if kind == "file":
                later.symlink_to(private)
            else:
                later.parent.rmdir()
                later.parent.symlink_to(private.parent)
        return claim(board, partition, token, now)

    monkeypatch.setattr(write, "claim", claimed)
    assert "is not followed" in str(feed("publish", ORDERS, "--tree", "files").exception)
    assert (texts("2020-01-02/north"), texts("2020-01-02/south")) == ([GOOD], [])
    os.mkfifo("fifo")
    refused = str(feed("publish", ORDERS, "2020-01-02/south", "fifo").exception)
    assert refused == "fifo is no regular file: expected files. Copy its content to a file."


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("2020-01-02/north",),
        ("x", "published_shop.py", "--tree", "."),
        ("2020-01-02/north", "--tree", "."),
    ],
)
def test_publish_needs_files_or_a_tree(args: tuple[str, ...]) -> None:
    assert "nothing to publish is named" in str(feed("publish", ORDERS, *args).exception)


def test_feed_ls_unknown_lists_undeclared_partitions_with_suggestions() -> None:
    for name, key in ((ORDERS, "2020-01-02/north"), (ORDERS, "2020-01-02/nroth"), ("shop/ordres/v1.0", "x")):
        publish(open_board(settings()), Partition(Feed.parse(name), key), {"a.csv": GOOD.encode()}, datetime.now(UTC))
    assert json.loads(feed("ls", "--unknown", "--json").stdout) == [
        {"feed": "shop/ordres/v1.0", "partition": "", "why": "nobody declares this feed: is shop/orders/v1.0 meant?"},
        {
            "feed": ORDERS,
            "partition": "2020-01-02/nroth",
            "why": "'2020-01-02/nroth' is no partition of shop/orders/v1.0: expected north, south in place of 'nroth'.",
        },
    ]


def test_publish_checks_packed_and_parquet_files(tmp_path: Path) -> None:
    packed, parquet = tmp_path / "a.csv.gz", tmp_path / "a.parquet"
    packed.write_bytes(gzip.compress(b"id,m\n"))
    pl.DataFrame({"id": ["a"], "n": [1]}).write_parquet(parquet)
    marked, cut, long = tmp_path / "b.csv", tmp_path / "c.csv.gz", tmp_path / "d.csv"
    marked.write_text(GOOD, encoding="utf-8-sig")
    check_file(marked, "csv", "id string, n int")
    cut.write_bytes(gzip.compress(b"id,n\n")[:12])
    long.write_text("x" * 200_000)
    for bad, says in ((cut, "it cannot be read as csv"), (long, "its header is not valid CSV: field larger")):
        with pytest.raises(FeedAssetsError, match=says):
            check_file(bad, "csv", "id string, n int")
    check_file(parquet, "parquet", "n bigint, id string")
    with pytest.raises(FeedAssetsError, match="its header is id,m: expected id,n"):
        check_file(packed, "csv", "id string, n int")
    with pytest.raises(FeedAssetsError, match="its columns are id, n: expected id, m"):
        check_file(parquet, "parquet", "id string, m int")
    with pytest.raises(FeedAssetsError, match="it cannot be read as parquet"):
        check_file(packed, "parquet", "id string")
    with pytest.raises(FeedAssetsError, match="it is Parquet: expected CSV"):
        check_file(parquet, "csv", "id string")


def test_reading_dynamic_partitions_creates_no_home(home: Path) -> None:
    feed("publish", "shop/named/v1.0", "new", file("a.json", '{"id": "a"}\n'))
    assert not (home / "dagster.yaml").exists()
    assert feed("ls", "--unknown").exit_code == 0
    assert not (home / "dagster.yaml").exists()


def test_feed_ls_unknown_lists_links_and_unportable_names(home: Path) -> None:
    publish(open_board(settings()), Partition(Feed.parse(ORDERS), "2020-01-02/north"), {"a": b""}, datetime.now(UTC))
    day = home / "blackboard" / ORDERS / "2020-01-02"
    (day / "south").symlink_to("north")
    (day / os.fsdecode(b"caf\xe9")).mkdir()
    found = {each["partition"]: each["why"] for each in json.loads(feed("ls", "--unknown", "--json").stdout)}
    assert found.keys() == {"2020-01-02/south", "2020-01-02/caf\ufffd"}
    assert "a symbolic link" in found["2020-01-02/south"]
