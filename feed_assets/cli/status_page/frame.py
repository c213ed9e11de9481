"""The frame of each page at `/status`: head, style and script, and a policy that allows no other script."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template


def frame(*, title: str, body: str) -> str:
    """Return a whole page around a body of HTML. The title is plain text."""
    return Template(_part("frame.html")).substitute(
        title=escape(title),
        body=body,
        policy=f"default-src 'none'; {policy()}; form-action 'self'",
        style=_part("page.css"),
        script=_part("page.js"),
    )


def message(*, title: str, text: str, detail: str = "") -> str:
    """Return a page with one message and a link to Dagster's pages. Both texts are escaped."""
    detail_html = f"<pre>{escape(detail)}</pre>" if detail else ""
    links = '<p><a href="/">Dagster\'s pages</a></p>'
    return frame(
        title=title, body=f"<header><h1>{escape(title)}</h1></header><p>{escape(text)}</p>{detail_html}{links}"
    )


@cache
def policy() -> str:
    """Return the directives of the content security policy: inline style, and only one script, named by its digest."""
    digest = b64encode(sha256(_part("page.js").encode()).digest()).decode()
    return f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


@cache
def _part(name: str) -> str:
    return files("feed_assets.cli.status_page").joinpath(name).read_text(encoding="utf-8")
