"""A server that answers as a service of AWS with JSON does, so that boto3 of any process reaches it."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]] | None]
"""A function of an operation and its request. It returns the status and the body; None for no answer."""


@contextmanager
def aws_answers() -> Iterator[tuple[str, Callable[[Answer], None]]]:
    """Run the server until the block ends. Yield its address, and the function that sets what it answers."""
    listening = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)

    def set_answer(answer: Answer) -> None:
        listening.RequestHandlerClass = _handler(answer)

    thread = Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}", set_answer
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answered = answer(self.headers["X-Amz-Target"].partition(".")[2], body)
            if answered is None:
                return
            status, value = answered
            content = json.dumps(value, default=_plain).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler


def _plain(value: Any) -> Any:
    return b64encode(value).decode() if isinstance(value, bytes) else value.timestamp()
