"""The daemon of Spark's Python workers, which searches the current folder for modules only after installed ones.

PySpark's own daemon starts with `python -m` in that folder: a file there with a library's name would run instead.
"""

import signal
import sys
from pathlib import Path

from pyspark.daemon import manager

if __name__ == "__main__":
    sys.path.append(str(Path.cwd()))
    # A JVM started by nohup blocks SIGHUP, also for its children. The daemon needs SIGHUP to end its workers.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    manager()
