"""The daemon of Spark's Python workers.

It searches for modules in the installed packages first, then in the current folder. PySpark's own daemon starts with
`python -m`, which searches the current folder first. There, a file with the name of a library would run in place of the
library. Unlike PySpark's own daemon, it prints no traceback when Spark needs no more rows of a worker.
"""

import signal
import socket
import sys
from pathlib import Path

from pyspark import daemon

_SERVE = daemon.worker


def worker(connection: socket.socket, authenticated: bool) -> int:
    """Serve one task, and return 0 if the worker can serve another one.

    Spark closes the connection early if it needs no more rows, such as for `limit`, or if it ends itself.
    """
    try:
        return _SERVE(connection, authenticated)
    except ConnectionError:
        return 1


if __name__ == "__main__":
    sys.path.append(str(Path.cwd()))
    # If nohup has started the JVM, the JVM and its children block SIGHUP. The daemon needs SIGHUP to end its workers.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    daemon.worker = worker
    daemon.manager()
