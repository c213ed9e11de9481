"""`dg` and `dagster dev` in the clone and in a project from `init`: they load it, and warn of nothing in our code."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from feed_assets.cli.new_project import make_project
from feed_assets.cli.processes import free_port, group
from feed_assets_tests.support.servers import ROOT, wait_until

BIN = Path(sys.executable).parent
LOADED = "{workspaceOrError{...on Workspace{locationEntries{name locationOrLoadError{__typename}}}}}"
WARNING = re.compile(r"(?:feed_assets|my_shop)/\S+\.py:\d+: \w+Warning.*|.*\bWarning: .*location_name.*")
PATIENCE = 300
"""Seconds until a silent server counts as broken: it takes a few on an idle machine."""


@pytest.fixture(scope="module", params=["clone", "project"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Change to a fresh project or the clone, with an empty home; yield the folder."""
    above = tmp_path_factory.mktemp("dg")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
            patch.delenv(name)
        patch.setenv("DAGSTER_HOME", str(above / "home"))
        patch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
        (above / "home").mkdir(0o700)
        patch.chdir(ROOT if request.param == "clone" else make_project("my_shop", above))
        yield Path.cwd()


def test_dg_checks_and_lists_the_definitions(folder: Path) -> None:
    said = {
        command: subprocess.run(["dg", command, "defs", *options], capture_output=True, text=True, check=True)
        for command, options in {"check": [], "list": ["--json"]}.items()
    }
    assert "All definitions loaded successfully" in said["check"].stdout + said["check"].stderr
    keys = {each["asset_key"] for each in json.loads(said["list"].stdout)["assets"]}
    assert ("ads/effectiveness" if folder == ROOT else "my_shop/sold") in keys
    assert [WARNING.findall(each.stdout + each.stderr) for each in said.values()] == [[], []]


@pytest.mark.parametrize("command", ["dg", "dagster"])
def test_dev_serves_the_definitions(folder: Path, tmp_path: Path, command: str) -> None:
    port, log = free_port(), tmp_path / "dev.log"
    name = "feed_assets" if folder == ROOT else "my_shop"
    with group(f"{command} dev", [command, "dev", "--port", str(port)], log) as server:

        def locations() -> dict[str, str]:
            server.check()
            try:
                answer = requests.post(f"http://127.0.0.1:{port}/graphql", json={"query": LOADED}, timeout=60)
            except requests.ConnectionError:
                return {}  # It does not listen yet.
            entries = answer.json()["data"]["workspaceOrError"]["locationEntries"]
            return {each["name"]: (each["locationOrLoadError"] or {}).get("__typename") for each in entries}

        wait_until(lambda: all((found := locations()).values()) and found, f"{command} dev", PATIENCE, pause=1)
        assert locations() == {name: "RepositoryLocation"}, log.read_text()
    assert WARNING.findall(log.read_text()) == []
