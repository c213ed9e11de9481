"""Order of steps between which a process could end; other processes are stand-ins."""

import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from feed_assets.cli.loaded_location import prepare
from feed_assets.orchestration.launcher import parent, warm
from feed_assets.orchestration.launcher.parent import GO, Load
from feed_assets.orchestration.launcher.parents import Unloadable
from feed_assets.orchestration.ticks.dead_runs import WORKER

ORIGIN: Any = SimpleNamespace(executable_path=sys.executable)


@dg.job
def nothing() -> None:
    """Run without steps."""


@pytest.mark.parametrize("word", [GO, b"no"])
def test_a_fork_begins_by_the_word_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: bytes) -> None:
    begun = list[str]()
    monkeypatch.setattr(parent, "forget_finalizers", lambda: None)
    monkeypatch.setattr(parent, "execute", lambda run_id, _: begun.append(run_id) or 0)
    storage: Any = SimpleNamespace(local_artifact_storage=SimpleNamespace(storage_dir=str(tmp_path)))
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.send(word)
        parent._run("a run", its, storage)
    assert begun == ["a run"] * (word == GO)


def test_the_word_is_given_when_the_run_s_tag_names_the_process() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        launcher, run, tags = warm.WarmRunLauncher(), instance.create_run_for_job(nothing), list[str]()
        launcher.register_instance(instance)
        fork: Any = SimpleNamespace(
            name="host:1:0.00", go=lambda: tags.append(instance.get_run_by_id(run.run_id).tags.get(WORKER))
        )
        launcher._begin(run, fork)
    assert tags == [f"{run.run_id} host:1:0.00"]


@pytest.mark.parametrize("load_after", ["a load", "another"])
def test_a_parent_started_before_a_reload_is_ended_and_not_used(monkeypatch, load_after: str) -> None:
    ended = list[bool]()
    started: Any = SimpleNamespace(end=lambda: ended.append(True))
    monkeypatch.setattr(warm, "server_behind", lambda *_: None)
    monkeypatch.setattr(warm.Parent, "start", lambda *_: started)
    location: Any = SimpleNamespace(client=SimpleNamespace(get_server_id=lambda _: load_after))
    found = warm._started("a load", location, Load(ORIGIN, ORIGIN, "a_project"), until=0)
    assert isinstance(found, Unloadable) is bool(ended) is (load_after != "a load")


def test_the_instance_s_variables_are_there_when_the_code_is_loaded(tmp_path, home, monkeypatch) -> None:
    found = list[str | None]()
    (tmp_path / ".env").write_text("OF_THE_INSTANCE=here\n")
    monkeypatch.setenv("DAGSTER_PROJECT_ENV_FILE_PATHS", json.dumps({"a_project": str(tmp_path)}))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(parent, "load", lambda _: found.append(os.environ.get("OF_THE_INSTANCE")))
    prepare(home)
    with dg.DagsterInstance.get() as instance:
        parent._load(Load(instance.get_ref(), ORIGIN, "a_project"))
    assert found == ["here"]
