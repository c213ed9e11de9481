"""Configuration of the session, and errors if there can be none."""

import logging.config
import os
import socket
import subprocess
import sys

import pytest

from feed_assets.core.errors import InvalidDefinition, InvalidSetting, SparkUnavailable
from feed_assets.settings import Settings
from feed_assets.spark.guarded import guarded
from feed_assets.spark.java import java as java_of_spark
from feed_assets.spark.session import conf, refuse_what_cannot_start, session, spark_resource
from feed_assets_tests.support.each_case import each_case

START = """
from feed_assets.core.errors import SparkUnavailable
from feed_assets.settings import Settings
from feed_assets.spark.session import session
try:
    session(Settings())
except SparkUnavailable as error:
    print(error)
"""
CHECKSUMS = ("parquet.page.verify-checksum.enabled", "parquet.page.write-checksum.enabled")
SUCCESS = "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs"


@each_case("master", ["local", "local[2]", "local[*]", "spark://host:7077", "yarn"])
def test_spark_writes_no_extra_files_into_updates(master):
    found = conf(Settings(spark_master=master))
    assert found["spark.master"] == master
    assert found[SUCCESS] == "false"
    assert found["spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"] == "1"
    assert found["spark.sql.parquet.outputTimestampType"] == "TIMESTAMP_MICROS"
    assert (found["spark.sql.session.timeZone"], found["spark.sql.ansi.enabled"]) == ("UTC", "true")
    assert found["spark.sql.files.ignoreCorruptFiles"] == found["spark.sql.files.ignoreMissingFiles"] == "false"


def test_checksum_files_are_off_locally_and_s3a_keeps_its_file_system():
    raw = "org.apache.hadoop.fs.RawLocalFileSystem"
    assert conf(Settings(blackboard="file:///lake"))["spark.hadoop.fs.file.impl"] == raw
    assert "spark.hadoop.fs.file.impl" not in conf(Settings(blackboard="s3://bucket/lake"))


@each_case(
    ("master", "small"),
    [("local[2]", True), ("local", True), ("local-cluster[2,1,1024]", False), ("spark://host:7077", False)],
)
def test_only_small_local_sessions_go_without_adaptive_execution(master, small):
    found = conf(Settings(spark_master=master))
    assert (found.get("spark.sql.adaptive.enabled") == "false") is small
    assert ("spark.sql.shuffle.partitions" in found) is small
    assert ("spark.sql.codegen.cache.maxEntries" in found) is small
    assert (found.get("spark.sql.inMemoryColumnarStorage.compressed") == "false") is small
    assert found["spark.ui.enabled"] == "false"


def test_the_settings_own_configuration_wins():
    found = conf(Settings(spark_conf={"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "true"}))
    assert (found["spark.sql.shuffle.partitions"], found["spark.ui.enabled"]) == ("8", "true")


@each_case("key", [SUCCESS, SUCCESS.removeprefix("spark.hadoop.")])
def test_sparks_own_success_file_cannot_be_turned_on(key):
    with pytest.raises(InvalidDefinition, match="Spark's own _SUCCESS would take the manifest's place"):
        conf(Settings(spark_conf={key: "True"}))
    assert conf(Settings(spark_conf={key: "false"}))[key] == "false"


def test_over_connect_only_what_a_session_may_set_is_set():
    found = conf(Settings(spark_remote="sc://host:15002", spark_master="local[2]", s3_endpoint="http://s3"))
    assert found.pop("spark.remote") == "sc://host:15002"
    checksums = {key: found.pop(key) for key in sorted(found) if key.startswith("parquet.")}
    assert checksums == dict.fromkeys(CHECKSUMS, "true")
    assert {key.split(".")[1] for key in found} == {"sql"}


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
@pytest.mark.parametrize("remote", [None, "sc://host:15002"])
def test_checksums_of_pages_are_on_whatever_is_set(prefix, remote):
    off = {f"{prefix}{name}": "false" for name in CHECKSUMS}
    found = conf(Settings(spark_remote=remote, spark_conf=off))
    named = {key: value for key, value in found.items() if "checksum" in key}
    assert named == {f"{'' if remote else 'spark.hadoop.'}{name}": "true" for name in CHECKSUMS}


def test_each_session_warns_if_page_checksums_are_off(caplog):
    """Warn even if there can be no session, as nobody listens there."""
    settings = Settings(spark_remote="sc://127.0.0.1:1", spark_conf={CHECKSUMS[0]: " False"})
    with pytest.raises(SparkUnavailable):
        session(settings, {f"spark.hadoop.{CHECKSUMS[1]}": "0", "spark.sql.shuffle.partitions": "7"})
    (said,) = [text for record in caplog.records if "checksums" in (text := record.getMessage())]
    assert f"{CHECKSUMS[0]}= False and spark.hadoop.{CHECKSUMS[1]}=0, which has no effect" in said


def test_an_endpoint_is_reached_by_path_and_without_tls_if_it_has_none():
    found = conf(Settings(s3_endpoint="http://127.0.0.1:8333"))
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:8333"
    assert found["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert conf(Settings(s3_endpoint="https://s3.local"))["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "true"
    assert "spark.hadoop.fs.s3a.endpoint" not in conf(Settings())


def test_the_jars_of_a_folder_are_the_sessions(tmp_path):
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    (tmp_path / "notes.txt").touch()
    assert conf(Settings(spark_jars=str(tmp_path)))["spark.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar"
    with pytest.raises(InvalidDefinition, match="has no jar: expected a folder with hadoop-aws"):
        conf(Settings(spark_jars=str(tmp_path / "missing")))


def test_executors_run_this_python(monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark_resource(Settings())
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    spark_resource(Settings())
    assert os.environ["PYSPARK_PYTHON"] == "/their/python"


@each_case(
    ("env", "found"),
    [
        ({"JAVA_HOME": "/nowhere"}, "no java was found in JAVA_HOME=/nowhere"),
        ({"JAVA_HOME": "", "PATH": "/nowhere"}, "no java was found on the PATH"),
    ],
)
def test_a_session_without_java_names_the_found_version_and_the_remedy(env, found):
    done = subprocess.run([sys.executable, "-c", START], env={**os.environ, **env}, capture_output=True, text=True)
    assert done.stdout.startswith(f"Spark needs Java 17 or newer, but {found}. Install a Java 17 runtime (`apt install")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('openjdk version "11.0.21" 2023-10-17', "is Java 11. Install a Java 17 runtime"),
        ('java version "1.8.0_392"', "is Java 8. Install a Java 17 runtime"),
        ("no such thing", "does not print its version. Install"),
    ],
)
def test_a_java_that_is_too_old_is_refused_before_spark_starts(tmp_path, monkeypatch, says, found):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match=f"Spark needs Java 17 or newer, but {java} {found}"):
        java_of_spark()


def test_a_failed_java_check_is_repeated(tmp_path, monkeypatch):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="does not print its version"):
        java_of_spark()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    assert java_of_spark() == f"Java 21 ({java})"


def test_a_missing_connect_server_is_named_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        remote = f"sc://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(SparkUnavailable, match=f"nobody listens at FEED_ASSETS_SPARK_REMOTE={remote}: expected a"):
            session(Settings(spark_remote=f"{remote}/;token=secret"))


@each_case(
    "remote",
    [
        "sc://127.0.0.1;token=hunter2",
        "sc://127.0.0.1:1;token=hunter2",
        "sc://me:hunter2@127.0.0.1:1/",
        "sc://hunter2@h",
        "sc://h:65536",
        "sc://h:0",
        "sc://h/p;token=hunter2",
        "sc://h/?token=hunter2",
    ],
)
def test_an_invalid_connect_address_is_refused_without_showing_it(remote):
    with pytest.raises(InvalidSetting, match="FEED_ASSETS_SPARK_REMOTE: expected sc://host, sc://host:15002") as raised:
        Settings(spark_remote=remote)
    assert "hunter2" not in str(raised.value)


@each_case("remote", ["sc://h", "sc://h/", "sc://h:65535", "sc://[::1]:1/;token=a/b@c:d;x=y"])
def test_an_address_of_a_connect_server_may_have_parameters(remote):
    assert Settings(spark_remote=remote).spark_remote


@each_case("host", ["no-such-host.invalid", "255.255.255.255"])
def test_a_connect_server_that_cannot_be_reached_is_named_at_once(host):
    said = rf"FEED_ASSETS_SPARK_REMOTE=sc://{host}:15002 cannot be reached \(.+\): expected a Spark Connect server"
    with pytest.raises(SparkUnavailable, match=said):
        refuse_what_cannot_start(Settings(spark_remote=f"sc://{host}:15002/;token=secret"))


def test_a_service_that_a_function_asks_and_that_is_not_there_is_not_spark(spark):
    with pytest.raises(RuntimeError, match=r"StatusCode\.UNAVAILABLE"), guarded(spark):
        raise RuntimeError("<_InactiveRpcError: status = StatusCode.UNAVAILABLE>")


def test_errors_of_queries_are_not_logged_unmasked_even_if_dagster_turns_the_loggers_on(spark):
    session(Settings())
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})  # As Dagster does.
    for name in ("pyspark.sql.connect.logging", "SQLQueryContextLogger"):
        assert not logging.getLogger(name).isEnabledFor(logging.ERROR)


def test_a_process_has_one_session(spark):
    assert session(Settings()) is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_buckets_of_others_have_the_endpoint_and_the_profile_of_their_blackboard():
    others = {
        "theirs": {"url": "s3://theirs/lake", "profile": "them"},
        "near": {"url": "s3://near", "endpoint": "http://near:9000"},
        "folder": {"url": "file:///theirs"},
    }
    found = conf(Settings(s3_endpoint="http://ours:9000", blackboards=others))
    bucket = "spark.hadoop.fs.s3a.bucket"
    assert {key: value for key, value in found.items() if key.startswith(f"{bucket}.theirs.")} == {
        f"{bucket}.theirs.endpoint": "s3.amazonaws.com",
        f"{bucket}.theirs.path.style.access": "false",
        f"{bucket}.theirs.connection.ssl.enabled": "true",
        f"{bucket}.theirs.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
        f"{bucket}.theirs.auth.profile.name": "them",
    }
    assert found[f"{bucket}.near.endpoint"] == "http://near:9000"
    assert f"{bucket}.near.auth.profile.name" not in found
    assert not any(key.startswith(f"{bucket}.folder") for key in found)


def test_a_bucket_is_reached_in_one_way():
    two = {"a": {"url": "s3://lake/a", "profile": "a"}, "b": {"url": "s3://lake/b", "profile": "b"}}
    with pytest.raises(InvalidSetting, match=r"BLACKBOARDS\['b'\]: the bucket lake has another endpoint"):
        conf(Settings(blackboards=two))
    with pytest.raises(InvalidSetting, match=r"BLACKBOARDS\['a'\]: the bucket lake has another endpoint"):
        conf(Settings(blackboard="s3://lake/ours", blackboards={"a": two["a"]}))
    conf(Settings(blackboard="s3://lake/ours", blackboards={"a": {"url": "s3://lake/a"}}))
