"""Probe of a Spark Connect server: it must answer. Its size is in the settings, because nobody can ask for it."""

from datetime import datetime
from urllib.parse import urlsplit

from feed_assets.core.allotment import Probe
from feed_assets.core.targets import Connect
from feed_assets.targets.json_answers import PROBE_SECONDS, NoAnswer

_PORT = 15002
_CALL = "/spark.connect.SparkConnectService/Config"


def look(target: Connect, now: datetime) -> Probe:
    """Return the size of the server, all of it free: only the ledger knows our runs. Raise NoAnswer if it is silent.

    The call has no session and no token, so the server refuses it. Any refusal shows that it answers.
    """
    import grpc  # only for such a target

    parts = urlsplit(target.remote.get_secret_value())
    address = f"{parts.hostname}:{parts.port or _PORT}"
    is_tls = "use_ssl=true" in parts.path.lower()
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials()) if is_tls else grpc.insecure_channel(address)
    try:
        with channel:
            channel.unary_unary(_CALL)(b"", timeout=PROBE_SECONDS)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            raise NoAnswer(f"no answer in {PROBE_SECONDS:.0f} s") from None
    return Probe(now, target.total, target.total)
