"""An OpenLineage endpoint on 127.0.0.1, and OpenLineage's own schemas to validate events against.

The schemas in `openlineage_spec` come from https://github.com/OpenLineage/OpenLineage/tree/main/spec (Apache-2.0).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

SPEC = Path(__file__).parent / "openlineage_spec"


@dataclass
class Endpoint:
    """Events, paths and keys of each POST. The endpoint answers with these statuses in turn, then with 201."""

    port: int
    events: list[dict] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"openlineage+http://127.0.0.1:{self.port}"

    @property
    def told(self) -> list[tuple[str, str]]:
        """Return type and job of each event."""
        return [(event["eventType"], event["job"]["name"]) for event in self.events]


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.answers.pop(0) if found.answers else 201
            if status < 300:
                found.events.append(json.loads(body))
                found.paths.append(self.path)
                found.keys.append(self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            self.send_response(200)  # A client that follows the redirect would take this for success.
            self.end_headers()

        def log_message(self, *_): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Endpoint(server.server_port)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@cache
def _registry() -> Registry:
    schemas = [json.loads(file.read_text()) for file in sorted(SPEC.glob("*.json"))]
    return Registry().with_resources((schema["$id"], Resource.from_contents(schema)) for schema in schemas)


def errors_of(event: dict) -> list[str]:
    """Return the errors of an event and its facets by OpenLineage's schemas."""
    datasets = [*event.get("inputs", ()), *event.get("outputs", ())]
    holders = [event["run"], event["job"], *datasets]
    facets = [facet for each in holders for facet in each.get("facets", {}).values()]
    facets += [f for each in datasets for f in {**each.get("inputFacets", {}), **each.get("outputFacets", {})}.values()]
    named = [(event, event["schemaURL"]), *((facet, facet["_schemaURL"]) for facet in facets)]
    return [
        f"{schema.rpartition('/')[2]}: {error.message}"
        for value, schema in named
        for error in Draft202012Validator(
            {"$ref": schema}, registry=_registry(), format_checker=FormatChecker()
        ).iter_errors(value)
    ]
