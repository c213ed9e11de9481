"""The JVM of this process's session. It refuses other users' connections, and hides its settings from them."""

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from py4j import clientserver  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkException

from feed_assets.core.addresses import LOOPBACK
from feed_assets.spark.scratch import UMASK, make_scratch, remove_at_exit

ON_LOOPBACK = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
"""Configuration for a master on this machine. With it, executors on other machines could not reach the driver."""

AUTHENTICATED = {"spark.authenticate": "true"}
"""Configuration for a Spark whose executors run inside the JVM.

Spark makes a new secret at each start and shows it to nobody.
"""

_WORKERS = {"spark.python.daemon.module": "feed_assets.spark.python_workers"}


def of_python_workers() -> dict[str, str]:
    """Return Spark's configuration for Python workers.

    Return {} if the workers use another Python, which may lack feed_assets.
    """
    return _WORKERS if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable else {}


def environment_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a JVM that has a configuration.

    If the workers run our daemon `python_workers`, set PYTHONSAFEPATH. A worker then starts without the current folder
    on its path. The daemon later appends this folder, behind the installed packages.
    """
    return {"PYTHONSAFEPATH": "1"} if _WORKERS.items() <= values.items() else {}


@contextmanager
def properties_file(values: Mapping[str, str], folder: Path | None = None) -> Generator[Path]:
    """Yield a file with a Spark configuration until the block ends. Only its owner may read it (by `mkstemp`)."""
    lines = [f"{_escaped(key)}={_escaped(value)}\n" for key, value in values.items()]
    with NamedTemporaryFile("w", encoding="ascii", prefix="feed-assets-", suffix=".properties", dir=folder) as file:
        file.writelines(lines)
        file.flush()
        yield Path(file.name)


def _escaped(text: str) -> str:
    """Return a text that `java.util.Properties` reads unaltered in any encoding. Unusual characters become numbers."""
    return re.sub(r"[^\w./-]", lambda match: _numbers(match[0]), text, flags=re.ASCII)


def _numbers(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_BANNER = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting (default|Spark) log level to|"
    r"To adjust logging level use|.* WARN (Utils: (Your hostname,|Set SPARK_LOCAL_IP)|NativeCodeLoader: Unable to load)"
)
"""Lines that Spark prints to stderr at each start. Nobody can act on them."""

_ENTRY = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ (?P<logger>[\w.$]+): ")
_FAILED_TASKS = {
    "DataWritingSparkTask",
    "Executor",
    "FileFormatWriter",
    "OverwriteByExpressionExec",
    "TaskSetManager",
    "Utils",
}
"""Loggers whose entries about failed tasks repeat the error of the run."""
_EXCEPTION = re.compile(r"\s*(Caused by: |Suppressed: )?([a-z]\w*\.)+[\w$]*(Exception|Error|Throwable)\b")
_ENDS = re.compile(r"Error: (Could not create the Java Virtual Machine|A fatal exception has occurred)")
_FRAME = re.compile(r"\s+(at [\w.$/<>]+[(.]|\.\.\. \d+ more)")

_HIDES: set[str] = set()

SECONDS_TO_END = 5
"""Seconds that a JVM gets to close its stderr after a failed start, or to end after its normal use."""


def hide_banner(*, keeps_traces: bool = False) -> None:
    """Hide the start messages of a Spark that this process starts. Also hide its stack traces, unless `keeps_traces`.

    All other output goes to stderr.
    """
    _HIDES.add("banner")
    if not keeps_traces:
        _HIDES.add("traces")


@contextmanager
def _output() -> Generator[dict[str, int]]:
    """Yield arguments of `Popen` that redirect the JVM's output, or {} if nothing is hidden.

    If Spark's start messages are hidden, a thread reads the output, drops these messages and copies all other lines to
    stderr. Raise ChildProcessError, with the JVM's output, if the JVM does not start.
    """
    if not _HIDES:
        yield {}
        return
    reads, writes = os.pipe()
    (listener := _Listener(reads)).start()
    try:
        yield {"stdout": writes, "stderr": writes}
    except PySparkException as error:
        os.close(writes)
        listener.join(SECONDS_TO_END)
        words = [line.strip() for line in listener.held if not _ENDS.match(line)]
        raise ChildProcessError("; ".join(words) or str(error)) from error
    os.close(writes)
    listener.pass_on()


class _Listener(threading.Thread):
    """A thread that reads a JVM's output. It keeps the lines while the JVM starts, and prints them afterwards."""

    def __init__(self, reads: int) -> None:
        super().__init__(daemon=True)
        self.held: list[str] = []
        self._reads, self._lock, self._is_up = reads, threading.Lock(), False

    def run(self) -> None:
        """Read the JVM's output until the JVM ends."""
        with os.fdopen(self._reads, errors="replace") as lines:
            for line in _plain(lines) if "traces" in _HIDES else _without_banner(lines):
                with self._lock:
                    _ = sys.stderr.write(line) if self._is_up else self.held.append(line)

    def pass_on(self) -> None:
        """Print the kept output. From now on, print each line as it arrives."""
        with self._lock:
            sys.stderr.writelines(self.held)
            self._is_up = True


def _without_banner(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if not _BANNER.match(line))


def _plain(lines: Iterable[str]) -> Iterator[str]:
    """Remove Java's stack traces and the log entries of failed tasks. The run's own error repeats both.

    A function's output may look like an exception. Only a real exception is followed by stack frames or belongs to a
    log entry.
    """
    held: list[str] = []
    is_hidden = has_frames = False
    for line in _without_banner(lines):
        entry, is_text = _ENTRY.match(line), _EXCEPTION.match(line)
        if _FRAME.match(line):
            held.clear()
            has_frames = True
            continue
        if is_hidden and not entry and (is_text or not has_frames):
            continue
        yield from held
        held.clear()
        is_hidden, has_frames = bool(entry and entry["logger"] in _FAILED_TASKS), False
        if is_text:
            held.append(line)
        elif not is_hidden:
            yield line
    yield from held


def start_context(values: Mapping[str, str]) -> None:
    """Start Spark in this process with a configuration, unless it is started already.

    PySpark itself would put each value on the JVM's command line, which every user of the machine can read.
    """
    if vars(SparkContext)["_gateway"] is None:
        remove_at_exit(scratch := make_scratch(values), _end_jvm)
        values = {**scratch.conf(values["spark.master"]), **values}
        with properties_file(values) as file:
            options = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
            arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
            submit = {"PYSPARK_SUBMIT_ARGS": f"{options} {arguments}", **environment_of(values), **scratch.environment}
            with _environment(submit), _output() as output:
                # Set the umask for the JVM only, because this process may belong to the user, such as a notebook.
                how = {**output, "umask": UMASK, "pass_fds": scratch.locks}
                gateway = java_gateway.launch_gateway(None, how)  # pyright: ignore[reportUnknownMemberType]
        # Set the values again here, because Spark strips the outer blanks of values in the file.
        conf = SparkConf(_jvm=gateway.jvm).setAll([*values.items()])
        SparkContext(gateway=gateway, conf=conf)


def _end_jvm() -> None:
    """End the JVM and wait for it, because Spark still removes and writes files.

    The end of this process would end the JVM, too, but without the wait.
    """
    gateway: Any = vars(SparkContext)["_gateway"]
    process: Any = getattr(gateway, "proc", None)
    if process is not None:
        _expect_the_end_of_accumulators()
        _stop_freeing_objects(gateway)
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_END)


def _expect_the_end_of_accumulators() -> None:
    """Keep PySpark's accumulator server from printing a traceback when the JVM's connection ends."""
    context: Any = vars(SparkContext)["_active_spark_context"]
    if server := getattr(context, "_accumulatorServer", None):
        server.handle_error = _print_nothing


def _stop_freeing_objects(gateway: Any) -> None:
    """Stop Py4J's thread that frees the JVM's objects. It prints a traceback if the JVM ends during a call."""
    tasks = gateway._gateway_client.finalizer_deque
    tasks.append(clientserver.SHUTDOWN_FINALIZER_WORKER)  # The thread takes its next task from this end.
    for each in threading.enumerate():
        if isinstance(each, clientserver.FinalizerWorker):
            each.join(SECONDS_TO_END)


def _print_nothing(*_: object) -> None: ...


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({name: value} if value is not None else {})
