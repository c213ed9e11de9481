"""A code server whose code has crashed is started again, unless the code does not load any more."""

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

from feed_assets.cli import code_servers
from feed_assets.cli.code_servers import kept_alive
from feed_assets_tests.support.servers import free_ports, stop, wait_until

[PORT] = free_ports(1)
CODE = """
from pathlib import Path
import dagster as dg

if Path("has_an_error").exists():
    raise ValueError("of the project")
defs = dg.Definitions()
"""


@pytest.fixture
def server(tmp_path):
    """Yield the process of a code server on this machine."""
    (tmp_path / "of_somebody.py").write_text(CODE)
    command = [Path(sys.executable).with_name("dagster"), "code-server", "start", "--host", "127.0.0.1"]
    command += ["--port", str(PORT), "--module-name", "of_somebody"]
    server = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield psutil.Process(server.pid)
    finally:
        stop(server)


def server_id(client):
    try:
        return client.get_server_id()
    except DagsterUserCodeUnreachableError:
        return None


def test_crashed_code_is_started_again_each_time_until_it_does_not_load(server, tmp_path, monkeypatch, caplog):
    origin = GrpcServerCodeLocationOrigin(host="127.0.0.1", port=PORT, location_name="of_somebody")
    looks, client = Counter(), origin.create_client()
    answers = code_servers._answers
    monkeypatch.setattr(code_servers, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(code_servers, "_answers", lambda each: (looks.update(["one"]), answers(each))[1])
    wait_until(lambda: server_id(client) is not None, "the code server")

    def crash():
        for each in server.children(recursive=True):
            each.kill()

    def look_on():
        seen = looks["one"]
        wait_until(lambda: looks["one"] >= seen + 3, "three more looks")

    with kept_alive([origin]):
        for count in (1, 2):
            look_on()
            before = server_id(client)
            crash()
            wait_until(lambda before=before: server_id(client) not in (None, before), "the new process")
            assert caplog.text.count("the code server of of_somebody has crashed") == count
        look_on()
        (tmp_path / "has_an_error").touch()
        crash()
        wait_until(lambda: caplog.text.count("has crashed") == 3, "the third start")
        look_on()
        assert caplog.text.count("has crashed") == 3, "code that does not load is not started again and again"
        (tmp_path / "has_an_error").unlink()
        client.reload_code(60)
        look_on()
        assert server_id(client)


class FakeServer:
    """A code server whose child answers or not, as the list says, one entry for each question."""

    location_name = "of_somebody"

    def __init__(self, ended, answers):
        self.ended, self.answers, self.restarts = ended, answers, 0

    def create_client(self):
        return self

    def heartbeat(self):
        """Answer: the parent process always does."""

    def ping(self, _):
        if not self.answers.pop(0):
            raise DagsterUserCodeUnreachableError("gone") from RuntimeError("StatusCode.UNAVAILABLE")

    def reload_code(self, _):
        self.restarts += 1
        if not self.answers[1:]:
            self.ended.set()


def test_code_that_crashes_before_the_next_look_is_started_again_and_again(monkeypatch):
    monkeypatch.setattr(code_servers, "LOOK_SECONDS", 0)
    ended = threading.Event()
    crash = [False, False, True]  # A look, the question to the parent, and the answer just after the restart.
    server = FakeServer(ended, [True, *crash, *crash, *crash])
    code_servers._keep_alive(server, ended)
    assert server.restarts == 3
