"""Settings typed into an environment: errors name the variable, and show no secret."""

import json

import pytest

from feed_assets.cli import main
from feed_assets.core.errors import InvalidSetting
from feed_assets.home import say_who_enters
from feed_assets.settings import Settings, settings
from feed_assets_tests.support.each_case import each_case

pytestmark = pytest.mark.usefixtures("home")


_EMR = {
    "kind": "emr-serverless",
    "application_id": "00f1",
    "execution_role_arn": "arn:aws:iam::123456789012:role/job",
    "bucket": "messages",
    "entry_point": "s3://code/job.py",
    "module": "shop",
}


def _local(name="a", **fields):
    return json.dumps({name: {"kind": "local", "cores": 2, "memory": "2g", **fields}})


def _spark(**fields):
    return json.dumps({"a": {"kind": "standalone", "master": "spark://h:7077", "url": "http://h:8080", **fields}})


WRONG = {
    ("BLACKBOARD", "s3:/bucket"): "BLACKBOARD is 's3:/bucket': expected file:///folder, s3://bucket, az://account/",
    ("BLACKBOARD", "/lake"): "BLACKBOARD is '/lake': expected file:///folder, ",
    ("BLACKBOARD", "file://lake"): "BLACKBOARD is 'file://lake': expected file:///folder, ",
    (
        "LEDGER",
        "postgres://me:secret@h/d",
    ): "LEDGER: expected sqlite:///file.db or",
    ("LEDGER", "postgresql:/me:secret@h/d"): "LEDGER: expected sqlite:///file.db or",
    ("LEDGER", "postgresql://h/d?password=a#secret"): "LEDGER: expected sqlite:///file.db or",
    ("LEDGER", "ledger.db"): "LEDGER: expected sqlite:///file.db or",
    ("BLACKBOARD", "s3://key:secret@bucket"): "BLACKBOARD: expected file:///folder, ",
    ("BLACKBOARD", "s3:/key:secret@bucket"): "BLACKBOARD: expected file:///folder, ",
    ("BLACKBOARD", "az://a/c?sig=secret"): "BLACKBOARD is 'az://a/c?sig=***': expected file:///folder, ",
    ("S3_ENDPOINT", "https://key:secret@host"): "S3_ENDPOINT: expected https://host",
    ("S3_ENDPOINT", "host:9000"): "S3_ENDPOINT is 'host:9000': expected https://host or http://host:port",
    ("SPARK_MASTER", "host:7077"): "SPARK_MASTER is 'host:7077': expected local[2], spark://host:7077, ",
    ("SPARK_REMOTE", "h:15002/;token=secret"): "SPARK_REMOTE: expected sc://host, sc://host:15002 or",
    ("SPARK_CONF", "[1"): "SPARK_CONF: expected a JSON object: EOF while parsing a list",
    ("SPARK_CONF", '{"spark.key": ["secret"]}'): "SPARK_CONF['spark.key']: expected a valid string",
    ("SPARK_PROFILES", '{"big": "secret"}'): "SPARK_PROFILES['big']: expected a JSON object",
    (
        "BLACKBOARDS",
        '{"them": {"url": "s3://key:secret@bucket"}}',
    ): "BLACKBOARDS['them']['url']: expected file:///folder, s3://bucket",
    (
        "BLACKBOARDS",
        '{"them": {"url": "s3://b", "key": "secret"}}',
    ): "BLACKBOARDS['them']['key']: there is no such key",
    ("BLACKBOARDS", '{"a b": {"url": "s3://b"}}'): "BLACKBOARDS['a b']: expected letters, digits, '_' and '-'",
    (
        "BLACKBOARDS",
        '{"them": {"url": "file:///lake", "queue": "https://sqs.eu-west-1.amazonaws.com/1/q"}}',
    ): "BLACKBOARDS['them']: expected a blackboard on s3://, whose bucket notifies the queue, found file:///lake",
    ("BLACKBOARD_QUEUE", "manifests"): "BLACKBOARD_QUEUE is 'manifests': expected the URL of a queue of SQS, such as",
    ("BLACKBOARD_QUEUE", "https://key:secret@sqs/1/q"): "BLACKBOARD_QUEUE: expected the URL of a queue of SQS, such as",
    (
        "BLACKBOARD_QUEUE",
        "https://sqs.eu-west-1.amazonaws.com/1/q",
    ): "BLACKBOARD_QUEUE is 'https://sqs.eu-west-1.amazonaws.com/1/q': expected a blackboard on s3://, whose bucket",
    ("KAFKA", '{"sasl.password": ["secret"]}'): "KAFKA['sasl.password']: expected a valid string",
    ("KAFKA_REGISTRY", "secret@registry:8081"): "KAFKA_REGISTRY: expected https://user:password@host, or http://host",
    ("MAX_REQUESTS", "abc"): "MAX_REQUESTS is 'abc': expected a whole number",
    ("TICK_SECONDS", "0"): "TICK_SECONDS is '0': expected greater than 0",
    ("MAX_ATTEMPTS", "-1"): "MAX_ATTEMPTS is '-1': expected greater than or equal to 1",
    ("LOG_DAYS", "1.5"): "LOG_DAYS is '1.5': expected a whole number",
    ("ALERT_WEBHOOK", "secret"): "ALERT_WEBHOOK: expected https://host/path",
    ("ALERT_SMTP", "host:secret"): "ALERT_SMTP: expected smtp://user:password@host:587 or",
    ("TARGETS", '{"a": {"cores": 2, "memory": "2g"}}'): "TARGETS['a']: expected the key 'kind'",
    (
        "TARGETS",
        f'{{"a": 1, {_local()[1:]}',
    ): "TARGETS: expected a JSON object: the key 'a' is there more than once",
    ("TARGETS", _local(conf={"spark.driver.memory": "1g"})): "TARGETS['a']['conf']: expected no spark.driver.memory",
    ("TARGETS", '{"a": {"kind": "mesos"}}'): "TARGETS['a']: expected the 'kind' to be one of 'local', 'standalone', ",
    ("TARGETS", _local(memory="100m")): "TARGETS['a']['memory']: expected memory from 512m, which is that of one core",
    ("TARGETS", _local(memory="9999999999t")): "TARGETS['a']['memory']: expected memory from 512m, which is that of",
    ("TARGETS", _local(memory="many")): "TARGETS['a']['memory']: expected memory as Spark writes it, such as 512m",
    ("TARGETS", _local(cores=10**30)): "TARGETS['a']['cores']: expected ",
    ("TARGETS", _local(cores=1_000_001)): "TARGETS['a']['cores']: expected less than or equal to 1000000",
    ("TARGETS", _local(cores=0)): "TARGETS['a']['cores']: expected greater than or equal to 1",
    ("TARGETS", _local(labels="gpu")): "TARGETS['a']['labels']: expected a JSON list of labels, such as",
    ("TARGETS", _local(key="secret")): "TARGETS['a']['key']: there is no such key",
    (
        "TARGETS",
        _local(conf={"spark.executor.memory": "secret"}),
    ): "TARGETS['a']['conf']: expected no spark.executor.mem",
    (
        "TARGETS",
        json.dumps({"a": {**_EMR, "conf": {"spark.driver.memory": "64g"}}}),
    ): "TARGETS['a']['conf']: expected no spark.driver.memory",
    ("TARGETS", _local(name="a b")): "TARGETS['a b']: expected letters, digits, '_' and '-'",
    ("TARGETS", _spark(master="spark://h")): "TARGETS['a']['master']: expected spark://host:7077, with one host",
    ("TARGETS", _spark(master="spark://h:7077,i:7077")): "TARGETS['a']['master']: expected spark://host:7077, with one",
    ("TARGETS", _spark(master="h:7077")): "TARGETS['a']['master']: expected spark://host:7077, with one host",
    ("TARGETS", _spark(url="http://u:secret@h")): "TARGETS['a']['url']: expected http://host:8080 or https://host",
    (
        "TARGETS",
        json.dumps({"a": {"kind": "connect", "remote": "h;token=secret", "cores": 1, "memory": "1g"}}),
    ): "TARGETS['a']['remote']: expected sc://host, sc://host:15002 or sc://host:15002/;token=…",
    (
        "TARGETS",
        json.dumps({"a": {"kind": "yarn", "url": "http://h:8088"}, "b": {"kind": "yarn", "url": "http://i:8088"}}),
    ): "TARGETS: a and b are two clusters of YARN, but Spark uses the one of HADOOP_CONF_DIR for both",
    (
        "WAREHOUSES",
        '{"main": {"url": "duckdb:///data/Feed_%41ssets.v1.db"}}',
    ): "WAREHOUSES['main']['url']: found the file Feed_Assets.v1.db, which DuckDB confuses with a schema",
    ("WAREHOUSES", '{"main": {"url": "duckdb:///information_schema"}}'): "WAREHOUSES['main']['url']: found the file",
    ("EVENTS_TO", "blackboard:events,nonsense"): "EVENTS_TO[1]: expected blackboard:PREFIX, ",
    ("EVENTS_TO", "postgresql://u:se,secret@h/d#events"): "EVENTS_TO[0]: expected blackboard:PREFIX, ",
}


@each_case(("name", "value"), WRONG)
def test_an_invalid_variable_is_refused_by_name(name, value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"FEED_ASSETS_{name}", value)
        with pytest.raises(InvalidSetting) as refused:
            Settings()
    assert str(refused.value).startswith(f"FEED_ASSETS_{WRONG[name, value]}")
    assert "secret" not in str(refused.value)


def test_all_invalid_variables_are_reported_at_once(monkeypatch):
    for name in ("MAX_REQUESTS", "LOG_DAYS"):
        monkeypatch.setenv(f"FEED_ASSETS_{name}", "x")
    with pytest.raises(InvalidSetting, match=r"MAX_REQUESTS is .*; FEED_ASSETS_LOG_DAYS is "):
        Settings()


def test_a_command_reports_an_invalid_setting_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("FEED_ASSETS_MAX_REQUESTS", "abc")
    monkeypatch.setattr("sys.argv", ["feed-assets", "feed", "ls"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("feed-assets: FEED_ASSETS_MAX_REQUESTS is 'abc': expected a whole number")


@pytest.mark.parametrize("url", ["file:///lake", "s3://bucket/lake", "az://account/c", "gs://bucket", "memory://"])
def test_every_kind_of_blackboard_url_is_accepted(url):
    assert Settings(blackboard=url).blackboard == url


def test_an_empty_variable_means_the_default(monkeypatch):
    for name in ("LEDGER", "SPARK_CONF", "ALERT_WEBHOOK", "MAX_REQUESTS"):
        monkeypatch.setenv(f"FEED_ASSETS_{name}", "")
    assert Settings() == Settings(ledger=Settings().ledger)
    assert (Settings().max_requests, Settings().alert_webhook) == (100, None)
    assert Settings().spark_conf.get_secret_value() == {}


def test_printed_settings_hide_all_passwords(monkeypatch):
    values = {
        "LEDGER": "postgresql://u:secret@h/d",
        "SPARK_REMOTE": "sc://h:1/;token=secret",
        "SPARK_CONF": '{"spark.key": "secret"}',
        "SPARK_PROFILES": '{"big": {"spark.key": "secret"}}',
        "BLACKBOARDS": '{"them": {"url": "s3://b", "profile": "secret"}}',
        "WAREHOUSES": '{"main": {"url": "postgresql://u:secret@h/d"}}',
        "TARGETS": _local(conf={"spark.key": "secret"}),
        "ALERT_WEBHOOK": "https://h/secret",
        "ALERT_SECRET": "secret",
        "ALERT_SMTP": "smtp://u:secret@h",
        "EVENTS_TO": "postgresql://u:secret@h/d#events",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"FEED_ASSETS_{name}", value)
    printed = f"{Settings()!r} {Settings()} {Settings().model_dump()} {Settings().model_dump_json()}"
    assert "ledger" in printed
    assert "secret" not in printed.replace("alert_secret", "")


@pytest.mark.parametrize(
    ("boards", "said"),
    [
        ('{"north": "file:///x"}', "['north']: expected a JSON object with its keys, such as url"),
        ('["x"]', ": expected a JSON object"),
        (
            '{"north": {"uri": "file:///x"}}',
            "['north']['url']: it is missing; FEED_ASSETS_BLACKBOARDS['north']['uri']: there is no such key",
        ),
        ('{"n/o": {"url": "file:///x"}}', "['n/o']: expected letters, digits, '_' and '-'"),
    ],
)
def test_a_wrong_foreign_blackboard_setting_has_a_plain_error(monkeypatch, boards, said):
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", boards)
    with pytest.raises(InvalidSetting) as raised:
        Settings()
    assert str(raised.value) == f"FEED_ASSETS_BLACKBOARDS{said}"


@pytest.mark.parametrize(
    ("name", "said"),
    [("FEED_ASSETS_HOME", "is DAGSTER_HOME meant?"), ("FEED_ASSETS_XYZ", "docs/reference/settings.md has all of them")],
)
def test_an_unknown_variable_is_reported_without_a_suggestion(monkeypatch, capsys, name, said):
    monkeypatch.setenv(name, "x")
    settings()
    assert capsys.readouterr().err == f"feed-assets: {name} is not a setting and has no effect: {said}\n"


def test_a_warning_about_an_open_home_is_printed_once(tmp_path, capsys):
    tmp_path.chmod(0o755)
    for _ in range(2):
        say_who_enters(tmp_path)
    assert capsys.readouterr().err.count("other users can enter") == 1


def test_an_unknown_variable_is_reported_once_with_the_nearest_name(monkeypatch, capsys):
    monkeypatch.setenv("FEED_ASSETS_LEGDER", "sqlite:///x.db")
    for _ in range(2):
        settings()
    said = "FEED_ASSETS_LEGDER is not a setting and has no effect: is FEED_ASSETS_LEDGER meant?"
    assert capsys.readouterr().err == f"feed-assets: {said}\n"
