"""Access control of the web UI. Only the UI's own pages, and programs that send the token, get an answer.

Dagster's web server has no authentication. Without this control, any web page could make the server execute a mutation,
by the address of an `<img>`.
"""

import hmac
import html
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import compare_digest
from typing import TYPE_CHECKING
from unicodedata import category
from urllib.parse import parse_qsl, quote, urlencode

from feed_assets.core.addresses import LOOPBACK

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OF_OURS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""Headers of the pages that feed_assets itself serves. Dagster's pages have other headers."""

PROOF = "/feed_assets_proof"
"""The path that answers anybody's challenge. The answer proves that this server has the token."""

_FORM = '<form><label>Token: <input name="token" type="password" autofocus></label> <button>Enter</button></form>'
_OTHER = "This is not the token of the web UI that runs here: each start makes another one. "
_WHERE_IT_IS = (
    "The web UI is for the user who started it. Open the address that `feed-assets ui` printed, with its ?token=…, "
    "or enter that token here."
)

_CONTROL_CHARACTERS = "The path of the address has control characters: expected none, such as no %0A. Remove them."
"""Starlette ignores a line end behind a path, so `/graphql%0A` would be answered like `/graphql`, but not checked."""


@dataclass(frozen=True)
class CheckedRequest:
    """The parts of a request that are checked. A WebSocket handshake is a request with the method GET.

    An `Upgrade` header alone is not a handshake: the server answers such a request like any other GET.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    is_websocket: bool = False
    address: str = LOOPBACK
    """This server's address that the client has connected to."""

    def header(self, name: str) -> str:
        """Return a header by its name in lower case. Return '' if it is missing."""
        return self.headers.get(name, "")


@dataclass(frozen=True)
class FrontAnswer:
    """An answer that is sent instead of Dagster's."""

    status: int
    text: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    asks: bool = False


def judge(request: CheckedRequest, port: int, token: str) -> FrontAnswer | None:
    """Return the answer to a request that Dagster must not get. Return None if the request is passed on."""
    if any(category(each) == "Cc" for each in request.path):
        return FrontAnswer(400, _CONTROL_CHARACTERS)
    if why := foreign(request, port) or no_command(request):
        return FrontAnswer(403, why)
    if request.path == PROOF:
        return FrontAnswer(200, proof(request.address, port, token, challenge=dict(request.query).get("challenge", "")))
    if any(name == "token" and _is_equal(value, token) for name, value in request.query) and request.method == "GET":
        return _enter(request, port, token)
    if _has_cookie(request, port, token):
        return None
    is_wrong = cookie_name(port) in request.header("cookie") or any(name == "token" for name, _ in request.query)
    return FrontAnswer(
        403, f"{_OTHER * is_wrong}{_WHERE_IT_IS} Programs send it as the cookie {cookie_name(port)}.", asks=True
    )


def proof(address: str, port: int, token: str, *, challenge: str) -> str:
    """Return the answer to a challenge of a program that sends the token only to a server that has it already.

    The answer depends on address and port. Otherwise a false server could pass the challenge on to the web UI at
    another address, and return the web UI's proof.
    """
    return hmac.new(token.encode(), f"{cookie_name(port)} {address} {challenge}".encode(), "sha256").hexdigest()


def foreign(request: CheckedRequest, port: int) -> str | None:
    """Return an error if a request comes from another host or page. Return None for our own pages and programs."""
    host, origin, site = request.header("host"), request.header("origin"), request.header("sec-fetch-site")
    name = _name(port)
    if host != name:
        return f"The web UI was requested as {host!r}: expected {name}, also through a tunnel. Open that address."
    if origin and origin != f"http://{host}":
        return f"A page of {origin} sends a request to the web UI of {host}: expected one of its own pages."
    if site not in ("", "none", "same-origin") and not _is_visit(request):
        return f"A page of another site sends a request to the web UI of {host}: expected one of its own pages."
    return None


def no_command(request: CheckedRequest) -> str | None:
    """Return why a GraphQL request is refused: a form or an image of another page could have sent it.

    Return None if the request is accepted.
    """
    if request.path.rstrip("/") != "/graphql" or request.is_websocket:
        return None
    if request.method == "POST":
        kind = request.header("content-type").partition(";")[0].strip().lower()
        return None if kind == "application/json" else f"GraphQL by POST has {kind!r}: expected application/json."
    first = request.header("accept").partition("\n")[0]  # Dagster reads only the first `Accept` header.
    is_page = "text/html" in first  # Dagster answers such a request with the GraphiQL page, and executes no query.
    return None if is_page else "GraphQL needs a POST with application/json."


def _name(port: int) -> str:
    """Return this server's only host name. `localhost` may lead to [::1], where another user's server may listen."""
    return LOOPBACK if port == 80 else f"{LOOPBACK}:{port}"  # A browser leaves out http's default port.


def _is_visit(request: CheckedRequest) -> bool:
    """Return whether a person follows a link on another page. The other page cannot read the answer.

    No other page may open a notebook: Dagster shows it with its scripts, which would have the person's rights.
    """
    modes = (request.header("sec-fetch-mode"), request.header("sec-fetch-dest"))
    is_notebook = "notebook" in request.path.casefold().split("/")
    return request.method == "GET" and modes == ("navigate", "document") and not is_notebook


def _enter(request: CheckedRequest, port: int, token: str) -> FrontAnswer:
    """Redirect to the same page without the token, so that the token is in no browser history and no referrer."""
    query = urlencode([(name, value) for name, value in request.query if name != "token"])
    path = "/" + quote(request.path.lstrip("/"))  # A path that begins with `//host` would lead to another host.
    place = path + ("?" + query if query else "")
    cookie = f"{cookie_name(port)}={token}; Path=/; HttpOnly; SameSite=Lax"
    return FrontAnswer(303, headers=(("location", place), ("set-cookie", cookie)))


def cookie_name(port: int) -> str:
    """Return the cookie's name, with the port: browsers share cookies between all ports of a host."""
    return f"feed_assets_{port}"


def _has_cookie(request: CheckedRequest, port: int, token: str) -> bool:
    pairs = [pair.strip().partition("=") for pair in request.header("cookie").split(";")]
    return any(name == cookie_name(port) and _is_equal(value, token) for name, _, value in pairs)


def _is_equal(value: str, token: str) -> bool:
    return compare_digest(value.encode(), token.encode())


class Front:
    """An ASGI application in front of another one. It passes on only the requests that `judge` allows."""

    def __init__(self, app: "ASGIApp", port: int, token: str) -> None:
        self._app, self._port, self._token = app, port, token

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Refuse a request that this server may not answer. Pass every other request on to the application."""
        asks = scope["type"] in ("http", "websocket")
        answer = judge(_checked_request(scope), self._port, self._token) if asks else None
        if answer is None:
            await self._app(scope, receive, _unframed(send))
        elif scope["type"] == "websocket":
            await send(
                {"type": "websocket.close", "code": 1008}
            )  # The handshake is not complete yet, so the server answers 403.
        else:
            await _say(answer, _checked_request(scope), send)


def _checked_request(scope: "Scope") -> CheckedRequest:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = (
            f"{headers[key]}\n{text}" if key in headers else text
        )  # The joined values match no expected value.
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    return CheckedRequest(
        scope.get("method", "GET"),
        scope["path"],
        tuple(query),
        headers,
        scope["type"] == "websocket",
        address=(scope.get("server") or ("",))[0],
    )


async def _say(answer: FrontAnswer, request: CheckedRequest, send: "Send") -> None:
    is_page = "text/html" in request.header("accept")
    text = f"<!doctype html><p>{html.escape(answer.text)}</p>{_FORM * answer.asks}" if is_page else f"{answer.text}\n"
    kind = "text/html" if is_page else "text/plain"
    fixed = {**OF_OURS, "content-type": f"{kind}; charset=utf-8", "content-length": str(len(text.encode()))}
    headers = [(name.encode(), value.encode("latin-1")) for name, value in (*fixed.items(), *answer.headers)]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def _unframed(send: "Send") -> "Send":
    """Return a `send` that forbids other sites to show Dagster's pages in a frame. A frame could misdirect clicks."""

    async def add(message: "Message") -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"x-frame-options", b"SAMEORIGIN")]
        await send(message)

    return add
