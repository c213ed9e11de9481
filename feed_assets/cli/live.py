"""`/status` of the web UI: the page of `feed-assets status` as of now.

A separate process makes each page. The process loads the definitions anew, so that the page shows their latest state.
By Dagster's design, the web server itself loads no user code.
"""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from feed_assets.cli.front import OF_OURS
from feed_assets.cli.status_page.frame import message, policy
from feed_assets.core.addresses import STATUS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

KEPT_SECONDS = 30
"""Seconds after which a requested page is made again. Until the new page is ready, requests get the previous one."""

SOON_SECONDS = 2
"""Seconds after which a browser reloads while the page is being made."""

PAGES_KEPT = 50
"""The most queries whose last page is kept, and the most queries that wait for their page."""

REFRESH_SECONDS = 60
"""Seconds after which a browser reloads a finished page."""

PATIENCE_SECONDS = 120
"""The most seconds that making a page may take."""

_OPTIONS = ("day", "days", "dataset")
_TITLE = "Status of all datasets"
_STYLED = {**OF_OURS, "content-security-policy": f"{OF_OURS['content-security-policy']}; {policy()}"}


@dataclass(frozen=True)
class _Page:
    status: int
    text: str
    refresh: int | None = None
    made_at: float = field(default_factory=monotonic)


_BEING_MADE = _Page(
    200,
    message(
        title=_TITLE,
        text="The page is being made: it loads your definitions and reads the ledger, which takes some seconds. It "
        "appears here by itself. Later visits see the last page at once.",
    ),
    SOON_SECONDS,
)


class StatusPage:
    """An ASGI application that answers `/status` at once, with the last page made, and passes on everything else.

    Args:
        app: The application that answers everything else.
        module: The module with the definitions; None means the project's module.
        kept_seconds: Seconds after which a page is made anew.
    """

    def __init__(self, app: "ASGIApp", module: str | None, kept_seconds: float = KEPT_SECONDS) -> None:
        self._app, self._module, self._kept_seconds = app, module, kept_seconds
        self._pages: dict[tuple[str, ...], _Page] = {}
        self._requested: dict[tuple[str, ...], None] = {}
        self._making: asyncio.Task[None] | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer a request, or pass it on.

        When the server starts, make the page of all datasets for the first visit.
        """
        if scope["type"] == "lifespan":
            self._page(b"")
        if scope["type"] != "http" or scope["path"] != STATUS or scope["method"] not in ("GET", "HEAD"):
            return await self._app(scope, receive, send)
        page = self._page(scope["query_string"])
        body = page.text.encode()
        fixed = {**_STYLED, "content-type": "text/html; charset=utf-8", "content-length": str(len(body))}
        if page.refresh:
            fixed["refresh"] = str(page.refresh)
        headers = [(name.encode(), value.encode("latin-1")) for name, value in fixed.items()]
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        return await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _page(self, query: bytes) -> _Page:
        """Return the last page of a query. If the page is old, start to make a new one in the background."""
        arguments = _arguments(query, self._module)
        page = self._pages.get(arguments)
        if page and monotonic() - page.made_at < self._kept_seconds:
            return page
        if len(self._requested) < PAGES_KEPT:
            self._requested[arguments] = None
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return replace(page, refresh=SOON_SECONDS) if page and page.status == 200 else _BEING_MADE

    async def _make(self) -> None:
        """Make the requested pages, one process at a time."""
        while self._requested:
            arguments = next(iter(self._requested))
            try:
                page = await _make_page(arguments)
            finally:
                del self._requested[arguments]
            self._pages.pop(arguments, None)
            self._pages = dict([*self._pages.items(), (arguments, page)][-PAGES_KEPT:])


def _arguments(query: bytes, module: str | None) -> tuple[str, ...]:
    """Return the command's options.

    Name and value are one argument, so that no value of a query can act as an option.
    """
    options = [(name, value) for name, value in parse_qsl(query.decode("latin-1")) if name in _OPTIONS]
    arguments = [f"--{name}={value}" for name, value in options if value.isprintable()]
    return (*arguments, *([f"--module={module}"] if module else []))


async def _make_page(arguments: Iterable[str]) -> _Page:
    with TemporaryDirectory(prefix="feed-assets-") as folder:
        path = Path(folder) / "status.html"
        command = ["status", "--live", f"--html={path}", *arguments]
        code, stderr = await _run(["-P", "-c", "from feed_assets.cli import main; main()", *command])
        if code == 0:
            return _Page(200, path.read_text(encoding="utf-8"), REFRESH_SECONDS)
    text = "The page cannot be made. Correct this error, then reload:"
    return _Page(400, message(title=_TITLE, text=text, detail=stderr))


async def _run(arguments: list[str]) -> tuple[int, str]:
    """Run a Python process with these arguments. Return its exit code and stderr. Kill it if it takes too long."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=nothing, stdout=nothing, stderr=pipe
    )
    try:
        _, stderr = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    except TimeoutError:
        return 1, f"it took more than {PATIENCE_SECONDS} s"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    return process.returncode or 0, stderr.decode(errors="replace")
