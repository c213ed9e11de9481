"""The shared server of a session: one for all processes, until the last of them has left or was killed."""

import subprocess
import sys
from contextlib import contextmanager

from feed_assets_tests.support.servers import PostgreSQL, wait_until
from feed_assets_tests.support.shared_servers import shared

USER = """
import sys
from pathlib import Path
from feed_assets_tests.support.shared_servers import shared

with shared("postgresql", Path(sys.argv[1])) as address:
    print(address["uri"], flush=True)
    sys.stdin.read()
"""


@contextmanager
def user(folder):
    """Start a process that uses the server until the block ends."""
    command = [sys.executable, "-c", USER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_shared_server_runs_until_its_last_user_has_left_or_was_killed(tmp_path):
    address = tmp_path / "postgresql.json"
    with user(tmp_path) as one, user(tmp_path) as other:
        uri = one.stdout.readline()
        assert uri.startswith("postgresql://")
        assert other.stdout.readline() == uri
        one.kill()
        one.wait()
        with shared("postgresql", tmp_path) as found:
            assert found["uri"] == uri.strip()
            PostgreSQL(**found).database()
    wait_until(lambda: not address.exists(), "the server to be stopped")
    with shared("postgresql", tmp_path) as found:
        assert found["uri"] != uri.strip()
