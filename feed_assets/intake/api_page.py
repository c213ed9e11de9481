"""A page that describes the API. It is made from the OpenAPI description, and has no scripts or external content."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Content-Security-Policy of the page. It forbids a browser to load scripts, images or anything else for the page."""

_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse }} td {{ border-top: 1px solid #ccc; padding: .2rem 1rem .2rem 0 }}
</style></head><body><h1>{title}</h1>
<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>"""


def page(described: Mapping[str, Any]) -> str:
    """Return an OpenAPI description in HTML: the purpose, parameters and answers of each call."""
    calls = [(path, method, call) for path, methods in described["paths"].items() for method, call in methods.items()]
    parts = (part for path, method, call in calls for part in _call(f"{method.upper()} {path}", call))
    return "".join([_HEAD.format(title=escape(described["info"]["title"])), *parts, "</body></html>"])


def _call(name: str, call: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2><p>{escape(call.get('description', ''))}</p>"
    inputs = [(each["name"], f"{each['in']}{', required' * each['required']}") for each in call.get("parameters", ())]
    yield from _table("Takes", [*inputs, *((kind, "body") for kind in call.get("requestBody", {}).get("content", ()))])
    yield from _table("Answers", [(status, each["description"]) for status, each in call["responses"].items()])


def _table(title: str, rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    cells = [
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(description)}</td></tr>" for name, description in rows
    ]
    if cells:
        yield f"<h3>{title}</h3><table>{''.join(cells)}</table>"
