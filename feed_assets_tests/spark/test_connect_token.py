"""The token of a Connect server on this machine: its receivers, and its way there."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from feed_assets.spark.connect import OnLoopback

TOKEN = "planted-token"


class Recorder(grpc.GenericRpcHandler):
    """Records the caller's credentials of each call."""

    def __init__(self) -> None:
        self.seen: list[str | bytes] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        self.seen += [value for key, value in details.invocation_metadata if key == "authorization"]
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


@contextmanager
def server(address: str):
    """Start a gRPC server; yield it with its port."""
    recorder = Recorder()
    with ThreadPoolExecutor(2) as threads:
        it = grpc.server(threads)
        it.add_generic_rpc_handlers((recorder,))
        port = it.add_secure_port(address, grpc.local_server_credentials())
        it.start()
        try:
            yield recorder, port
        finally:
            it.stop(None).wait()


def call(builder: DefaultChannelBuilder) -> None:
    with builder.toChannel() as channel:
        channel.unary_unary("/spark.connect.SparkConnectService/Config")(b"x", timeout=30)


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", TOKEN)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="without IPv6 nobody can listen on [::1]")
def test_a_listener_on_the_other_loopback_address_gets_no_token(token):
    with server("127.0.0.1:0") as (ours, port), server(f"[::1]:{port}") as (stranger, _):
        call(OnLoopback(f"sc://127.0.0.1:{port}"))
        assert (ours.seen, stranger.seen) == ([f"Bearer {TOKEN}"], [])
        call(DefaultChannelBuilder(f"sc://localhost:{port}"))
        assert stranger.seen == [f"Bearer {TOKEN}"], "PySpark has mended it: `OnLoopback` can go"


def test_a_token_on_loopback_needs_no_tls(token):
    with server("127.0.0.1:0") as (ours, port):
        call(OnLoopback(f"sc://127.0.0.1:{port}/;user_id=me"))
        assert ours.seen == [f"Bearer {TOKEN}"]
