"""Spark's start-up messages are dropped where a user waits for results; all other output is passed on."""

import os
import sys
from io import StringIO

import pytest
from pyspark.errors import PySparkRuntimeError

from feed_assets.spark import jvm
from feed_assets_tests.support.servers import wait_until

BANNER = [
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    "26/11/24 10:40:46 WARN Utils: Your hostname, vm, resolves to a loopback address: 127.0.0.1"
    "; using 192.0.2.2 instead",
    "26/11/24 10:40:46 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address",
    'Setting default log level to "WARN".',
    "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
    "26/11/24 10:40:49 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform..."
    " using builtin-java",
    'Setting Spark log level to "ERROR".',
]
"""Start-up messages of Spark 4.3."""

OF_A_FUNCTION = [
    "of a function",
    "requests.exceptions.ConnectionError: no answer",
    "asked again",
    "Traceback (most recent call last):",
    '  File "/home/me/shop/defs/sold.py", line 31, in ask',
    "ValueError: its own, which it prints",
    "done",
]
TOLD = ["Unrecognized VM option 'x'", "26/11/24 10:41:00 ERROR Shuffle: lost", "WARN Utils: other", *OF_A_FUNCTION]

TRACES = [
    "26/11/27 01:15:59 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)",
    "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'lemon' cannot be cast",
    "== DataFrame ==",
    '"cast" was called from',
    "/home/me/shop/defs/sold.py:36",
    "",
    "\tat org.apache.spark.sql.catalyst.util.UTF8StringUtils$.withException(UTF8StringUtils.scala:57)",
    "\tat java.base/java.lang.Thread.run(Thread.java:840)",
    "Caused by: java.io.IOException: x",
    "\t... 12 more",
    "26/11/27 01:16:00 ERROR TaskSetManager: Task 0 in stage 0.0 failed 1 times; aborting job",
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Traceback (most recent call last):",
    '  File "/home/me/shop/defs/sold.py", line 31, in <lambda>',
    "ValueError: invalid literal for int() with base 10: 'lemon'",
    " SQLSTATE: 38000",
    "\tat org.apache.spark.sql.execution.python.PythonArrowOutput$$anon$1.read(PythonArrowOutput.scala:145)",
]
"""Messages of Spark 4.3 about a wrong value and about a failed Python function, shortened."""


@pytest.fixture
def hides(monkeypatch):
    monkeypatch.setattr(jvm, "_HIDES", set())
    return jvm.hide_banner


def said_by(lines, monkeypatch):
    """Return the printed part of a JVM's output."""
    said = StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with jvm._output() as given:
        os.write(given["stderr"], "".join(f"{line}\n" for line in lines).encode())
    wait_until(lambda: lines[-1] in said.getvalue(), "the last line")
    return said.getvalue().splitlines()


def test_spark_s_banner_and_traces_are_hidden_and_errors_shown(hides, monkeypatch):
    hides()
    assert said_by([*BANNER, *TOLD[:2], *TRACES, *TOLD[2:]], monkeypatch) == TOLD


def test_stack_traces_are_printed_on_request(hides, monkeypatch):
    hides(keeps_traces=True)
    assert said_by([*BANNER, *TRACES, *TOLD], monkeypatch) == [*TRACES, *TOLD]


def test_output_of_a_jvm_that_fails_to_start_is_the_error_reason(hides, monkeypatch, capsys):
    hides()

    def fail():
        with jvm._output() as given:
            os.write(given["stderr"], b"Invalid heap size: -Xmxlots\nNo room\n")
            os.write(given["stdout"], b"Error: Could not create the Java Virtual Machine.\n")
            raise PySparkRuntimeError("JAVA_GATEWAY_EXITED", {})

    with pytest.raises(ChildProcessError, match=r"^Invalid heap size: -Xmxlots; No room$"):
        fail()
    assert capsys.readouterr().err == ""


def test_spark_output_is_shown_unless_hiding_is_requested(monkeypatch):
    monkeypatch.setattr(jvm, "_HIDES", set())
    with jvm._output() as given:
        assert given == {}
