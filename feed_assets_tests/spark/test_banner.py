"""What Spark says at its start is left out where somebody waits for results; all else of it is passed on."""

import os
import sys
from io import StringIO

import pytest

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
"""As Spark 4.3 says it, each time."""

TOLD = ["Unrecognized VM option 'x'", "26/11/24 10:41:00 ERROR Executor: Exception in task", "WARN Utils: other"]


@pytest.fixture
def hidden(monkeypatch):
    monkeypatch.setattr(jvm, "_HIDES", set())
    jvm.hide_banner()


def test_the_banner_is_left_out_and_what_went_wrong_is_told(hidden, monkeypatch):
    said = StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    with jvm._stderr() as given:
        os.write(given["stderr"], "".join(f"{line}\n" for line in (*BANNER, *TOLD)).encode())
    wait_until(lambda: TOLD[-1] in said.getvalue(), "the last line")
    assert said.getvalue().splitlines() == TOLD


def test_nothing_is_hidden_where_nobody_asks_for_it(monkeypatch):
    monkeypatch.setattr(jvm, "_HIDES", set())
    with jvm._stderr() as given:
        assert given == {}
