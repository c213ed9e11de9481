"""One server of each kind for all processes of a test session.

    python -m feed_assets_tests.support.shared_servers KIND FOLDER LOCK

The first process that needs a server starts its keeper. Every user holds a shared lock on a file. The keeper waits for
the exclusive lock, and then stops the server. The kernel releases the lock of a process that is killed.
"""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

from feed_assets_tests.support.kafka_servers import Broker, Registry, kafka_server, registry_server
from feed_assets_tests.support.servers import PostgreSQL, S3Server, postgresql_server, seaweedfs_server

SERVERS: dict[str, Callable[[Path], AbstractContextManager[S3Server | PostgreSQL | Broker | Registry]]] = {
    "kafka": kafka_server,
    "registry": registry_server,
    "seaweedfs": seaweedfs_server,
    "postgresql": lambda _: postgresql_server(),
}
SECONDS = 120
"""Time limit for the first answer of a server, on a shared machine."""


@contextmanager
def shared(kind: str, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the address of the session's server, which runs at least until the block ends."""
    with (folder / f"{kind}.users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield _address(kind, folder)


def _address(kind: str, folder: Path) -> dict[str, str]:
    path = folder / f"{kind}.json"
    with (folder / f"{kind}.start").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not path.exists():
            _start(kind, folder, alone)
    return json.loads(path.read_text())


def _start(kind: str, folder: Path, alone: IO[str]) -> None:
    """Return when the server answers. The keeper's parent inherits the lock, in case this process is killed."""
    command = [sys.executable, "-m", "feed_assets_tests.support.shared_servers", kind, str(folder), str(alone.fileno())]
    log = folder / f"{kind}.log"
    with log.open("ab") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        done = subprocess.run(command, **streams, pass_fds=[alone.fileno()], timeout=SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind} did not start; see {log}")


def keep(kind: str, folder: Path, alone: int) -> None:
    """Return when the server answers. A forked process keeps it as long as it has users."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        sys.exit(0 if os.read(reader, 1) else f"the keeper of {kind} ended")
    os.close(alone)
    os.setsid()
    with SERVERS[kind](Path(mkdtemp(prefix=f"{kind}-", dir=folder))) as server:
        _tell(folder / f"{kind}.json", asdict(server))
        os.write(writer, b"1")
        with (folder / f"{kind}.users").open("w") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            (folder / f"{kind}.json").unlink()  # Under the lock: a user who finds the address finds a running server.


def _tell(path: Path, address: dict[str, str]) -> None:
    path.with_suffix(".partial").write_text(json.dumps(address))
    path.with_suffix(".partial").rename(path)


if __name__ == "__main__":
    keep(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
