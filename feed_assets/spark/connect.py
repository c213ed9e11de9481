"""The session of a Connect server on this machine. A token may be sent to this server without TLS.

The program `python -m feed_assets.spark.connect sc://…` warms a server up. If the server has ended, PySpark
retries for ten minutes. So this is a separate process: our own process can still end at once after an interrupt.
"""

import sys

from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

from feed_assets.core.addresses import LOOPBACK


class OnLoopback(DefaultChannelBuilder):
    """A gRPC channel to LOOPBACK under the name `localhost`. Without TLS, PySpark sends a token only to this name."""

    def __init__(self, remote: str) -> None:
        super().__init__(remote.replace(LOOPBACK, "localhost", 1))

    @property
    def endpoint(self) -> str:
        """Return the address that the channel connects to."""
        return super().endpoint.replace("localhost", LOOPBACK)


def connect(remote: str) -> SparkSession:
    """Return the session of the Connect server at `sc://127.0.0.1:port`: the process's existing one, or a new one."""
    return SparkSession.builder.channelBuilder(OnLoopback(remote)).getOrCreate()


def warm_up(remote: str) -> None:
    """Run one small job with a shuffle. The first such job in a fresh JVM takes seconds."""
    session = connect(remote)
    session.range(1000).groupBy().count().collect()
    session.stop()


if __name__ == "__main__":
    warm_up(sys.argv[1])
