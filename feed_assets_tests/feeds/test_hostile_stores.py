"""A store of others whose answers are made to crash the XML parser: an error of that store alone."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from feed_assets.feeds.answers import Answers
from feed_assets.feeds.s3_pages import S3Pages
from feed_assets.feeds.stores import PATIENCE
from feed_assets_tests.support.each_case import each_case

DOCTYPE = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]>'
LISTING = DOCTYPE + b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
REFUSAL = DOCTYPE + b"<Error><Code>NoSuchKey</Code></Error>"
KEYS = {"access_key_id": "a", "secret_access_key": "b"}


@pytest.fixture
def endpoint():
    """Yield the address of a store that lists with a DOCTYPE, and says with one that it has no object."""

    class Store(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_listing = "list-type" in self.path
            body = LISTING if is_listing else REFUSAL
            self.send_response(200 if is_listing else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@each_case("ask", [lambda pages: pages.names(""), lambda pages: pages.object("k", None)])
def test_an_answer_with_a_doctype_is_refused_before_it_is_parsed(endpoint, ask):
    pages = S3Pages("s3://bucket", endpoint, lambda: KEYS, PATIENCE, Answers())
    with pytest.raises(OSError, match="an answer with a DOCTYPE: expected one of S3"):
        ask(pages)
