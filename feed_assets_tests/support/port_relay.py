"""A port that forwards to a server, once the server exists."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path


@contextmanager
def relay(port: int, target: int | Path) -> Iterator[None]:
    """Forward a port to another one, or to a Unix socket, until the block ends. Then cut open connections."""
    listener = socket.create_server(("127.0.0.1", port))
    pairs: list[socket.socket] = []
    thread = threading.Thread(target=_accept, args=(listener, target, pairs))
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in pairs:
            with closing(each), suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        thread.join()


def _accept(listener: socket.socket, target: int | Path, pairs: list[socket.socket]) -> None:
    with suppress(OSError):
        while True:
            here, _ = listener.accept()
            there = _connected(target)
            pairs += [here, there]
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _connected(target: int | Path) -> socket.socket:
    if isinstance(target, int):
        return socket.create_connection(("127.0.0.1", target))
    there = socket.socket(socket.AF_UNIX)
    there.connect(str(target))
    return there


def _copy(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
