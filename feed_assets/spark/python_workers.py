"""The daemon of Spark's Python workers.

It searches for modules in the installed packages first, then in the current folder. PySpark's own daemon starts with
`python -m`, which searches the current folder first. There, a file with the name of a library would run in place of the
library.
"""

import signal
import sys
from pathlib import Path

from pyspark.daemon import manager

if __name__ == "__main__":
    sys.path.append(str(Path.cwd()))
    # If nohup has started the JVM, the JVM and its children block SIGHUP. The daemon needs SIGHUP to end its workers.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    manager()
