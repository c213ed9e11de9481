"""Settings and URLs that refer to secrets of AWS, on moto over HTTP: values, errors, time, and what is imported."""

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from feed_assets import secret_stores
from feed_assets.cli import main
from feed_assets.core.errors import InvalidDefinition, InvalidSetting, SecretUnavailable, SourceNotGiven
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.secrets import masked
from feed_assets.core.slices import Slice
from feed_assets.settings import Settings, expand
from feed_assets.testing.given_slices import rows_of_the_test
from feed_assets_tests.support.secret_servers import SecretServer, environment, secret_server
from feed_assets_tests.support.slow_servers import dripping

LEDGER = "postgresql+psycopg://u:Pl4nted@h/d"
SECRET_SETTINGS = {
    "LEDGER": LEDGER,
    "BLACKBOARDS": '{"them": {"url": "s3://b"}}',
    "DATA_CENTERS": '{"b": {"url": "s3://b", "datasets": ["*"]}}',
    "SPARK_REMOTE": "sc://h:1/;token=Pl4nted",
    "SPARK_CONF": '{"spark.key": "Pl4nted"}',
    "SPARK_PROFILES": '{"big": {"spark.key": "Pl4nted"}}',
    "ALERT_WEBHOOK": "https://h/Pl4nted",
    "ALERT_SECRET": "Pl4nted",
    "ALERT_SMTP": "smtp://u:Pl4nted@h",
    "ALERT_APPRISE": "slack://Pl4nted",
    "EVENTS_TO": "postgresql://u:Pl4nted@h/d#events,blackboard:events",
    "KAFKA": '{"sasl.password": "Pl4nted"}',
    "KAFKA_REGISTRY": "https://u:Pl4nted@h",
    "WAREHOUSES": '{"main": {"url": "postgresql+psycopg://u:Pl4nted@h/d"}}',
    "TARGETS": '{"etl": {"kind": "connect", "remote": "sc://h:1/;token=Pl4nted", "cores": 1, "memory": "1g"}}',
    "UI_TOKEN": "Pl4nted-" * 5,
    "MASK_KEY": "Pl4nted-" * 5,
}


@pytest.fixture
def secrets(home, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretServer]:
    secret_stores._read.cache_clear()
    for name in ("ANSWER_SECONDS", "REQUEST_SECONDS"):
        monkeypatch.setattr(secret_stores, name, 60.0)  # A busy machine is no error of AWS.
    with secret_server() as server:
        use(monkeypatch, server.env)
        yield server
    secret_stores._read.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def refusal(**values: str) -> str:
    with pytest.raises((SecretUnavailable, InvalidSetting)) as refused:
        Settings(**values)
    return str(refused.value)


def test_every_secret_setting_may_be_a_secret_or_a_parameter_of_aws(secrets: SecretServer, monkeypatch) -> None:
    assert {name.lower() for name in SECRET_SETTINGS} == {
        name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation)
    }
    for name, value in SECRET_SETTINGS.items():
        monkeypatch.setenv(f"FEED_ASSETS_{name}", value)
    plain = Settings()
    for name, value in SECRET_SETTINGS.items():
        secrets.secrets.create_secret(Name=f"prod/{name}", SecretString=value + "\n")  # as an editor saves it
        secrets.parameters.put_parameter(Name=f"/prod/{name}", Value=value, Type="SecureString")
    for form in ("aws-secretsmanager:prod/", "aws-ssm:/prod/"):
        for name in SECRET_SETTINGS:
            monkeypatch.setenv(f"FEED_ASSETS_{name}", f"{form}{name}")
        assert Settings() == plain
        assert "Pl4nted" not in f"{Settings()!r} {Settings().model_dump_json()}"


def test_a_process_reads_a_secret_once_and_keeps_no_error(secrets: SecretServer, monkeypatch) -> None:
    monkeypatch.setenv("FEED_ASSETS_LEDGER", "aws-secretsmanager:ledger")
    for _ in range(2):
        assert "ResourceNotFoundException" in refusal()
    secrets.secrets.create_secret(Name="ledger", SecretString=LEDGER)
    asked = len(secrets.requests)
    assert [Settings().ledger.get_secret_value() for _ in range(3)] == [LEDGER] * 3
    secrets.secrets.put_secret_value(SecretId="ledger", SecretString="sqlite:///rotated.db")
    assert Settings().ledger.get_secret_value() == LEDGER, "a new secret is read by the next process"
    assert secrets.requests[asked:] == ["GetSecretValue ledger"]
    secret_stores._read.cache_clear()
    monkeypatch.setattr(secret_stores, "REQUEST_SECONDS", 1.0)
    secrets.silent = 1
    assert "rotated" in Settings().ledger.get_secret_value(), "a request that gets no answer is repeated"


def test_a_secret_that_is_missing_wrong_or_binary_is_an_error_of_its_variable(secrets: SecretServer) -> None:
    secrets.secrets.create_secret(Name="binary", SecretBinary=b"Pl4nted")
    secrets.secrets.create_secret(Name="mysql", SecretString="mysql://u:Pl4nted@h/d")
    said = refusal(ledger="aws-secretsmanager:none")
    assert said.startswith("FEED_ASSETS_LEDGER is 'aws-secretsmanager:none', and AWS does not give it: ResourceN")
    assert "secretsmanager:GetSecretValue" in said
    said = refusal(alert_secret="aws-ssm:/none")
    assert said.startswith("FEED_ASSETS_ALERT_SECRET is 'aws-ssm:/none', and AWS does not give it: ParameterNotF")
    assert "ssm:GetParameter" in said
    assert "it has bytes instead of a text" in refusal(ledger="aws-secretsmanager:binary")
    said = refusal(ledger="aws-secretsmanager:mysql")
    assert said.startswith("FEED_ASSETS_LEDGER: expected sqlite:///file.db or")
    assert "Pl4nted" not in said


def test_only_secret_settings_refer_to_secrets(secrets: SecretServer) -> None:
    assert "BLACKBOARD is 'aws-secretsmanager:x': expected file:///folder" in refusal(blackboard="aws-secretsmanager:x")
    assert masked(said := refusal(ledger="aws-secretsmanager:x")) == said, "logs show the whole reference"
    secrets.requests.clear()
    assert Settings(spark_jars="aws-secretsmanager:x").spark_jars == "aws-secretsmanager:x"
    assert secrets.requests == []


def test_a_variable_of_a_definition_may_refer_to_a_secret(secrets: SecretServer, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_URL", "aws-ssm:/shop")
    with pytest.raises(SecretUnavailable, match=r"^SHOP_URL is 'aws-ssm:/shop', and AWS does not give it"):
        expand("env:SHOP_URL")
    secrets.parameters.put_parameter(Name="/shop", Value=LEDGER, Type="SecureString")
    assert expand("env:SHOP_URL") == LEDGER
    secrets.parameters.put_parameter(Name="/hash", Value="postgresql://u:Pl4#nted@h/d", Type="String")
    monkeypatch.setenv("SHOP_URL", "aws-ssm:/hash")
    with pytest.raises(InvalidDefinition, match="raw '#'") as refused:
        expand("env:SHOP_URL")
    assert "nted" not in str(refused.value)


def test_a_harness_reads_no_secret_that_the_test_does_not_give(secrets: SecretServer, monkeypatch) -> None:
    monkeypatch.setenv("SHOP_URL", "aws-secretsmanager:shop")
    monkeypatch.setattr("feed_assets.testing.given_slices.is_of_the_test", lambda name: name != "SHOP_URL")
    piece = Slice(Partition(Feed.parse("shop/orders/v1.0"), ""), None, "1", frozenset())
    with pytest.raises(SourceNotGiven, match="at env:SHOP_URL"):
        rows_of_the_test(piece, None, "env:SHOP_URL", "orders", by="id")
    assert secrets.requests == []


def test_a_silent_or_missing_aws_is_given_up_within_seconds(secrets: SecretServer, monkeypatch) -> None:
    monkeypatch.setenv("FEED_ASSETS_LEDGER", "aws-secretsmanager:ledger")
    monkeypatch.setenv("FEED_ASSETS_ALERT_SECRET", "aws-secretsmanager:alerts")
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n") as slow:
        use(monkeypatch, environment(f"http://127.0.0.1:{slow.port}"))
        late = secret_stores.ANSWER_SECONDS + 1  # The time is over as soon as the server is asked.
        monkeypatch.setattr(secret_stores, "time", SimpleNamespace(monotonic=lambda: late * slow.callers))
        said = refusal()
        assert said.startswith("FEED_ASSETS_LEDGER is 'aws-secretsmanager:ledger', and AWS does not give it: TimeoutE")
        assert slow.callers == 1, "after one silent answer no other secret is asked for"
    monkeypatch.setattr(secret_stores, "time", SimpleNamespace(monotonic=lambda: 0))
    use(monkeypatch, environment("http://127.0.0.1:9"))
    assert "Could not connect" in refusal()
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    assert "NoRegionError" in refusal()


def test_a_command_says_in_one_line_which_variable_it_is(secrets: SecretServer, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FEED_ASSETS_LEDGER", "aws-secretsmanager:none")
    monkeypatch.setattr("sys.argv", ["feed-assets", "events", "due"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("feed-assets: FEED_ASSETS_LEDGER is 'aws-secretsmanager:none', and AWS does not give it")


def test_boto3_is_imported_only_by_a_process_with_a_reference(secrets: SecretServer) -> None:
    program = "import sys; from feed_assets.settings import settings; settings(); print('boto3' in sys.modules)"
    secrets.secrets.create_secret(Name="key", SecretString="Pl4nted")
    for value, imported in (("plain", "False"), ("aws-secretsmanager:key", "True")):
        command = ["env", f"FEED_ASSETS_ALERT_SECRET={value}", sys.executable, "-W", "ignore", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == imported
    assert secrets.requests == ["GetSecretValue key"]
