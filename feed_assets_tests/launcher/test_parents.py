"""Recognition of code servers, and limits of all waiting."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import psutil
import pytest

from feed_assets.cli.processes import free_port
from feed_assets.orchestration.launcher.dagster_private import DagsterGrpcClient
from feed_assets.orchestration.launcher.parents import (
    AGAIN_SECONDS,
    FORK_SECONDS,
    Fork,
    NoParent,
    Parent,
    Unloadable,
    server_behind,
)
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import stop

LISTEN = """
import os, socket, sys
where = sys.argv[1]
server = socket.socket(socket.AF_UNIX) if "/" in where else socket.socket()
server.bind(where if "/" in where else ("127.0.0.1", int(where)))
server.listen()
os.seteuid(int(sys.argv[2]) if sys.argv[2:] and sys.argv[2].isdigit() else os.geteuid())
print(flush=True)
sys.stdin.read()
"""
ANOTHER = shutil.which("sh") or ""


@contextmanager
def listening(where: str, *more: str, before: tuple[str, ...] = ()) -> Iterator[int]:
    """Start a process that listens at a port or socket; yield its id."""
    command = [*before, sys.executable, "-c", LISTEN, where, *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        try:
            if not process.stdout.readline():
                pytest.skip(f"this machine does not let {before} be")
            yield process.pid
        finally:
            stop(process)


def test_a_code_server_is_known_by_its_executable_or_its_command(tmp_path: Path) -> None:
    port = free_port()
    client = DagsterGrpcClient(host="localhost", port=port)
    with listening(str(port)) as pid:
        assert server_behind(client, sys.executable) == psutil.Process(pid)
    with listening(str(port), "dagster") as pid:
        assert server_behind(client, ANOTHER) == psutil.Process(pid)


def test_a_waiting_connection_at_the_socket_belongs_to_no_process(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with listening(path) as pid, socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(path)
        assert server_behind(DagsterGrpcClient(host="localhost", socket=path), sys.executable).pid == pid


@each_case(
    ("more", "before", "executable", "why"),
    [
        pytest.param([], (), ANOTHER, "is no code server", id="a tunnel"),
        pytest.param(["--fixed-server-id=a"], (), sys.executable, "has a fixed id", id="an id"),
        pytest.param(["--fixed-server-id", "a"], (), sys.executable, "has a fixed id", id="an id apart"),
        pytest.param([], ("unshare", "-m"), sys.executable, "is in a container", id="container"),
    ],
)
def test_a_foreign_process_on_the_port_gets_no_parent(
    more: list[str], before: tuple[str, ...], executable: str, why: str
):
    port = free_port()
    with listening(str(port), *more, before=before), pytest.raises(NoParent, match=why):
        server_behind(DagsterGrpcClient(host="localhost", port=port), executable)


@each_case("host", ["192.0.2.1", "2001:db8::1"])
def test_a_code_server_of_another_host_is_none_of_this_one_that_has_the_same_port(host: str) -> None:
    port = free_port()
    with listening(str(port)), pytest.raises(NoParent, match=f"is on another host .*{host}"):
        server_behind(DagsterGrpcClient(host=host, port=port), sys.executable)


def test_a_listener_at_another_address_of_this_host_gets_no_parent() -> None:
    port = free_port()
    with listening(str(port)), pytest.raises(NoParent, match="is not a process of this user on this host"):
        server_behind(DagsterGrpcClient(host="127.0.0.2", port=port), sys.executable)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_code_server_of_another_user_has_no_parent() -> None:
    port = free_port()
    with listening(str(port), "65534"), pytest.raises(NoParent, match="is a process of another user"):
        server_behind(DagsterGrpcClient(host="localhost", port=port), sys.executable)


def test_a_port_without_a_listener_gets_no_parent() -> None:
    with pytest.raises(NoParent, match="is not a process of this user on this host"):
        server_behind(DagsterGrpcClient(host="localhost", port=free_port()), sys.executable)


def test_a_fork_is_waited_for_no_longer_than_there_is_time() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    began = monotonic()
    with its, pytest.raises(NoParent, match="does not fork"):
        Parent("a load", process, ours).fork("a run", until=began)
    assert monotonic() < began + FORK_SECONDS
    assert process.poll() is not None


def test_a_failed_load_is_retried_after_a_while() -> None:
    assert not Unloadable("a load", "why").has_ended
    assert Unloadable("a load", "why", since=monotonic() - AGAIN_SECONDS - 1).has_ended


def test_an_ended_fork_is_not_started() -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    its.close()
    with pytest.raises(NoParent, match="has ended"):
        Fork("host:1:0.00", ours).go()
