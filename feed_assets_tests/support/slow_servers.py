"""Servers that send one byte at a time, without end."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socket import create_server, socket
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
