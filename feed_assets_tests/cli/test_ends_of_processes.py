"""Processes of a command end with it, and are recognized by their port. See `integration/test_web_ui.py`."""

import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from threading import Thread

import psutil
import pytest

from feed_assets.cli.processes import GROUP, SECONDS_TO_END, ProcessFailed, end, free_port, group, wait_for_port
from feed_assets_tests.support.servers import family, lives, wait_until

SLEEP = "import time; time.sleep(600)"


def test_a_group_ends_with_its_grandchildren(tmp_path):
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'])"
    with group("test", [sys.executable, "-c", script], tmp_path / "log") as started:
        wait_until(lambda: len(family(started.process.pid)) == 2, "a grandchild")
        ours = family(started.process.pid)
    assert [each for each in ours if lives(each)] == []


def test_a_child_that_left_its_process_group_is_ended(tmp_path):
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'], start_new_session=True)"
    with group("test", [sys.executable, "-c", script], tmp_path / "log") as started:
        wait_until(lambda: len(family(started.process.pid)) == 2, "a grandchild")
        ours = family(started.process.pid)
    assert [each for each in ours if lives(each)] == []


ORPHAN = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "{SLEEP}"], start_new_session=True).pid, flush=True)
"""


def test_orphans_of_an_ended_process_are_ended(tmp_path):
    with group("test", [sys.executable, "-c", ORPHAN], tmp_path / "log") as started:
        started.process.wait()
        orphan = psutil.Process(int((tmp_path / "log").read_text()))
        assert lives(orphan)
    assert not lives(orphan)


CARELESS = f"""
import os, subprocess, sys, time
env = {{**os.environ, "{GROUP}": sys.argv[1]}}
print(subprocess.Popen([sys.executable, "-c", "{SLEEP}"], env=env).pid, flush=True)
time.sleep(600)
"""


def test_an_unreaped_process_is_not_waited_for(tmp_path):
    with ExitStack() as stack:
        started = stack.enter_context(group("test", [sys.executable, "-c", SLEEP], tmp_path / "log"))
        command = [sys.executable, "-c", CARELESS, started.mark]
        parent = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(parent.kill)
        child = psutil.Process(int(parent.stdout.readline()))
        began = time.monotonic()
        end([started])
        assert time.monotonic() < began + SECONDS_TO_END
        assert child.status() == psutil.STATUS_ZOMBIE


def test_a_server_that_ends_instead_of_answering_is_named(tmp_path):
    with (
        group("the server (log: x.log)", [sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log") as started,
        pytest.raises(ProcessFailed, match=r"the server \(log: x.log\) ended by itself with exit code 3"),
    ):
        wait_for_port(started, free_port())


def test_a_foreign_process_on_a_server_s_port_is_refused(tmp_path):
    """Send nothing to the stranger: a token would be sent next."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def listen() -> None:
            while connection := stranger.accept()[0]:
                with connection:
                    if heard.append(connection.recv(1000)) or heard[-1] == b"end":
                        return

        port = stranger.getsockname()[1]
        Thread(target=listen, daemon=True).start()
        with (
            group("Spark", [sys.executable, "-c", SLEEP], tmp_path / "log") as started,
            pytest.raises(ProcessFailed, match=rf"port {port} of 127\.0\.0\.1 belongs to another process than Spark"),
        ):
            wait_for_port(started, port)
        with socket.create_connection(("127.0.0.1", port)) as last:
            last.sendall(b"end")
        wait_until(lambda: b"end" in heard, "the stranger to have heard all")
    assert heard == [b"", b"end"]


@pytest.mark.parametrize("listens", ["server", "subprocess.run([sys.executable, '-c', server], check=True)"])
def test_a_server_is_recognized_by_its_own_or_its_child_s_port(tmp_path, listens):
    port = free_port()
    server = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    script = server if listens == "server" else f"import subprocess, sys; server = {server!r}; {listens}"
    with group("Spark", [sys.executable, "-c", script], tmp_path / "log") as started:
        wait_for_port(started, port)
        assert started.process.poll() is None


def test_only_the_owner_may_read_a_server_s_log(tmp_path):
    with group("test", [sys.executable, "-c", "print('secret')"], tmp_path / "log") as started:
        started.process.wait()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


WAITS_FOR = """
import signal, sys, threading
from pathlib import Path

mine, theirs = map(Path, sys.argv[1:])
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
mine.with_suffix(".ready").touch()
ended.wait()
mine.touch()
while not theirs.exists():
    threading.Event().wait(0.01)
mine.with_suffix(".done").touch()
"""


def test_groups_that_end_together_end_in_order_though_each_waits_for_the_other(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    first, second = ([sys.executable, "-c", WAITS_FOR, *map(str, each)] for each in ((one, other), (other, one)))
    with group("one", first) as started, group("other", second) as beside:
        wait_until(lambda: all(each.with_suffix(".ready").exists() for each in (one, other)), "both")
        end([started, beside])
        assert all(each.with_suffix(".done").exists() for each in (one, other))


def test_a_command_that_used_duckdb_ends_without_memory_warnings():
    used = "import sys, duckdb; duckdb.connect().execute('SELECT 1'); sys.argv = ['feed-assets', '--version']"
    command = [sys.executable, "-c", f"{used}; from feed_assets.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
