"""A subscriber with a webhook, which is down at times and then takes everything."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from feed_assets_tests.reliability.schedule import act, begins, ends, one_of, settles
from feed_assets_tests.reliability.world import World


class Subscriber(ThreadingHTTPServer):
    """A web server that writes down each delivery with its answer."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path, self.answers = path, list[int]()
        self.thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()


class _Handler(BaseHTTPRequestHandler):
    server: Subscriber

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.answers.pop(0) if self.server.answers else 204
        with self.server.path.open("a") as file:
            file.write(f"{json.dumps({'status': status, 'event': json.loads(body)})}\n")
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be silent."""


@begins
def start_the_subscriber(world: World) -> None:
    """Start the web server."""
    world.state["subscriber"] = server = Subscriber(world.folder / "deliveries.jsonl")
    world.variables |= {"WHOLE_HOOK": f"http://127.0.0.1:{server.server_port}/hook", "WHOLE_SECRET": "a long text"}


@ends
def stop_the_subscriber(world: World) -> None:
    """Stop the web server."""
    if server := world.state.get("subscriber"):
        server.shutdown()
        server.thread.join()
        server.server_close()


@act(2, is_fault=True, times=one_of(1, 2, 3), status=one_of(503, 503, 429))
def take_no_deliveries(world: World, times: int, status: int) -> None:
    """Answer the next deliveries as a server does that is down."""
    world.state["subscriber"].answers += [status] * times


@settles
def take_deliveries(world: World) -> bool:
    """Answer as a server that is up again."""
    was_down = bool(world.state["subscriber"].answers)
    world.state["subscriber"].answers.clear()
    return was_down
