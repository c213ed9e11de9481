"""The receiver's HTTP API."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from feed_assets.core.errors import DiskFull, ServiceUnavailable
from feed_assets.intake.api_page import POLICY, page
from feed_assets.intake.authentication import EVENTS, InProgress, Keys, Rates, check_scope
from feed_assets.intake.bodies import ARRAY, KINDS, LINES
from feed_assets.intake.connections import PER_PARTNER, REQUEST_SECONDS
from feed_assets.intake.event_calls import Calls
from feed_assets.intake.limited_log import LimitedLog
from feed_assets.intake.metrics import UNKNOWN, Metrics
from feed_assets.intake.receiver import KEY_BYTES, Receiver, RequestAnswer
from feed_assets.intake.refused import RefusedRequest
from feed_assets.intake.unpacking import BODY_BYTES, SPARED_BYTES, Body, BodyMemory

EVENTS_PATH = "/v1/{feed:path}/events"
"""Path to which partners post events."""

_EVENTS_PATH = re.compile(EVENTS_PATH.replace("{feed:path}", "(?P<feed>.*)"))

HELD_BYTES, HELD_OF_PARTNER = 64 << 20, 32 << 20
"""The most bytes of request bodies in memory: for all requests together, and for one partner.

Each body counts with its bytes as sent. A small body also counts with its bytes after unpacking.
"""

RETRY_SECONDS = 5
"""Seconds that a client should wait before it repeats a request, for example after a disk or ledger error."""

WAKES = 8
"""The most `/wake` requests that are handled at a time. They have their own threads, so they delay no other request."""

_EVENT = {"type": "object", "description": "An event, with the columns of the feed's schema."}
_BODY = {
    "required": True,
    "content": {
        LINES: {"schema": {"type": "string", "description": "One event per line."}},
        ARRAY: {"schema": {"type": "array", "items": _EVENT}},
    },
}
_SAID = {
    200: "The numbers of accepted and rejected events, and the first 100 reasons for rejections.",
    400: "The body is malformed: no event was accepted.",
    401: "The key is missing or invalid.",
    403: "The key is not for this feed or event source.",
    404: "There is no such feed or event source.",
    408: "The request did not arrive in time.",
    409: "A request with this Idempotency-Key is in progress.",
    413: "The body, or what it unpacks to, is too large.",
    415: "An unknown media type or compression.",
    422: "The Idempotency-Key was used with another body.",
    429: "Too many events, hours of events, requests in progress or wakes in progress of this partner.",
    503: "The receiver, its ledger or its disk cannot accept the request now.",
    507: "The disk is full.",
}
_bearer = HTTPBearer(auto_error=False, description="An API key: `Authorization: Bearer fa_…`")
Key = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
"""Parameter that only adds the header Authorization to the API's description. `Keys` checks the header."""


@dataclass
class Door:
    """A receiver with everything that its HTTP API needs: API keys, limits, locks and metrics."""

    receiver: Receiver
    keys: Keys
    rates: Rates
    metrics: Metrics
    calls: Calls
    problem: str = ""
    """The reason why accepted events cannot be published; '' if they can."""
    in_progress: InProgress = field(default_factory=lambda: InProgress(PER_PARTNER))
    held: BodyMemory = field(default_factory=lambda: BodyMemory(HELD_BYTES, spared=SPARED_BYTES))
    held_of_partners: dict[str, BodyMemory] = field(default_factory=dict[str, BodyMemory])
    """The memory limit of each partner. One partner's bodies cannot use up the memory for all."""
    large: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The lock that a request holds while it unpacks, checks and writes a large body. Other large bodies wait."""
    turns: dict[str, asyncio.Lock] = field(default_factory=dict[str, asyncio.Lock])
    """The lock of each partner for its large bodies. Only one of them waits for `large`, so all partners get turns."""
    log: LimitedLog = field(default_factory=LimitedLog)

    def health(self) -> dict[str, Any]:
        """Return whether the receiver takes events, what waits to be published, and whether its copy of keys is old.

        This call needs no key, so it does not show the reason of a failure. The reason is in the log.
        """
        spool = self.receiver.spool
        waits = {"bytes": spool.size, "seconds": round(spool.oldest_seconds(), 1), "failed": bool(self.problem)}
        takes, old_keys = self.keys.are_known and not spool.broken, self.keys.are_old
        return {"takes": takes, "spool": waits, "damaged": len(spool.damaged()), "old_keys": old_keys}


def app_of(door: Door, lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None) -> ASGIApp:
    """Return the HTTP application. It accepts events and write events, and reports the receiver's state."""
    app = FastAPI(
        title="feed_assets receiver",
        version="1",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's own pages load their scripts from a CDN (ADR 55).
        redoc_url=None,
    )
    responses: dict[int | str, dict[str, Any]] = {status: {"description": text} for status, text in _SAID.items()}
    for path, post, extra in (
        (EVENTS_PATH, push_events, {"requestBody": _BODY}),
        ("/events/{source}", _post_write_events(door), {"requestBody": _BODY}),
        ("/wake/{feed:path}", _post_wake(door), None),
    ):
        app.add_api_route(
            path, post, methods=["POST"], responses=responses, openapi_extra=extra, response_class=JSONResponse
        )
    app.add_api_route("/health", _health(door), methods=["GET"])
    app.add_api_route("/metrics", _metrics(door), methods=["GET"])
    app.add_api_route("/docs", _docs(app), methods=["GET"], include_in_schema=False)
    for kind, handle in ((RefusedRequest, _refused), (ServiceUnavailable, _unavailable)):
        app.add_exception_handler(kind, _counting(door, handle))
    return _in_front_of(app, door)


def _in_front_of(app: FastAPI, door: Door) -> ASGIApp:
    """Return an application that handles pushed events itself, and passes other requests to FastAPI.

    FastAPI only documents the route for events. Its layers would cost a tenth of a request's CPU time.
    """
    post_events = _post_events(door)
    refused, unavailable = _counting(door, _refused), _counting(door, _unavailable)

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        # FastAPI ignores a line break at the end of a path, and would call the function that only documents the route.
        match = _EVENTS_PATH.fullmatch(scope["path"].removesuffix("\n")) if is_post else None
        if match is None:
            await app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            response = await post_events(request, match["feed"])
        except RefusedRequest as error:
            response = refused(request, error)
        except ServiceUnavailable as error:
            response = unavailable(request, error)
        await response(scope, receive, send)

    return front


def push_events(
    feed: str, _: Key = None, idempotency_key: Annotated[str | None, Header(max_length=KEY_BYTES)] = None
) -> None:
    """Accept a batch of events. They are on disk before the answer. Rejected events are kept with their reasons."""


def _post_events(door: Door) -> Callable[[Request, str], Awaitable[Response]]:
    async def post_events(request: Request, feed: str) -> Response:
        named = request.headers.get("idempotency-key")
        with _partner(door, request, feed) as partner:
            declared = door.receiver.feed(feed)
            if named is not None and not 0 < len(named) <= KEY_BYTES:
                raise RefusedRequest(422, f"the Idempotency-Key has {len(named)} characters: expected 1 to {KEY_BYTES}")

            def accept(data: bytes, kind: str) -> Awaitable[RequestAnswer]:
                return door.receiver.accept(declared, data, kind, named, partner)

            return await _answer(door, request, partner, feed, accept)

    return post_events


def _post_write_events(door: Door) -> Callable[..., Awaitable[Response]]:
    async def post_write_events(source: str, request: Request, _: Key = None) -> Response:
        """Record write events of an event source. They are in the ledger before the answer. Repetition is harmless."""
        with _partner(door, request, f"{EVENTS}{source}") as partner:
            declared = door.calls.source(source)
            return await _answer(
                door, request, partner, source, lambda data, kind: door.calls.record(declared, data, kind)
            )

    return post_write_events


def _post_wake(door: Door) -> Callable[..., Awaitable[Response]]:
    waking, threads = set[str](), ThreadPoolExecutor(WAKES)

    async def post_wake(feed: str, request: Request, partition: str = "", _: Key = None) -> Response:
        """Check a partition of a foreign feed now. New updates are recorded, and a sensor acts on them at once."""
        with _partner(door, request, feed) as partner:
            door.rates.count(partner, 1)
            # A store may never answer. Each partner has at most one wake in progress, so such a store blocks only the
            # wakes of one partner.
            if partner in waking:
                why = f"another wake of {partner} is in progress: wait until it is answered, then wake {feed!r} again"
                raise RefusedRequest(429, why, retry_after=RETRY_SECONDS)
            waking.add(partner)
            try:
                loop = asyncio.get_running_loop()
                return JSONResponse(await loop.run_in_executor(threads, door.calls.wake, feed, partition))
            finally:
                waking.discard(partner)

    return post_wake


@contextmanager
def _partner(door: Door, request: Request, scope: str) -> Generator[str]:
    """Yield the partner of a request's API key, and count the request as in progress until the block ends.

    Limits apply to the partner, so a second key, for example after a rotation, does not double them. Raise
    RefusedRequest if the key may not write to `scope`, or the partner sent too much or has too many requests.
    """
    header, now = request.headers.get("authorization", ""), door.receiver.services.now()
    row = door.keys.of(header, now)
    request.state.partner = row.partner
    with door.in_progress.counted(row.partner):
        check_scope(row, scope)
        door.rates.check(row.partner)
        yield row.partner


async def _answer(
    door: Door, request: Request, partner: str, name: str, accept: Callable[[bytes, str], Awaitable[RequestAnswer]]
) -> Response:
    """Read the body of a request, accept its events, and return the answer."""
    kind, events = _kind(request), 0
    held = door.held_of_partners.setdefault(partner, BodyMemory(HELD_OF_PARTNER, door.held))
    body = Body(held, request.headers.get("content-encoding", "").lower(), kind)
    try:
        async with AsyncExitStack() as stack:

            async def turn() -> None:
                await stack.enter_async_context(door.turns.setdefault(partner, asyncio.Lock()))
                await stack.enter_async_context(door.large)
                door.rates.check(partner)  # Other requests of this partner may have been counted meanwhile.

            await _receive(request, body)
            data = await body.unpacked(turn)
            # The key may have been revoked while the body arrived or waited for its turn.
            door.keys.of(request.headers.get("authorization", ""), door.receiver.services.now())
            answer = await accept(data, kind)
        events = answer.accepted + answer.rejected
    finally:
        body.let_go()
        door.rates.count(partner, max(events, body.cost, 1))
    door.metrics.count(name, answer)
    headers = {"Idempotency-Replayed": "true"} if answer.is_repeated else None
    return Response(answer.text, media_type=ARRAY, headers=headers)


def _health(door: Door) -> Callable[[], Response]:
    def health() -> Response:
        """Report whether the receiver takes events, how much waits to be published, and whether its keys are old."""
        report = door.health()
        return JSONResponse(report, 200 if report["takes"] else 503)

    return health


def _metrics(door: Door) -> Callable[[], Response]:
    def metrics() -> Response:
        """Return the receiver's numbers, for Prometheus."""
        return Response(door.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return metrics


def _docs(app: FastAPI) -> Callable[[], Response]:
    def docs() -> Response:
        return HTMLResponse(page(app.openapi()), headers={"Content-Security-Policy": POLICY})

    return docs


def _kind(request: Request) -> str:
    """Return the kind of a body. Raise RefusedRequest for an unknown media type or a too large Content-Length."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in KINDS:
        raise RefusedRequest(415, f"Content-Type {media!r}: expected {LINES} or {ARRAY}")
    size = request.headers.get("content-length", "0")
    if size.isdigit() and int(size) > BODY_BYTES:
        raise RefusedRequest(
            413, f"the body has {size} bytes: expected at most {BODY_BYTES}. Send it in several requests"
        )
    return KINDS[media]


async def _receive(request: Request, body: Body) -> None:
    try:
        async with asyncio.timeout_at(request.state.deadline):
            await body.receive(request.stream())
    except TimeoutError:
        raise RefusedRequest(
            408, f"the request did not arrive within {REQUEST_SECONDS} s: send less at a time"
        ) from None
    except ClientDisconnect:
        raise RefusedRequest(400, "the connection ended before the whole body arrived") from None


def _refused(error: RefusedRequest) -> Response:
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    headers |= {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    headers |= {"Connection": "close"} if error.status == 408 else {}
    return JSONResponse({"error": str(error)}, error.status, headers)


def _unavailable(error: ServiceUnavailable) -> Response:
    """Return the answer for an internal error. Partners see only its kind; details go to the log."""
    if isinstance(error, DiskFull):
        return _refused(RefusedRequest(507, "the receiver's disk is full: nothing was accepted", RETRY_SECONDS))
    return _refused(RefusedRequest(503, "the receiver cannot take events now: nothing was accepted", RETRY_SECONDS))


def _counting(door: Door, handle: Callable[[Any], Response]) -> Callable[[Request, Exception], Response]:
    def handler(request: Request, error: Exception) -> Response:
        """Count a refusal by partner, and return its answer. The partner is `unknown` without a valid key."""
        answer, partner = handle(error), getattr(request.state, "partner", UNKNOWN)
        door.metrics.refused.labels(str(answer.status_code), partner).inc()
        if not isinstance(error, RefusedRequest):
            door.log.add(f"a request could not be accepted: {error}", partner, logging.ERROR)
        return answer

    return handler
