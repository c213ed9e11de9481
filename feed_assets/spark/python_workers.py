"""The daemon of Spark's Python workers, which finds modules of the current folder after installed ones.

PySpark's own is started in that folder with `python -m`: a file there called like a library would run in its place.
"""

import signal
import sys
from pathlib import Path

from pyspark.daemon import manager

if __name__ == "__main__":
    sys.path.append(str(Path.cwd()))
    # A JVM that was started by nohup blocks SIGHUP, also for its children, and the daemon ends its workers by it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    manager()
