"""Permissions of the home for other users, and code that is run from the current folder."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.cli.demo.stage import fresh_home
from feed_assets.core.errors import InvalidSetting
from feed_assets.defs.ads import sample
from feed_assets.intake.spool import Spool
from feed_assets.settings import settings

STRANGER = (
    "from pathlib import Path\nPath(__file__).with_name('a_stranger_ran').touch()\nraise ImportError('a stranger')\n"
)
PROJECT = '[tool.dg.project]\nroot_module = "shop"\n'
DEFINITIONS = """
import dagster as dg, feed_assets as f
import helper
raw = f.foreign_feed("shop/raw/v1.0", schema="k string")
defs = f.with_automation(dg.Definitions(assets=[raw]))
"""


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def new_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home that does not exist, for a user whose files everybody may read."""
    before = os.umask(0o022)
    for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    yield tmp_path / "home"
    os.umask(before)
    settings.cache_clear()


def publish(folder: Path):
    (folder / "a.csv").write_bytes(sample.shown_csv("2019-11-24", "men"))
    return CliRunner().invoke(app, ["feed", "publish", "ads/shown_raw/v1.0", "2019-11-24/men", str(folder / "a.csv")])


def run():
    return CliRunner().invoke(app, ["run", "-m", "feed_assets.definitions"])


def test_home_and_its_files_are_readable_only_by_the_owner(new_home, tmp_path):
    assert publish(tmp_path).exit_code == 0
    assert run().exit_code in (0, 1)
    assert rights(new_home) == 0o700
    made = ("dagster.yaml", "ledger.db", ".lock")
    assert {name: rights(new_home / name) for name in made} == dict.fromkeys(made, 0o600)


def test_files_outside_of_the_home_keep_the_user_s_permissions(new_home, tmp_path, monkeypatch):
    """Keep the blackboard readable for other teams."""
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", (tmp_path / "lake").as_uri())
    monkeypatch.setenv("FEED_ASSETS_LEDGER", f"sqlite:///{tmp_path}/shared.db")
    (tmp_path / "lake").mkdir()
    assert publish(tmp_path).exit_code == 0
    assert run().exit_code in (0, 1)
    assert {rights(path) for path in (tmp_path / "lake").rglob("*") if path.is_file()} == {0o644}
    assert rights(tmp_path / "shared.db") == 0o644


def test_an_existing_home_keeps_its_permissions_with_a_warning(new_home):
    new_home.mkdir(0o755)
    done = run()
    assert done.stderr.count(f"other users can enter the home folder: `chmod 700 {new_home}`") == 1
    assert rights(new_home) == 0o755
    logs = ("history", "schedules", "storage")  # Output and errors of runs contain rows.
    assert {name: rights(new_home / name) for name in logs} == dict.fromkeys(logs, 0o700)
    new_home.chmod(0o700)
    assert "other users can enter" not in run().stderr


def test_the_demo_s_home_is_readable_only_by_the_owner(new_home, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(new_home))
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", "{}")  # which the demo sets anew, and the next test must not have
    monkeypatch.setenv("RETAIL_CRM", "sqlite://")  # the same
    assert rights(fresh_home()) == 0o700
    assert rights(new_home) == 0o700


def test_a_spool_of_another_user_is_refused_and_unchanged(tmp_path, monkeypatch):
    (folder := tmp_path / "spool").mkdir(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
        with pytest.raises(InvalidSetting, match=r"the spool .* is a folder, of the user"):
            Spool(folder)
    (link := tmp_path / "link").symlink_to(folder)
    with pytest.raises(InvalidSetting, match=r"the spool .* is a link, of the user"):
        Spool(link)
    assert [*folder.iterdir()] == []
    Spool(folder).close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project that is not installed; its folder has a stranger's files with the names of libraries."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("psutil", "numpy", "pandas", "pyspark", "sqlalchemy", "grpc", "requests"):
        (folder / f"{name}.py").write_text(STRANGER)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "helper.py").write_text("from feed_assets.spark.session import session\n")  # which imports much
    (folder / "shop").mkdir()
    (folder / "shop" / "definitions.py").write_text(DEFINITIONS)
    return folder


@pytest.mark.parametrize("command", [["run"], ["run", "-m", "shop.definitions"], ["explain", "shop/raw/v1.0"]])
def test_files_in_the_current_folder_do_not_shadow_installed_libraries(project, tmp_path, command):
    env = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    program = [str(Path(sys.executable).with_name("feed-assets")), *command]
    (tmp_path / "home" / "blackboard").mkdir(parents=True, mode=0o700)
    env |= {"DAGSTER_HOME": str(tmp_path / "home")}
    done = subprocess.run(program, cwd=project, env=env, capture_output=True, text=True, timeout=120)
    assert any(word in done.stdout + done.stderr for word in ("one tick", "is a foreign feed", "no ledger")), (
        done.stderr
    )
    assert not (project / "a_stranger_ran").exists()
