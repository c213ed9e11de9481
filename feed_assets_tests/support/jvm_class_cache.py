"""A file of Spark's loaded and verified classes, with which a Spark of the tests starts twice as fast.

    python -m feed_assets_tests.support.jvm_class_cache

makes the file if there is none for this Java and this PySpark. Without the file, Spark starts as usual.
"""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from feed_assets_tests.support.servers import JVM, ROOT

SECONDS = 300
"""Time limit for making the file, on a shared machine."""


def options() -> str:
    """Return the options for a JVM of the tests."""
    path = _path()
    # Silent: a JVM with other jars ignores the file, and would otherwise say so on its standard output.
    return f"{JVM} -XX:SharedArchiveFile={path} -Xlog:cds*=off" if path.exists() else JVM


def _path() -> Path:
    """Return the path of the file, which depends on the Java and the jars."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    found = [Path(java or "java").resolve(), *_jars()]
    told = [f"{each} {each.stat().st_mtime_ns}" for each in found if each.exists()]
    return ROOT / ".cache" / "classes" / f"{sha256(repr(told).encode()).hexdigest()[:16]}.jsa"


def _jars() -> list[Path]:
    spec = find_spec("pyspark")
    return sorted(Path(spec.origin).parent.glob("jars/*.jar")) if spec and spec.origin else []


def make() -> None:
    """Make the file unless it exists. Rename it at the end, because half a file would stop every JVM."""
    path = _path()
    partial = path.with_suffix(f".{os.getpid()}")
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "SPARK_SUBMIT_OPTS": f"{JVM} -XX:ArchiveClassesAtExit={partial}", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", __spec__.name, "work"]
    try:
        subprocess.run(command, env=env, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"no file of Spark's classes after {SECONDS} s: the tests start without it, more slowly\n")
    if partial.exists():
        partial.rename(path)


def work(folder: Path) -> None:
    """Do once what runs do with Spark: read, sort, write, read back, join, count. Return when the JVM has ended."""
    from pyspark import SparkContext

    from feed_assets.core.feeds import Feed, Partition, Update
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.feeds.write import claim, publish
    from feed_assets.settings import Settings
    from feed_assets.spark.input_frames import read, read_own
    from feed_assets.spark.rejects import RejectedRows
    from feed_assets.spark.session import session
    from feed_assets.spark.written_frame import write

    board, now = Blackboard.open(folder.as_uri(), create=True), datetime.now(UTC)
    raw, made = (Partition(Feed.parse(f"web/{name}/v1.0"), "") for name in ("raw", "made"))
    spark = session(Settings(blackboard=board.url))
    dropped = publish(board, raw, {"part-1.csv": b"k,n,at\na,1,2026-01-01 00:00:00\nb,x,\n"}, now)
    tagged = read(spark, board, [dropped], "csv", "k string, n int, at timestamp")
    good, bad = RejectedRows.on_the_way(tagged)
    update_id = claim(board, made, b"work", now)
    written = write(good, board, made, update_id, event_time="at")
    rows = read_own(spark, board, Update(made, update_id, written.files))
    rows.join(good, "k").groupBy("k").count().orderBy("k").collect()
    bad.rows.collect()
    jvm = SparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        with TemporaryDirectory() as folder:
            work(Path(folder))
    else:
        make()
