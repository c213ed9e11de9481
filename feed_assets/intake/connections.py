"""Bounds of connections, before any request of theirs is read: their number and duration, and the size of a head.

uvicorn limits connections when a head is complete, and neither its size nor the time it takes. Its protocol has no
place for more, so this overrides methods that may change with each minor version: pyproject.toml allows one.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Container, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from types import MappingProxyType
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from feed_assets.intake.limited_log import ConnectionLog, LimitedLog

HEAD_SECONDS = 10
"""Seconds in which a connection has to send the head of a request, its first or the next one."""

REQUEST_SECONDS = 30
"""Seconds from the first byte of a request to its last."""

LINGER_SECONDS = 5
"""Seconds in which the rest of a refused body is thrown away: a reset would take the answer from its sender."""

HEAD_BYTES = 65_536
"""Bytes of the head of a request: as much as h11 and most proxies take."""

CONNECTIONS = 1000
"""Connections at a time: requests of those beyond are answered with 503."""

WITHOUT_KEY = 200
"""Connections without a valid key: one more ends the oldest of them. Partners have the other 800."""

PIPELINED = 8
"""Requests of a connection that wait while an earlier one is answered: each takes some 10 kB."""

PER_ADDRESS = 100
"""Connections of one address, or of one IPv6 network of 64 bits, unless it is a trusted proxy's."""


class Admission:
    """The open connections of a server.

    Args:
        trusted: Addresses of proxies, whose clients are many.
        log: The log for addresses that have too many.
    """

    def __init__(self, trusted: Container[str], log: LimitedLog) -> None:
        self._trusted, self.log = trusted, log
        self._of_address = Counter[str]()
        self._open = dict[BoundedHttp, None]()  # In the order in which they came.

    def admit(self, connection: "BoundedHttp") -> bool:
        """Count a connection, and end the oldest one without a key for it; False if it is one too many."""
        network, connection.is_counted = connection.network, True
        self._open[connection] = None
        self._of_address[network] += 1
        if connection.address not in self._trusted and self._of_address[network] > PER_ADDRESS:
            self.log.add(f"more than {PER_ADDRESS} connections from one address", network)
            oldest = next(each for each in self._keyless() if each.network == network)
            if oldest is connection:
                return False
            self._end(oldest)
        elif len(self._open) > WITHOUT_KEY and len(keyless := self._keyless()) > WITHOUT_KEY:
            self.log.add(f"more than {WITHOUT_KEY} connections without a valid key", network)
            self._end(keyless[0])
        return True

    def _end(self, connection: "BoundedHttp") -> None:
        """End a connection, which counts no longer, though the loop closes it later."""
        self.release(connection)
        connection.abort()

    def _keyless(self) -> "list[BoundedHttp]":
        """Return the connections without a valid key, the oldest first; the new one is the last."""
        return [each for each in self._open if not each.has_key]

    def release(self, connection: "BoundedHttp") -> None:
        """Count a connection no longer."""
        if not connection.is_counted:
            return
        connection.is_counted = False
        del self._open[connection]
        self._of_address[connection.network] -= 1
        if not self._of_address[connection.network]:
            del self._of_address[connection.network]


class BoundedHttp(HttpToolsProtocol):
    """A connection that ends after a refusal with an unread body, and whenever its client is too slow or too long."""

    address = network = ""
    is_counted = False
    _has_key = _is_over = False
    _state: Mapping[str, Any] = MappingProxyType({})
    """State of the request that is under way: other requests may have come behind it."""
    _timer: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes since the last head or piece of a body: the parser keeps those of heads and trailers until they end."""
    _refusal = (400, "found no request of HTTP/1.1: nothing of it was accepted")

    def __init__(self, admission: Admission, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._admission = admission

    @property
    def has_key(self) -> bool:
        """Return whether the request that was answered last came with a valid key, or the one that is under way."""
        return self._has_key or "partner" in self._state

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for a head, or refuse the connection."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.network = _network(self.address)
        self.logger = cast(Any, ConnectionLog(self._admission.log, self.address))
        self._end_in(HEAD_SECONDS)
        if not self._admission.admit(self):
            problem = f"found more than {PER_ADDRESS} connections from {self.address}"
            self._refuse(503, f"{problem}: send more requests over fewer connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the wait."""
        self._stop()
        self._admission.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, unless the connection is refused already."""
        if self._is_over:
            return
        self._unread += len(data)
        super().data_received(data)
        if self._unread > HEAD_BYTES and not self._is_over:
            self._refuse(*_too_long())

    def on_message_begin(self) -> None:
        """Begin the time of a request, and of its head."""
        super().on_message_begin()
        self.scope["state"]["deadline"] = self.loop.time() + REQUEST_SECONDS  # pyright: ignore[reportTypedDictNotRequiredAccess]
        self._end_in(HEAD_SECONDS)

    def on_headers_complete(self) -> None:
        """Stop the wait: the application has the rest of the request's time for the body."""
        self._stop()
        self._unread = 0
        if self.parser.should_upgrade():  # pyright: ignore[reportOptionalMemberAccess]
            self._refusal = _NO_UPGRADE
            raise ValueError(self._refusal)
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > HEAD_BYTES:
            self._refusal = _too_long()
            raise ValueError(self._refusal)
        if len(self.pipeline) >= PIPELINED:
            self._refusal = _TOO_MANY
            raise ValueError(self._refusal)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Note that the parser keeps nothing of what arrived."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the parser keeps nothing of what arrived."""
        self._unread = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Note whose state the application gets, which has the partner once a key is valid."""
        self._state = cycle.scope.get("state", {})
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Wait for the next request, or end the connection if the body of this one was not read."""
        self._has_key = "partner" in self._state
        is_unread = not self.pipeline and self.cycle.more_body
        is_last = not self.pipeline
        super().on_response_complete()
        if is_unread and not self.transport.is_closing():
            self._linger()
        elif is_last:
            self._end_in(HEAD_SECONDS)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn's own words)
        """Answer what is wrong with a request that cannot be parsed."""
        self._refuse(*self._refusal)

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not read."""
        super().pause_writing()
        self._end_in(HEAD_SECONDS)

    def resume_writing(self) -> None:
        """Stop the wait for it."""
        super().resume_writing()
        if not self._is_over:
            self._stop() if self._is_answering else self._end_in(HEAD_SECONDS)

    def _refuse(self, status: int, why: str) -> None:
        """Answer in place of the application, for which the client disconnects, and end the connection."""
        if self.transport.is_closing():
            return
        if self._is_answering:
            if self.pipeline or self.cycle.response_started:
                self.abort()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps({"error": why}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self._linger()

    def _linger(self) -> None:
        """End our side, and throw away what still arrives, for some seconds."""
        self._is_over = True
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._end_in(LINGER_SECONDS)

    def _end_in(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        """End the connection, also if its client does not read."""
        self.transport.abort()

    def _stop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


_TOO_MANY = (
    400,
    f"found more than {PIPELINED} requests behind one that is being answered: wait for answers before sending more",
)

_NO_UPGRADE = (
    400,
    "found a request to upgrade to another protocol, whose body the parser would not read; expected HTTP/1.1: send it "
    "without the header Upgrade (in Java: HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1))",
)


def _too_long() -> tuple[int, str]:
    return 431, f"the head of the request has more than {HEAD_BYTES} bytes: send fewer or shorter headers"


def _network(address: str) -> str:
    """Return an address, or for IPv6 its network of 64 bits, which one client has as a whole."""
    if ":" not in address:
        return address
    parsed = cast(IPv6Address, ip_address(address.partition("%")[0]))
    return str(parsed.ipv4_mapped or (parsed if parsed.is_loopback else ip_network((parsed, 64), strict=False)))
