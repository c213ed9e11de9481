"""`/status` of the web UI: the page of `feed-assets status` as of now.

A process of its own makes it, which loads the definitions anew: the web server, as Dagster means it, holds no code of
users, and what they have mended since counts.
"""

import asyncio
import html
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from feed_assets.cli.front import OF_OURS
from feed_assets.core.addresses import STATUS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

KEPT_SECONDS = 5
"""Seconds for which the same question gets the same page."""

REFRESH_SECONDS = 60
"""After so many seconds a browser asks again."""

PATIENCE_SECONDS = 120
"""Seconds that a page may take."""

_OPTIONS = ("day", "days", "dataset")
_STYLED = {**OF_OURS, "content-security-policy": f"{OF_OURS['content-security-policy']}; style-src 'unsafe-inline'"}


@dataclass(frozen=True)
class _Page:
    status: int
    text: str


class StatusPage:
    """An ASGI application before another one: it answers `/status` alone.

    Args:
        app: Who answers everything else.
        module: The module with the definitions; None is that of the project.
    """

    def __init__(self, app: "ASGIApp", module: str | None) -> None:
        self._app, self._module = app, module
        self._lock = asyncio.Lock()
        self._last: tuple[bytes, float, _Page] | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer, or pass on."""
        if scope["type"] != "http" or scope["path"] != STATUS or scope["method"] not in ("GET", "HEAD"):
            return await self._app(scope, receive, send)
        page = await self._page(scope["query_string"])
        body = page.text.encode()
        fixed = {**_STYLED, "content-type": "text/html; charset=utf-8", "content-length": str(len(body))}
        if page.status == 200:
            fixed["refresh"] = str(REFRESH_SECONDS)
        headers = [(name.encode(), value.encode("latin-1")) for name, value in fixed.items()]
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        return await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _page(self, query: bytes) -> _Page:
        """One at a time: who asks the same while it is made gets it, too."""
        async with self._lock:
            if self._last and self._last[0] == query and monotonic() - self._last[1] < KEPT_SECONDS:
                return self._last[2]
            page = await _made(_arguments(query, self._module))
            self._last = (query, monotonic(), page)
            return page


def _arguments(query: bytes, module: str | None) -> list[str]:
    """The options of the command; each is one argument, so that a value cannot be an option of its own."""
    asked = [(name, value) for name, value in parse_qsl(query.decode("latin-1")) if name in _OPTIONS]
    given = [f"--{name}={value}" for name, value in asked if value.isprintable()]
    return [*given, *([f"--module={module}"] if module else [])]


async def _made(arguments: list[str]) -> _Page:
    with TemporaryDirectory(prefix="feed-assets-") as folder:
        path = Path(folder) / "status.html"
        command = ["status", "--live", f"--html={path}", *arguments]
        code, said = await _run(["-P", "-c", "from feed_assets.cli import main; main()", *command])
        if code == 0:
            return _Page(200, path.read_text(encoding="utf-8"))
    return _Page(400, f"<!doctype html><title>status</title><p>The page cannot be made:<pre>{html.escape(said)}</pre>")


async def _run(arguments: list[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr, of a Python with these arguments; it is killed if it takes too long."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=nothing, stdout=nothing, stderr=pipe
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    except TimeoutError:
        return 1, f"it took more than {PATIENCE_SECONDS} s"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    return process.returncode or 0, said.decode(errors="replace")
