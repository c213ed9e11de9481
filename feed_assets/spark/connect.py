"""The session of a Connect server on this machine, to which a token may go without TLS.

As a program, `python -m feed_assets.spark.connect sc://…`, it warms a server up: a process of its own, as PySpark would
hold up the end of another one that is interrupted, by asking a server that has ended for ten minutes.
"""

import sys

from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

from feed_assets.core.addresses import LOOPBACK


class OnLoopback(DefaultChannelBuilder):
    """PySpark sends a token without TLS to the name `localhost` only; this is that name, with one of its addresses."""

    def __init__(self, remote: str) -> None:
        super().__init__(remote.replace(LOOPBACK, "localhost", 1))

    @property
    def endpoint(self) -> str:
        """Where the channel leads."""
        return super().endpoint.replace("localhost", LOOPBACK)


def connect(remote: str) -> SparkSession:
    """The session of a Connect server at `sc://127.0.0.1:port`: this process's, or a new one."""
    return SparkSession.builder.channelBuilder(OnLoopback(remote)).getOrCreate()


def warm_up(remote: str) -> None:
    """Run one small job with a shuffle: the first in a fresh JVM takes seconds."""
    session = connect(remote)
    session.range(1000).groupBy().count().collect()
    session.stop()


if __name__ == "__main__":
    warm_up(sys.argv[1])
