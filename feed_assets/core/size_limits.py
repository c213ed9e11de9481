"""Size limits for answers of servers that may send without end."""

import http.client
import io
import socket
from typing import Any

MOST_BYTES = 2 << 20
"""Greatest number of bytes read from one HTTP answer, headers included, or from all answers of a mail server."""


class AnswerTooLarge(OSError):
    """A server sends more than its client reads."""

    def __init__(self) -> None:
        super().__init__(f"the answer is larger than {MOST_BYTES >> 20} MiB")


class _Limited(io.RawIOBase):
    """The unread bytes of a socket, up to MOST_BYTES."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file, self._left = file, MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read into a buffer. Raise AnswerTooLarge beyond the limit."""
        count = self._file.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise AnswerTooLarge
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def limited(connection: socket.socket) -> io.BufferedReader:
    """Return a file that reads a socket. Its methods raise AnswerTooLarge beyond MOST_BYTES."""
    return io.BufferedReader(_Limited(connection.makefile("rb", buffering=0)))


class LimitedResponse(http.client.HTTPResponse):
    """An HTTP answer, read up to MOST_BYTES. The limit includes the headers, the lengths of chunks and the trailers."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = limited(sock)
