"""Commands that write create home, ledger and blackboard, with a message; commands that read create nothing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from feed_assets.cli import app
from feed_assets.cli.loaded_location import prepare
from feed_assets.core.errors import BlackboardMissing, FeedAssetsError, InvalidSetting, LedgerUnavailable
from feed_assets.defs.ads import sample
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case

MODULE = ["-m", "feed_assets.definitions"]
SUMMARY, RAW = "retail/daily_summary/v1.0", "ads/shown_raw/v1.0"


@pytest.fixture
def nowhere(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home that does not exist, in a folder that does."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "lake" / "new home"))
    (tmp_path / "lake").mkdir()
    settings.cache_clear()
    return tmp_path / "lake" / "new home"


def done(*args: str) -> Result:
    return CliRunner().invoke(app, args)


def publish(tmp_path: Path) -> Result:
    (tmp_path / "a.csv").write_bytes(sample.shown_csv("2019-11-24", "men"))
    return done("feed", "publish", RAW, "2019-11-24/men", str(tmp_path / "a.csv"))


READING = {
    "explain": ["explain", SUMMARY, *MODULE],
    "explain one": ["explain", "ads/shown/v1.0", "2019-11-24/men", *MODULE],
    "events ls": ["events", "ls"],
    "events due": ["events", "due", *MODULE],
    "events stats": ["events", "stats", "a", "b"],
    "events resume": ["events", "resume", SUMMARY, *MODULE],
    "feed prune": ["feed", "prune", RAW, "--keep", "3"],
    "ledger prune": ["ledger", "prune"],
    "feed revalidate": ["feed", "revalidate", RAW, "2019-11-24/men", "20191125.060000"],
}


@each_case("name", READING)
def test_read_commands_create_nothing_and_name_the_commands_that_create_the_ledger(nowhere, tmp_path, name):
    # With a blackboard that is there: the ledger alone is missing.
    error = done(*READING[name]).exception
    assert isinstance(error, LedgerUnavailable | BlackboardMissing)
    assert "`feed-assets run` and `feed publish` make" in str(error)
    assert [*(tmp_path / "lake").iterdir()] == []


@each_case("args", [["ls"], ["ls", RAW], ["show", RAW], ["get", RAW, "k", "--to", "x"], ["verify", RAW]])
def test_feed_read_commands_create_no_blackboard(nowhere, tmp_path, args):
    error = done("feed", *args).exception
    assert isinstance(error, BlackboardMissing)
    assert "`feed publish` make the one in the home folder" in str(error)
    assert [*(tmp_path / "lake").iterdir()] == []


def test_created_folders_are_printed_once(nowhere, tmp_path):
    said = publish(tmp_path)
    assert said.exit_code == 0, said.exception
    made = [line for line in said.stderr.splitlines() if line.startswith("feed-assets: made")]
    assert made == [
        f"feed-assets: made the home folder {nowhere}",
        f"feed-assets: made the blackboard {nowhere / 'blackboard'}",
        f"feed-assets: made the ledger {nowhere / 'ledger.db'}",
    ]
    assert "feed-assets: made" not in publish(tmp_path).stderr


def test_publishing_one_event_creates_all_that_later_readers_need(nowhere, tmp_path):
    said = done("events", "publish", "shop/orders", "--marker", "7")
    assert said.exit_code == 0, said.exception
    assert said.stderr.count("feed-assets: made") == 3
    assert [path.name for path in nowhere.iterdir() if path.suffix == ".db"] == ["ledger.db"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DAGSTER_HOME", "{}/typo/home"),
        ("FEED_ASSETS_LEDGER", "sqlite:///{}/typo/ledger.db"),
        ("FEED_ASSETS_BLACKBOARD", "file://{}/typo/lake"),
    ],
)
def test_nothing_is_created_below_a_missing_folder(home, tmp_path, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value.format(tmp_path))
    settings.cache_clear()
    error = publish(tmp_path).exception
    assert isinstance(error, InvalidSetting | BlackboardMissing)
    assert str(tmp_path / "typo") in str(error)
    assert not (tmp_path / "typo").exists()


def test_a_configured_blackboard_is_never_created(home, tmp_path, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", (tmp_path / "lake").as_uri())
    settings.cache_clear()
    assert isinstance(publish(tmp_path).exception, BlackboardMissing)
    assert not (tmp_path / "lake").exists()


def test_run_says_that_it_makes_a_home(nowhere, tmp_path):
    (tmp_path / "plain_defs.py").write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        said = done("run", "-m", "plain_defs")
    assert not isinstance(said.exception, FeedAssetsError), said.exception
    assert f"feed-assets: made the home folder {nowhere}" in said.stderr


@pytest.mark.parametrize("name", ["a b#c%zé", "a&b=c;d"])
def test_ledger_and_blackboard_are_in_the_home_under_any_name(tmp_path, monkeypatch, name):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / name))
    settings.cache_clear()
    publish(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {name, "a.csv"}
    assert {path.name for path in (tmp_path / name).iterdir()} >= {"ledger.db", "blackboard"}
    assert [*(tmp_path / name / "blackboard" / RAW).rglob("a.csv")] != []


@pytest.mark.parametrize("name", ["a?b", "a%41b"])
def test_a_home_that_dagster_would_take_for_another_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / name))
    settings.cache_clear()
    for call in (lambda: prepare(tmp_path / name), lambda: open_ledger(settings().ledger)):
        with pytest.raises(InvalidSetting, match=r"which Dagster's storage reads as parts of a URL"):
            call()
    assert "which Dagster's storage" in str(done("events", "publish", "a/b", "--marker", "1").exception)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("args", [["events", "publish", "a/b", "--marker", "1"], ["reconcile", *MODULE]])
def test_commands_that_write_warn_of_a_home_that_others_may_enter(home, capsys, args):
    home.chmod(0o755)
    said = f"feed-assets: other users can enter the home folder: `chmod 700 {home}`"
    assert said in done(*args).stderr
    home.chmod(0o700)
    assert said not in done(*args).stderr
