"""The only Spark session of a process, by dagster-pyspark's resource: local, on a cluster, or over Spark Connect."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from dagster_pyspark import LazyPySparkResource
from pydantic import Secret
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import InvalidDefinition, SparkUnavailable
from feed_assets.core.message_words import excerpt, sentence
from feed_assets.settings import Settings
from feed_assets.spark import checksums
from feed_assets.spark.buckets import CREDENTIALS, S3A, at_endpoint, buckets
from feed_assets.spark.heap import default_heap, in_words
from feed_assets.spark.java import java
from feed_assets.spark.jvm import AUTHENTICATED, ON_LOOPBACK, of_python_workers, start_context
from feed_assets.spark.sizing import SMALL
from feed_assets.spark.spark_errors import SPARK_ERRORS

_SQL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # The JVM never compiles methods of more than 8,000 bytes, so Spark must not generate such methods.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Not INT96, which has no statistics in the footer.
}
_MARK = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
_OUTPUT = {
    f"spark.hadoop.{_MARK}": "false",  # Spark's own _SUCCESS is empty, and would count as a manifest.
    # Version 2 of this algorithm leaves parts of failed jobs behind.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",  # The UI has no login, and listens on every interface of a cluster's driver.
}
_LOCAL = {
    **SMALL,  # These values are for small data. For a run that reads more, `sizing` changes them.
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # Compression would cost a fifth of the CPU time.
    "spark.sql.codegen.cache.maxEntries": "1000",  # Three datasets already need more than the default of 100.
}
# Hadoop's default file system writes .crc files, which the manifest would count. It is replaced only if a blackboard of
# ours is on `file:`, because s3a needs the default file system to buffer uploads on disk.
_RAW_FILES = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem"}

_LOUD = ("DataFrameQueryContextLogger", "SQLQueryContextLogger", "pyspark.sql.connect.logging")
"""Loggers that print each error of a query, with the texts of users' exceptions unmasked. The error is raised, too."""

_log = logging.getLogger(__name__)
_ONE_STARTS = threading.Lock()
"""Lock for the start of the first session. Without the lock, PySpark would start a JVM for each of several threads."""

CONNECT_PORT = 15002
"""The default port of a Connect server."""
CONNECT_SECONDS = 10
"""Seconds that a Connect server may take to answer."""


def conf(settings: Settings) -> dict[str, str]:
    """Return the configuration of a session, local or of a Connect server. `spark_conf` of the settings overrides it.

    `spark_conf` cannot switch page checksums off. With `spark_master` `local[…]`, a session is first sized for small
    data (`sizing`), has a heap that fits the machine, and does not compress cached frames. Raise InvalidDefinition for
    a setting that lets Spark write `_SUCCESS`, or for a folder without jars. Raise InvalidSetting if two blackboards
    use the same bucket with different endpoints or profiles.
    """
    own = settings.spark_conf.get_secret_value()
    _refuse_success_files(own)
    own = checksums.without_switches(own)
    if settings.spark_remote:
        return {"spark.remote": settings.spark_remote.get_secret_value(), **_SQL, **own, **checksums.OF_SERVER}
    s3a = {**_s3(settings.s3_endpoint), **buckets(settings)}
    values = {"spark.master": settings.spark_master, "spark.app.name": "feed_assets", **_SQL, **_OUTPUT}
    values |= {**_LOCAL, **default_heap(), **AUTHENTICATED, **of_python_workers()} if _is_local(settings) else {}
    values |= ON_LOOPBACK if settings.spark_master.startswith("local") else {}
    values |= _of_local_files(settings)
    return {**values, **_jars(settings.spark_jars), **s3a, **own, **checksums.OF_SESSION}


def _of_local_files(settings: Settings) -> dict[str, str]:
    """Return the options to write local files. If we also write to S3, uploads are buffered in memory instead."""
    schemes = {each.url.partition(":")[0] for each in settings.own_places.values()}
    in_memory = {f"{S3A}.fast.upload.buffer": "bytebuffer", f"{S3A}.multipart.size": "16M"} if "s3" in schemes else {}
    return {**_RAW_FILES, **in_memory} if "file" in schemes else {}


def heap_in_words(settings: Settings) -> str:
    """Return a text with the heap of a Spark on this machine, and its setting. Return '' if Spark runs elsewhere."""
    return "" if settings.spark_remote or not _is_local(settings) else f" with {in_words(conf(settings))}"


def spark_resource(settings: Settings) -> LazyPySparkResource:
    """Return dagster-pyspark's resource for these settings. The session starts when the resource is first used."""
    if not settings.spark_remote and _is_local(settings):
        # Otherwise executors use the `python3` of the PATH, which rarely has our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return LazyPySparkResource(spark_config=conf(settings))


def session(settings: Settings, profile: Mapping[str, str] | None = None, *, is_in_use: bool = False) -> SparkSession:
    """Return the process's only session. The first call makes it.

    Later calls return the same session, whatever the settings. A profile overrides the settings if this call makes the
    session. If `is_in_use`, runs are using the session, and this call leaves the settings of `sizing` as they are.
    Raise SparkUnavailable if the session cannot be made.
    """
    both = {**settings.spark_conf.get_secret_value(), **(profile or {})}
    effective = settings.model_copy(update={"spark_conf": Secret[dict[str, str]](both)})
    if lines := checksums.switched_off(both):
        _log.warning(
            "the Spark configuration has %s, which has no effect: checksums of Parquet's pages are always written and "
            "verified. Remove it.",
            " and ".join(lines),
        )
    refuse_what_cannot_start(settings)
    for name in _LOUD:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with _ONE_STARTS, _handlers_kept():
            resource = spark_resource(effective)
            if is_in_use:
                resource = LazyPySparkResource(
                    spark_config={key: value for key, value in resource.spark_config.items() if key not in SMALL}
                )
            _prepare(effective)
            return resource.spark_session
    except (*SPARK_ERRORS, OSError) as error:
        raise _unavailable(settings, excerpt(str(error)) or type(error).__name__) from error


def _prepare(settings: Settings) -> None:
    """Start the JVM or the Connect session here.

    PySpark's own start would show the secrets or the token to other users.
    """
    remote = settings.spark_remote.get_secret_value() if settings.spark_remote else None
    if remote and urlsplit(remote).hostname == LOOPBACK:
        from feed_assets.spark.connect import connect  # Imported here, because a local session does not need gRPC.

        connect(remote)
    elif not remote and SparkSession.getActiveSession() is None:
        values = conf(settings)
        if _is_local(settings):
            _log.info("starting Spark with %s", in_words(values))
        start_context(values)


def refuse_what_cannot_start(settings: Settings) -> None:
    """Raise SparkUnavailable quickly if no session can start, because Java or the Connect server is missing."""
    if settings.spark_remote:
        _refuse_a_silent_address(settings.spark_remote.get_secret_value())
    elif SparkSession.getActiveSession() is None:
        java()


@contextmanager
def _handlers_kept() -> Generator[None]:
    """Keep our Ctrl-C handler within the block. PySpark's handler would call the JVM on a busy connection, and hang."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _refuse_a_silent_address(remote: str) -> None:
    """Raise SparkUnavailable if no server can be reached. The client would silently retry for ten minutes."""
    parts = urlsplit(remote)
    try:
        if parts.hostname:
            socket.create_connection((parts.hostname, parts.port or CONNECT_PORT), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        address = f"FEED_ASSETS_SPARK_REMOTE={parts.scheme}://{parts.netloc}"
        why = error.strerror or f"no answer in {CONNECT_SECONDS} s"  # A timeout error has no text.
        is_refused = isinstance(error, ConnectionRefusedError)
        problem = f"nobody listens at {address}" if is_refused else f"{address} cannot be reached ({why})"
        raise SparkUnavailable(
            f"{problem}: expected a Spark Connect server. Start it, or correct the address."
        ) from error


def _unavailable(settings: Settings, why: str) -> SparkUnavailable:
    error = SparkUnavailable(_in_words(settings, why))
    error.refusal = why
    return error


def _in_words(settings: Settings, why: str) -> str:
    if settings.spark_remote:
        return f"the Spark Connect server of FEED_ASSETS_SPARK_REMOTE cannot be used: {why}"
    return (
        f"Spark does not start, with master {settings.spark_master} and {java()}: {sentence(why)} Expected a master "
        "that answers, and a configuration that Spark accepts. Correct FEED_ASSETS_SPARK_MASTER or "
        "FEED_ASSETS_SPARK_CONF, or name a Connect server in FEED_ASSETS_SPARK_REMOTE."
    )


def _is_local(settings: Settings) -> bool:
    return settings.spark_master.startswith("local") and "cluster" not in settings.spark_master


def _refuse_success_files(values: Mapping[str, str]) -> None:
    for key, value in values.items():
        if key.endswith(_MARK) and value.strip().lower() != "false":
            raise InvalidDefinition(
                f"spark_conf sets {key}={value}: Spark's own _SUCCESS would take the manifest's place. Remove it."
            )


def _jars(folder: str | None) -> dict[str, str]:
    if folder is None:
        return {}
    jars = sorted(str(jar.resolve()) for jar in Path(folder).glob("*.jar"))
    if not jars:
        raise InvalidDefinition(f"FEED_ASSETS_SPARK_JARS={folder} has no jar: expected a folder with hadoop-aws.")
    return {"spark.jars": ",".join(jars)}


def _s3(endpoint: str | None) -> dict[str, str]:
    """Return the options with which s3a finds credentials as obstore does: by AWS's environment, profiles or roles."""
    credentials = {f"{S3A}.aws.credentials.provider": CREDENTIALS}
    return {**credentials, **at_endpoint(S3A, endpoint)} if endpoint else credentials
