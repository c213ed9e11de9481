"""Probe of a Spark Connect server: it must answer. Its size is in the settings, because the server reports none."""

import os
from datetime import datetime
from urllib.parse import urlsplit

from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.target_room import Probe
from feed_assets.core.targets import Connect
from feed_assets.targets.json_answers import PROBE_SECONDS, NoAnswer

_PORT = 15002
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  The name of PySpark's variable.
_CALL = "/spark.connect.SparkConnectService/Config"


def look(target: Connect, now: datetime) -> Probe:
    """Return the target's whole size as free. The server does not report how much is in use; only the ledger knows it.

    Raise NoAnswer if nothing answers.

    The call has no session and no token, so the server refuses it. Any refusal shows that the server answers.
    """
    import grpc  # only for such a target

    remote = target.remote.get_secret_value()
    is_tls, address = _has_tls(remote), _address(remote)
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials()) if is_tls else grpc.insecure_channel(address)
    try:
        with channel:
            channel.unary_unary(_CALL)(b"", timeout=PROBE_SECONDS)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise NoAnswer(f"no answer from {address} in {PROBE_SECONDS:.0f} s{' by TLS' if is_tls else ''}") from None
    return Probe(now, target.total, target.total)


def _address(remote: str) -> str:
    parts = urlsplit(remote)
    host = str(parts.hostname)
    return f"[{host}]:{parts.port or _PORT}" if ":" in host else f"{host}:{parts.port or _PORT}"


def _has_tls(remote: str) -> bool:
    """Return whether PySpark's session uses TLS: by the option `use_ssl`, or to send a token to another machine."""
    parts = urlsplit(remote)
    pairs = [option.partition("=") for option in parts.path.partition(";")[2].split(";")]
    options = {key: value for key, _, value in pairs}
    if options.get("use_ssl", "").lower() == "true":
        return True
    has_token = "token" in options or _TOKEN in os.environ
    return has_token and parts.hostname not in ("localhost", LOOPBACK)
