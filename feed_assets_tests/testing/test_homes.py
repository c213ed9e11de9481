"""A home folder for a test, and the rows that its runs published."""

import os

import pytest

from feed_assets.core.errors import NoValidUpdate
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker, fresh_home
from feed_assets_tests.testing.raw_to_out import OUT, RAW, definitions

THEIRS = {
    "DAGSTER_HOME": "/theirs",
    "FEED_ASSETS_BLACKBOARD": "s3://theirs",
    "FEED_ASSETS_LEDGER": "sqlite:////theirs/ledger.db",
    "FEED_ASSETS_ALERT_WEBHOOK": "https://theirs",
}


def ours():
    return {name: value for name, value in os.environ.items() if name.startswith(("DAGSTER_", "FEED_ASSETS_"))}


@pytest.fixture
def theirs(monkeypatch):
    """Provide settings of the user, which no test may change."""
    for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
        monkeypatch.delenv(name)
    for name, value in {**THEIRS, "FEED_ASSETS_SPARK_MASTER": "local[1]"}.items():
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    yield ours()
    settings.cache_clear()


def test_a_fresh_home_is_what_the_settings_name_and_only_spark_is_where_it_was(tmp_path, theirs):
    before = settings()
    with fresh_home(tmp_path / "home") as home:
        assert settings().blackboard == (home / "blackboard").as_uri()
        assert settings().ledger.get_secret_value() == f"sqlite:///{home}/ledger.db"
        assert settings().alert_webhook is None
        assert settings().spark_master == "local[1]"
        assert home.stat().st_mode & 0o777 == 0o700
    assert (ours(), settings()) == (theirs, before)


def failing(folder):
    with fresh_home(folder):
        os.environ["FEED_ASSETS_MAX_REQUESTS"] = "1"
        raise ZeroDivisionError


def test_the_environment_is_restored_after_an_error(tmp_path, theirs):
    with pytest.raises(ZeroDivisionError):
        failing(tmp_path / "home")
    assert ours() == theirs


def test_homes_know_nothing_of_each_other(tmp_path, theirs):
    for name in ("first", "second"):
        with fresh_home(tmp_path / name), Harness(definitions(), maker=PlainMaker()) as harness:
            assert harness.newest(OUT) is None
            harness.drop(RAW, "", "n\n1\n")
            assert [run.succeeded for run in harness.run_until_idle()] == [True]


def test_rows_are_those_of_the_newest_valid_update(tmp_path, theirs):
    numbers = iter([1, 2])
    maker = PlainMaker(lambda task: Given([{"n": next(numbers)}]))
    with fresh_home(tmp_path / "home"), Harness(definitions(), maker=maker) as harness:
        with pytest.raises(NoValidUpdate):
            harness.rows(OUT)
        for number in (1, 2):
            harness.drop(RAW, "", f"n\n{number}\n")
            harness.run_until_idle()
            assert harness.rows(OUT) == [{"n": number}]
