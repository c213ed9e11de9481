"""`feed-assets init`: it makes a project completely or not at all, in an unused folder, with an unused name."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.new_project import make_project
from feed_assets.core.errors import FeedAssetsError, InvalidName, TargetNotEmpty
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.project_names import NAME_LENGTH
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.support.each_case import each_case

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
KILLS = 40
LONGEST_NAME = "s" * NAME_LENGTH


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, without update ids and contents of claims."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    told = {re.sub(r"\d{8}\.\d{6}", "ID", path.relative_to(folder).as_posix()): path for path in paths}
    return {name: b"" if "/claims/" in name else path.read_bytes() for name, path in told.items()}


def init(name: str) -> str:
    done = CliRunner().invoke(app, ["init", name], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return an empty current folder, without settings."""
    for name in ("DAGSTER_HOME", "FEED_ASSETS_BLACKBOARD", "FEED_ASSETS_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_project_has_its_files_and_its_sample_on_its_own_blackboard(here):
    init("my_shop")
    made = files(here / "my_shop")
    assert {name for name in made if not name.startswith(".feed_assets/")} == {
        ".gitignore",
        "README.md",
        "my_shop/__init__.py",
        "my_shop/definitions.py",
        "my_shop/defs/__init__.py",
        "my_shop/defs/sold.py",
        "pyproject.toml",
        "sample/orders/2025-06-01/orders.csv",
        "sample/orders/2025-06-02/orders.csv",
        "tests/conftest.py",
        "tests/test_sold.py",
    }
    board = Blackboard.open((here / "my_shop/.feed_assets/blackboard").as_uri())
    for day in ("2025-06-01", "2025-06-02"):
        update = read.latest(board, Partition(Feed.parse("my_shop/orders/v1.0"), day)).update
        assert [board.get(file.key) for file in update.files] == [made[f"sample/orders/{day}/orders.csv"]]
    assert not any(b"$" in text for text in made.values())
    assert (here / "my_shop/.feed_assets").stat().st_mode & 0o777 == 0o700


def test_init_from_files_declares_their_feed_and_publishes_them(here, monkeypatch):
    days = {f"in/2024-01-0{day}/orders.csv": f"id;price\n{day};1.50\n" for day in (1, 2)}
    for name, text in days.items():
        (here / name).parent.mkdir(parents=True)
        (here / name).write_text(text)
    said = CliRunner().invoke(app, ["init", "corner_shop", "--from", *days], catch_exceptions=False).output
    assert "the feed corner_shop/orders/v1.0 with your files, the dataset corner_shop/orders_clean/v1.0" in said
    board = Blackboard.open((here / "corner_shop/.feed_assets/blackboard").as_uri())
    for day, text in zip(("2024-01-01", "2024-01-02"), days.values(), strict=True):
        update = read.latest(board, Partition(Feed.parse("corner_shop/orders/v1.0"), day)).update
        assert [board.get(file.key) for file in update.files] == [text.encode()]
    monkeypatch.syspath_prepend(here / "corner_shop")
    keys = import_module("corner_shop.definitions").defs().resolve_asset_graph().get_all_asset_keys()
    names = {key.to_user_string() for key in keys}
    assert names == {f"corner_shop/{name}" for name in ("orders", "orders_clean", "orders_clean_rejects")}
    made = files(here / "corner_shop")
    assert "sold" not in "".join(made)
    assert b'\nKEY = "2024-01-01"\n' in made["tests/test_sample.py"]
    subprocess.run([BIN / "ruff", "check", "--isolated", "."], cwd=here / "corner_shop", check=True)


def test_dg_finds_it_by_the_keys_that_this_repository_has(here):
    make_project("my_shop", here)
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]
    theirs = tomllib.loads((here / "my_shop/pyproject.toml").read_text())["tool"]["dg"]
    assert json.loads(json.dumps(ours).replace("feed_assets", "my_shop")) == theirs


def test_init_prints_the_next_commands(here):
    said = init("my_shop")
    commands = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert [re.split(r"\s{2,}", line)[0] for line in commands] == [
        "cd my_shop",
        "feed-assets run --until-idle",
        "feed-assets ui",
        "pip install pytest && pytest",
    ]
    assert " set, so commands" not in said


@pytest.mark.parametrize("variable", ["DAGSTER_HOME", "FEED_ASSETS_BLACKBOARD", "FEED_ASSETS_LEDGER"])
def test_init_reports_foreign_settings_and_writes_nothing_there(here, monkeypatch, variable):
    (elsewhere := here / "elsewhere").mkdir()
    monkeypatch.setenv(variable, str(elsewhere))
    said = init("my_shop")
    assert f"{variable} is set, so commands do not use my_shop/.feed_assets alone, where the sample is" in said
    assert "feed-assets feed publish my_shop/orders/v1.0 --tree sample/orders" in said
    assert [*elsewhere.iterdir()] == []


@each_case(
    ("name", "reason", "what_to_do"),
    [
        ("My-Shop", "expected the name of a Python package", "Take 'my_shop', for example."),
        ("a/b", "expected the name of a Python package", "Take 'a_b'"),
        ("..", "expected the name of a Python package", "Choose another."),
        ("", "expected the name of a Python package", "Choose another."),
        ("9lives", "a letter first", "Take 'lives'"),
        ("shop_", "expected the name of a Python package", "Take 'shop'"),
        ("a__b", "single '_'", "Take 'a_b'"),
        ("größe", "of a-z", "Take 'gr_e'"),
        ("s" * (NAME_LENGTH + 1), f"up to {NAME_LENGTH}", f"Take '{'s' * NAME_LENGTH}'"),
        ("class", "a word of Python's own", "such as 'class_data'"),
        ("tests", "a folder that every project has", "such as 'tests_data'"),
        ("sample", "a folder that every project has", "such as 'sample_data'"),
        ("json", "Python has a module json already", "such as 'json_data'"),
        ("sys", "Python has a module sys already (built-in)", "such as 'sys_data'"),
        ("google", "Python has a module google already", "such as 'google_data'"),  # a namespace of several packages
        ("feed_assets", "Python has a module feed_assets already", "such as 'feed_assets_data'"),
    ],
)
def test_init_refuses_an_invalid_name_with_a_suggestion(here, name, reason, what_to_do):
    with pytest.raises(InvalidName) as raised:
        make_project(name, here)
    assert str(raised.value).startswith(f"{name!r} is no name for a project: ")
    assert reason in str(raised.value)
    assert what_to_do in str(raised.value)
    assert [*here.iterdir()] == []


def test_a_folder_that_is_not_empty_stays_as_it_is(here):
    (here / "shop").mkdir()
    (here / "shop" / ".hidden").write_text("mine")
    with pytest.raises(TargetNotEmpty, match=r"shop is not empty: expected nothing there, or an empty folder"):
        make_project("shop", here)
    assert files(here) == {"shop/.hidden": b"mine"}


def test_a_second_init_changes_nothing(here):
    init("shop")
    before = files(here)
    assert CliRunner().invoke(app, ["init", "shop"]).exit_code == 1
    assert files(here) == before


@pytest.mark.parametrize("what", ["file", "link to nothing", "link to an empty folder"])
def test_init_refuses_files_and_links_and_leaves_them_unchanged(here, what):
    (here / "other").mkdir()
    {
        "file": lambda: (here / "shop").write_text("mine"),
        "link to nothing": lambda: (here / "shop").symlink_to("nowhere"),
        "link to an empty folder": lambda: (here / "shop").symlink_to("other"),
    }[what]()
    with pytest.raises(TargetNotEmpty, match="no folder" if what == "file" else "a link"):
        make_project("shop", here)
    assert {path.name for path in here.iterdir()} == {"other", "shop"}
    assert [*(here / "other").iterdir()] == []


def test_init_accepts_an_empty_folder_on_the_python_path(here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    (here / "shop").mkdir()
    make_project("shop", here)
    assert (here / "shop/shop/definitions.py").is_file()


def test_a_failed_init_leaves_nothing(here):
    (here / ".shop.unfinished").write_text("a file where the unfinished project is to be")
    with pytest.raises(OSError, match=r"\.shop\.unfinished"):
        make_project("shop", here)
    assert not (here / "shop").exists()


def make_and_die(folder: str, at: int) -> None:
    """Make a project, and be killed at call number `at` on the way; with 0 write the number of calls."""
    calls = count(1)
    done = 0

    def look(_frame: object, event: str, _argument: object) -> None:
        nonlocal done
        if event in ("call", "c_call"):
            done = next(calls)
            if done == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(look)
    make_project("shop", Path(folder))
    sys.setprofile(None)
    if not at:
        Path(folder, "calls").write_text(str(done))


def test_a_killed_init_leaves_all_or_nothing_and_the_next_one_succeeds(tmp_path, forker):
    (tmp_path / "whole").mkdir()
    assert forker.run(make_and_die, str(tmp_path / "whole"), 0) == 0
    whole, calls = files(tmp_path / "whole" / "shop"), int((tmp_path / "whole" / "calls").read_text())
    left = set()
    for number in range(1, KILLS + 1):
        (here := tmp_path / f"killed-{number}").mkdir()
        code = forker.run(make_and_die, str(here), calls * number // (KILLS + 1))
        assert code == -signal.SIGKILL
        left.add(tuple(sorted(path.name for path in here.iterdir())))
        if not (here / "shop").exists():
            make_project("shop", here)
        assert files(here) == {f"shop/{name}": text for name, text in whole.items()}
    assert {(), (".shop.unfinished",)} <= left <= {(), (".shop.unfinished",), ("shop",)}


def make_or_say(folder: str, said: str) -> None:
    try:
        make_project("shop", Path(folder))
        Path(said).write_text("made")
    except FeedAssetsError as error:
        Path(said).write_text(type(error).__name__)


def test_of_several_simultaneous_inits_exactly_one_succeeds(tmp_path, forker):
    (here := tmp_path / "here").mkdir()
    make_project("shop", tmp_path)
    children = [forker.start(make_or_say, str(here), str(tmp_path / f"said-{number}")) for number in range(4)]
    assert [forker.wait(child) for child in children] == [0] * 4
    said = sorted((tmp_path / f"said-{number}").read_text() for number in range(4))
    assert said == ["TargetNotEmpty"] * 3 + ["made"]
    assert files(here) == {f"shop/{name}": text for name, text in files(tmp_path / "shop").items()}


@pytest.mark.parametrize("name", ["a", "zebra_data", LONGEST_NAME])
def test_a_new_project_passes_ruff_under_any_name(here, name):
    folder = make_project(name, here)
    for words in (["check"], ["format", "--check"], ["check", "--select", "ANN,B,D1,E,F,I,PT,RUF,UP"]):
        for length in ("88", "120"):
            command = [BIN / "ruff", *words, "--isolated", "--no-cache", "--line-length", length, "."]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout


def test_a_new_project_passes_pyright_in_strict_mode(here):
    folder = make_project("shop", here)
    given = {"typeCheckingMode": "strict", "include": [str(folder)], "extraPaths": [str(folder), str(ROOT)]}
    (here / "pyrightconfig.json").write_text(json.dumps(given))
    command = [BIN / "pyright", "-p", here / "pyrightconfig.json", "--pythonpath", sys.executable, "--outputjson"]
    env = {**os.environ, "PYRIGHT_PYTHON_CACHE_DIR": str(ROOT / ".cache" / "pyright")}
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == 6
