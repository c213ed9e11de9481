"""Servers that send one byte at a time, without end."""

import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socket import SHUT_RDWR, create_server, socket
from threading import Event, Thread


@dataclass
class Dripping:
    """A server that sends `beginning` at once and then single bytes; `gone` is set once a caller has disconnected."""

    port: int
    callers: int = 0
    gone: Event = field(default_factory=Event)


@contextmanager
def dripping(beginning: bytes, tls: ssl.SSLContext | None = None) -> Iterator[Dripping]:
    over = Event()
    with create_server(("127.0.0.1", 0)) as listening:
        server = Dripping(listening.getsockname()[1])

        def drip(caller: socket) -> None:
            with suppress(OSError), tls.wrap_socket(caller, server_side=True) if tls else caller as connection:
                connection.sendall(beginning)
                while not over.wait(0.2):
                    connection.sendall(b"x")
            server.gone.set()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listening.accept()
                    server.callers += 1
                    Thread(target=drip, args=(caller,), daemon=True).start()

        Thread(target=serve, daemon=True).start()
        yield server
        over.set()


MOST_SENT = 64 << 20
"""Bytes after which `flooding` ends, so that a client that reads all of it fails its test and not the machine."""


@dataclass
class Flooding:
    """A server that answers without end. `sent` is the number of bytes that its callers' connections have taken."""

    port: int
    sent: int = 0


@contextmanager
def flooding(command: bytes, head: bytes, block: bytes) -> Iterator[Flooding]:
    """Run a server until the block ends. It answers `250 ok` to each line until one begins with `command`.

    It answers that line by `head`, and by `block` again and again.
    """

    def flood(caller: socket) -> None:
        with suppress(OSError), caller, caller.makefile("rb") as lines:
            caller.sendall(b"220 ready\r\n" if command in (b"EHLO", b"RCPT") else b"")
            for line in lines:
                is_answered = line.upper().startswith(command)
                caller.sendall(head if is_answered else b"250 ok\r\n")
                while block and is_answered and server.sent < MOST_SENT:
                    caller.sendall(block)
                    server.sent += len(block)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threads.append(Thread(target=flood, args=(listening.accept()[0],)))
                threads[-1].start()

    threads: list[Thread] = []
    with create_server(("127.0.0.1", 0)) as listening:
        server = Flooding(listening.getsockname()[1])
        accepting = Thread(target=serve)
        accepting.start()
        try:
            yield server
        finally:
            listening.shutdown(SHUT_RDWR)
    accepting.join()
    for each in threads:
        each.join()


_LOGGED_IN = (
    (b"R", struct.pack(">i", 0)),
    *(
        (b"S", name + b"\0" + value + b"\0")
        for name, value in ((b"server_version", b"16.4"), (b"client_encoding", b"UTF8"))
    ),
    (b"K", struct.pack(">ii", 1, 1)),
    (b"Z", b"I"),
)


@contextmanager
def silent_postgresql() -> Iterator[int]:
    """Run a PostgreSQL server that lets anybody log in, and answers no query. Yield its port."""

    def serve(caller: socket) -> None:
        with suppress(OSError, struct.error), caller:
            (length,) = struct.unpack(">i", caller.recv(4))
            if struct.unpack(">i", caller.recv(length - 4)[:4]) == (80877103,):  # It asks for TLS.
                caller.sendall(b"N")
                caller.recv(4096)
            for kind, content in _LOGGED_IN:
                caller.sendall(kind + struct.pack(">i", len(content) + 4) + content)
            while caller.recv(4096):
                pass

    def accept() -> None:
        with suppress(OSError):
            while True:
                Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    with create_server(("127.0.0.1", 0)) as listening:
        Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
