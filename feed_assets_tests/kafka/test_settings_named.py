"""Settings that reach no broker: the error names them, and the found values."""

import pytest

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.kafka import exclusive_writer, topic_reader
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.exclusive_writer import Appender
from feed_assets.runs.chunking import chunking_of
from feed_assets.settings import Settings

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "pw"}
CASES = {
    "a host that is none": (
        {"bootstrap.servers": "no-such-host.invalid:9092"},
        r"Failed to resolve 'no-such-host.invalid:9092': .*\. Check bootstrap.servers, and the listeners",
    ),
    "nobody listens": (
        {"bootstrap.servers": "127.0.0.1:1"},
        r"127.0.0.1:1 failed: Connection refused .*\. Check bootstrap.servers and security.protocol of",
    ),
    "a broker without SASL": (
        SASL,
        "SASL PLAIN mechanism handshake failed: .* Check security.protocol, sasl.mechanism, sasl.username and",
    ),
    "a broker without SSL": (
        {"security.protocol": "SSL"},
        "SSL connection closed by peer.* Check bootstrap.servers and security.protocol of",
    ),
}


def clients(broker, name):
    return Clients({"bootstrap.servers": broker.servers, **CASES[name][0]})


@pytest.mark.parametrize("kind", ["admin", "peeker"])
@pytest.mark.parametrize("name", CASES)
def test_a_read_without_an_answer_names_the_setting_to_check(name, kind, broker):
    client = getattr(clients(broker, name), kind)()
    with pytest.raises(KafkaUnavailable, match=f"(?s)^cannot read clicks: .*{CASES[name][1]}"):
        topic_reader.partitions(client, "clicks", 1)


def test_a_write_without_an_answer_names_the_setting_to_check(broker, monkeypatch):
    monkeypatch.setattr(exclusive_writer, "SECONDS", 1)
    with pytest.raises(KafkaUnavailable, match=f"^cannot write to clicks: .*{CASES['a host that is none'][1]}"):
        Appender(clients(broker, "a host that is none"), "clicks", "me")


def test_background_errors_of_a_service_name_the_setting_to_check(capsys, tmp_path):
    conf = {"bootstrap.servers": "127.0.0.1:1"}
    config = Settings(blackboard=tmp_path.as_uri(), kafka=conf, kafka_registry="http://127.0.0.1:1")
    chunking = chunking_of(config)
    chunking.clients.admin().poll(1)
    assert "Check bootstrap.servers and security.protocol of FEED_ASSETS_KAFKA." in capsys.readouterr().err
