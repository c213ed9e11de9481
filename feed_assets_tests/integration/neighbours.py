"""Hostile neighbours of the web UI: a page of another port, and probes of every listening process."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import grpc
import psutil
from playwright.sync_api import Page

MUTATION = 'mutation { setConcurrencyLimit(concurrencyKey: "%s", limit: 1) }'
"""A command that leaves a trace."""

ATTACK = """
<!doctype html><title>attack</title>
<iframe name="hidden"></iframe>
<form id="form" method="post" target="hidden" action="%(url)s/graphql?query=%(form)s"></form>
<script>
const ends = [];
const ended = (name, how) => { ends.push(name + ": " + how); };
const command = name => JSON.stringify({query: '%(any)s'.replace("NAME", name)});
const image = new Image();
image.onload = image.onerror = event => ended("image", event.type);
image.src = "%(url)s/graphql?query=%(image)s";
for (const [name, kind] of [["plain", "text/plain"], ["tricky", "text/plain; application/json"]])
  fetch("%(url)s/graphql", {method: "POST", mode: "no-cors", credentials: "include",
        headers: {"Content-Type": kind}, body: command(name)})
    .then(() => ended(name, "sent"), () => ended(name, "failed"));
fetch("%(url)s/graphql", {method: "POST", credentials: "include",
      headers: {"Content-Type": "application/json"}, body: command("json")})
  .then(() => ended("json", "answered"), () => ended("json", "failed"));
const socket = new WebSocket("%(ws)s/graphql", "graphql-ws");
socket.onopen = () => ended("socket", "open");
socket.onerror = () => ended("socket", "error");
document.getElementById("form").submit();
document.getElementsByName("hidden")[0].onload = () => ended("form", "loaded");
</script>
"""


@contextmanager
def attacker(port: int) -> Iterator[int]:
    """Serve a page that attacks the web UI on a port; yield the page's own port."""
    url = {"url": f"http://127.0.0.1:{port}", "ws": f"ws://127.0.0.1:{port}"}
    page = ATTACK % {**url, "any": MUTATION % "NAME", **{name: quote(MUTATION % name) for name in ("form", "image")}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def attacked(page: Page) -> set[str]:
    """Return the outcome of each way of the attack, as its page saw it."""
    page.wait_for_function(
        "ends.filter(each => !each.startsWith('form')).length >= 5 && ends.some(each => /form/.test(each))"
    )
    return set(page.evaluate("ends"))


def commanded_by_itself(page: Page, key: str) -> tuple[int, str]:
    """Return what a page of the UI gets for the same command, and for a WebSocket."""
    return tuple(
        page.evaluate(
            """async query => {
            const answer = await fetch("/graphql", {method: "POST", headers: {"Content-Type": "application/json"},
                                                    body: JSON.stringify({query})});
            const socket = new WebSocket(`ws://${location.host}/graphql`, "graphql-ws");
            return [answer.status, await new Promise(end => {
                socket.onopen = () => end("open");
                socket.onerror = () => end("error");
            })];
        }""",
            MUTATION % key,
        )
    )


def listening(processes: list[psutil.Process]) -> dict[tuple[str, int], psutil.Process]:
    """Return the processes that listen on TCP, by address."""
    return {
        (found.laddr.ip.removeprefix("::ffff:"), found.laddr.port): each
        for each in processes
        for found in each.net_connections("tcp")
        if found.status == psutil.CONN_LISTEN
    }


def open_to_others(processes: list[psutil.Process]) -> list[str]:
    """Return the named Unix sockets that have no private folder above them."""
    names = {found.laddr for each in processes for found in each.net_connections("unix") if found.laddr}
    return [name for name in names if not any(_is_private(folder) for folder in Path(name).parents)]


def _is_private(folder: Path) -> bool:
    return folder.is_dir() and not stat.S_IMODE(folder.stat().st_mode) & 0o077


def refusal_of_spark(remote: str) -> grpc.StatusCode:
    """Return the status that a Connect server gives to a caller without a token."""
    with grpc.insecure_channel(remote.removeprefix("sc://")) as channel:
        try:
            channel.unary_unary("/spark.connect.SparkConnectService/Config")(b"", timeout=30)
        except grpc.RpcError as error:
            return error.code()  # pyright: ignore
    return grpc.StatusCode.OK
