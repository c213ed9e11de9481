"""The JVM of a session in this process: who may speak to it, and what it is told where others cannot read it."""

import os
import re
import shlex
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from pyspark import SparkConf, SparkContext, java_gateway

from feed_assets.core.addresses import LOOPBACK

ON_LOOPBACK = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
"""For a master on this machine: the executors of another one must reach the driver and its blocks."""

AUTHENTICATED = {"spark.authenticate": "true"}
"""For executors within the JVM: Spark makes a secret of its own at each start, and tells nobody."""

_WORKERS = {"spark.python.daemon.module": "feed_assets.spark.python_workers"}


def of_python_workers() -> dict[str, str]:
    """The configuration of Python workers, unless they are another Python, which may be one without feed_assets."""
    return _WORKERS if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable else {}


def environment_of(values: Mapping[str, str]) -> dict[str, str]:
    """The environment of a JVM with a configuration: our Python workers import nothing from the current folder.

    Nothing, that is, before `python_workers` puts that folder behind what is installed.
    """
    return {"PYTHONSAFEPATH": "1"} if _WORKERS.items() <= values.items() else {}


@contextmanager
def properties_file(values: Mapping[str, str], folder: Path | None = None) -> Generator[Path]:
    """A file with a Spark configuration, until the block ends; only its owner may read it (as `mkstemp` makes it)."""
    lines = [f"{_escaped(key)}={_escaped(value)}\n" for key, value in values.items()]
    with NamedTemporaryFile("w", encoding="ascii", prefix="feed-assets-", suffix=".properties", dir=folder) as file:
        file.writelines(lines)
        file.flush()
        yield Path(file.name)


def _escaped(text: str) -> str:
    """A text as `java.util.Properties` reads it unaltered, in whatever encoding: all but plain characters by number."""
    return re.sub(r"[^\w./-]", lambda found: _numbers(found[0]), text, flags=re.ASCII)


def _numbers(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_BANNER = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting (default|Spark) log level to|"
    r"To adjust logging level use|.* WARN (Utils: (Your hostname,|Set SPARK_LOCAL_IP)|NativeCodeLoader: Unable to load)"
)
"""What Spark says on stderr at each start, whoever starts it, and nobody can act on."""

_HIDES: set[str] = set()


def hide_banner() -> None:
    """Have a Spark that this process starts say nothing of its start. What else it says goes to stderr."""
    _HIDES.add("banner")


@contextmanager
def _stderr() -> Generator[dict[str, int]]:
    """Where the JVM is to write what it says on stderr: to a thread, until it ends, if the banner is hidden."""
    if not _HIDES:
        yield {}
        return
    reads, writes = os.pipe()
    threading.Thread(target=_pass_on, args=[reads], daemon=True).start()
    try:
        yield {"stderr": writes}
    finally:
        os.close(writes)


def _pass_on(reads: int) -> None:
    with os.fdopen(reads, errors="replace") as lines:
        for line in lines:
            if not _BANNER.match(line):
                sys.stderr.write(line)


def start_context(values: Mapping[str, str]) -> None:
    """Start Spark in this process with a configuration, unless it has run here before.

    PySpark itself would put each value on the command line of the JVM, which every user of the machine may read.
    """
    if vars(SparkContext)["_gateway"] is None:
        with properties_file(values) as file:
            options = f"--load-spark-defaults --properties-file {shlex.quote(str(file))}"
            arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
            submit = {"PYSPARK_SUBMIT_ARGS": f"{options} {arguments}", **environment_of(values)}
            with _environment(submit), _stderr() as stderr:
                gateway = java_gateway.launch_gateway(None, {**stderr})  # pyright: ignore[reportUnknownMemberType]
        given = SparkConf(_jvm=gateway.jvm).setAll([*values.items()])  # Of the file Spark has taken blanks at the ends.
        SparkContext(gateway=gateway, conf=given)


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
