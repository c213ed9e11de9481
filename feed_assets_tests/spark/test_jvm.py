"""Spark in our process, as seen by neighbours on the machine: who can connect to it, and what they can read."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

import pytest

from feed_assets.settings import Settings
from feed_assets.spark.jvm import properties_file
from feed_assets.spark.session import conf
from feed_assets_tests.support.each_case import each_case

PLANTED = 'planted"secret \\with = all'
NASTY = {"spark.hadoop.a b:c=d#e!\u00e9": " \t\r\n\f#!:=\\u0041\u00e9\u20ac\U0001f511 \t", "spark.hadoop. x": "y"}
LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1"}
OWN = dedent(
    """
    import json, os, socket, stat, sys, tempfile
    from pathlib import Path
    import psutil
    import pyarrow
    from py4j.clientserver import ClientServerConnection
    from feed_assets.settings import Settings
    from feed_assets.spark.session import session

    def of_worker(_):
        import mine, psutil
        return [mine.NAME, psutil.__file__, os.environ.get("PYTHONSAFEPATH")]

    def of_many(batches):
        yield from [pyarrow.record_batch({"k": ["x" * 1_000] * 100})] * 300

    def send(connection, command):
        if gateway.proc.stdin.closed:
            print("Traceback: a call of the JVM at its end", file=sys.stderr)
        return sends(connection, command)

    nasty = json.loads(sys.argv[2])
    own = {"spark.hadoop.fs.s3a.secret.key": sys.argv[1], **nasty}
    settings = Settings(spark_conf=own, blackboard="memory://")
    spark = session(settings, {"spark.hadoop.my.key": sys.argv[1] + "!"})
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sockets = [each for it in ours for each in it.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    idle = [socket.create_connection(("127.0.0.1", each.laddr.port)) for each in sockets]
    said = {"worker": spark.sparkContext.parallelize([1], 1).map(of_worker).first()}
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
    living = [each for each in ours if each.status() != psutil.STATUS_ZOMBIE]
    said["names"] = [each.name() for each in living]
    said["lines"] = [each.cmdline() for each in living if each.pid != os.getpid()]
    listening = [each for it in living for each in it.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    said["addresses"] = sorted({each.laddr.ip for each in listening})
    said["files"] = [path.name for path in Path(tempfile.gettempdir()).glob("feed-assets-*.properties")]
    known = spark.sparkContext._jsc.hadoopConfiguration()
    said["keys"] = [known.get("fs.s3a.secret.key"), known.get("my.key")]
    said["nasty"] = {key: spark.sparkContext.getConf().get(key) for key in nasty}
    properties = spark._jvm.java.lang.System.getProperties()
    said["read"] = {key: properties.getProperty(key) for key in nasty}
    said["authenticates"] = spark.sparkContext.getConf().get("spark.authenticate")
    hadoop = spark._jvm.org.apache.hadoop
    credentials = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    said["secret"] = len(credentials.getSecretKey(hadoop.io.Text("sparkCookie")) or b"")
    folder_of_sockets = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    said["sockets"] = stat.S_IMODE(Path(folder_of_sockets).stat().st_mode)
    spark.stop()
    again = session(settings, {"spark.hadoop.my.key": "other"})
    said["again"] = again.sparkContext._jsc.hadoopConfiguration().get("my.key")
    said["few"] = again.range(1).mapInArrow(of_many, "k string").limit(1).count()
    gateway, sends = again.sparkContext._gateway, ClientServerConnection.send_command
    ClientServerConnection.send_command = send
    print(json.dumps({**said, "idle": len(idle)}))
    client = gateway._gateway_client
    client.finalizer_deque.extend([(client, "an object that is no longer used")] * 1_000_000)
    """
)
STRANGER = (
    "from pathlib import Path\nPath(__file__).with_name('a_stranger_ran').touch()\nraise ImportError('a stranger')\n"
)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Return the report of a process with its own session, in a folder with a stranger's modules."""
    folder = tmp_path_factory.mktemp("current")
    for name in ("psutil", "pyarrow", "pandas", "numpy", "pyspark"):
        (folder / f"{name}.py").write_text(STRANGER)
    (folder / "mine.py").write_text("NAME = 'mine'\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    command = [sys.executable, "-P", "-c", OWN, PLANTED, json.dumps(NASTY)]
    with TemporaryDirectory() as short:
        env |= {"TMPDIR": short, "PYSPARK_SUBMIT_ARGS": "--conf spark.hadoop.by.hand=1 pyspark-shell"}
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)
        left = [*Path(short).glob("feed-assets-*")]
    assert done.returncode == 0, done.stderr[-3000:]
    assert PLANTED not in done.stderr
    assert "Traceback" not in done.stderr
    return {**json.loads(done.stdout), "left": left, "ran": (folder / "a_stranger_ran").exists()}


def test_spark_listeners_are_on_loopback_and_require_a_generated_secret(said):
    assert "java" in said["names"]
    assert said["addresses"]
    assert set(said["addresses"]) <= LOOPBACK
    assert said["authenticates"] == "true"
    assert said["secret"] >= 32


def test_idle_connections_to_each_port_do_not_hold_up_a_job(said):
    assert said["idle"] >= 2
    assert said["worker"]
    assert said["sockets"] == 0o700, "the folder of sockets"


def test_keys_are_spark_s_and_on_no_command_line(said):
    assert said["keys"] == [PLANTED, f"{PLANTED}!"]
    assert said["again"] == "other", "of a later session of the same process"
    assert any("--properties-file" in line for line in said["lines"])
    assert [line for line in said["lines"] if "planted" in " ".join(line)] == []


def test_every_character_of_the_configuration_comes_through(said):
    """Exclude blanks at the ends, which Spark strips from values of the file."""
    assert said["nasty"] == NASTY
    assert said["read"] == {key: value.strip(" \t\f") for key, value in NASTY.items()}


def test_the_properties_file_is_removed_after_spark_read_it_and_scratch_at_the_end(said):
    assert said["files"] == []
    assert said["left"] == []


def test_a_python_worker_finds_the_current_folder_behind_what_is_installed(said):
    name, psutil, safe = said["worker"]
    assert (name, said["ran"]) == ("mine", False)
    assert "site-packages" in psutil
    assert safe == "1"
    assert said["few"] == 1, "of a worker whose further rows nobody needs"


def test_only_the_owner_may_read_the_properties_file():
    with properties_file({"spark.hadoop.x": "1\n2\\3"}) as path:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text() == "spark.hadoop.x=1\\u000a2\\u005c3\n"
    assert not path.exists()


@each_case("master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]"])
def test_local_masters_bind_to_loopback_unless_somebody_says_otherwise(master):
    bound = conf(Settings(spark_master=master))
    assert (bound["spark.driver.bindAddress"], bound["spark.driver.host"]) == ("127.0.0.1", "127.0.0.1")
    own = {"spark.driver.bindAddress": "0.0.0.0", "spark.authenticate": "false"}  # noqa: S104
    assert own.items() <= conf(Settings(spark_master=master, spark_conf=own)).items()


@each_case("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_the_executors_of_another_machine_reach_the_driver(master):
    found = conf(Settings(spark_master=master))
    assert not {"spark.driver.bindAddress", "spark.driver.host", "spark.authenticate"} & found.keys()


def test_a_custom_python_gets_standard_workers(monkeypatch):
    """Use standard workers, since another Python may have no feed_assets."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    assert "spark.python.daemon.module" not in conf(Settings())
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert conf(Settings())["spark.python.daemon.module"] == "feed_assets.spark.python_workers"
