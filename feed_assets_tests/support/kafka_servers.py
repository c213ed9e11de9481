"""A real Kafka broker and schema registry for the tests, each in a process group of its own."""

import base64
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import requests

from feed_assets_tests.support.servers import JVM, ROOT, fetched, free_ports, stop, wait_until


@dataclass(frozen=True)
class Broker:
    """Address of a broker."""

    servers: str


@dataclass(frozen=True)
class Registry:
    """Address of a schema registry."""

    url: str


PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "1000",
}
"""Settings of one node that plays all roles. A group waits for no member, because members change all the time."""


@contextmanager
def kafka_server(folder: Path) -> Iterator[Broker]:
    """Run a Kafka broker until the block ends."""
    port, controller = free_ports(2)
    with kafka_at(folder, port, controller) as broker:
        yield broker


@contextmanager
def kafka_at(folder: Path, port: int, controller: int) -> Iterator[Broker]:
    """Run a broker at a port, with the data that a former one has left in its folder."""
    config, jars = folder / "server.properties", f"{fetched('kafka')}/*"
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
    said = {
        **PROPERTIES,
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(folder / "logs"),
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in said.items()))
    if not (folder / "logs").exists():
        shutil.copytree(_formatted(config, jars), folder / "logs", dirs_exist_ok=True)
    with _running([*_java("-Xmx512m", jars), "kafka.Kafka", str(config)], folder / "kafka.log") as process:
        wait_until(lambda: _listens(port, process), f"Kafka to answer; see {folder / 'kafka.log'}")
        yield Broker(f"127.0.0.1:{port}")


@contextmanager
def registry_server(folder: Path) -> Iterator[Registry]:
    """Run a schema registry until the block ends. It keeps its schemas in memory."""
    (port,) = free_ports(1)
    with registry_at(folder, port) as registry:
        yield registry


@contextmanager
def registry_at(folder: Path, port: int) -> Iterator[Registry]:
    """Run a registry at a port."""
    (jar,) = fetched("apicurio").glob("*-runner.jar")
    command = ["java", "-Xmx384m", *JVM.split(), "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"]
    registry = Registry(f"http://127.0.0.1:{port}/apis/ccompat/v7")
    with _running([*command, "-jar", str(jar)], folder / "apicurio.log") as process:
        wait_until(lambda: _answers(registry, process), f"Apicurio to answer; see {folder / 'apicurio.log'}")
        yield registry


def _formatted(config: Path, jars: str) -> Path:
    """Return a formatted log folder. It is kept, because formatting takes a JVM and the result suits every broker."""
    kept = ROOT / ".cache" / "servers" / f"formatted-{sha256(repr(PROPERTIES).encode()).hexdigest()[:16]}"
    if not kept.exists():
        form = ["kafka.tools.StorageTool", "format", "-t", base64.urlsafe_b64encode(uuid4().bytes)[:22].decode()]
        command = [*_java("-Xmx128m", jars), *form, "-c", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        partial = shutil.copytree(config.with_name("logs"), kept.with_name(f"{kept.name}.{os.getpid()}"))
        with suppress(OSError):  # Another session was faster.
            partial.rename(kept)
    return kept


def _java(memory: str, jars: str) -> list[str]:
    return ["java", memory, *JVM.split(), "-cp", jars]


@contextmanager
def _running(command: Sequence[str], log: Path, env: Mapping[str, str] = os.environ) -> Iterator[subprocess.Popen]:
    with log.open("ab") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        process = subprocess.Popen(command, cwd=log.parent, env=env, start_new_session=True, **streams)
    try:
        yield process
    finally:
        stop(process)


def _listens(port: int, process: subprocess.Popen) -> bool:
    assert process.poll() is None, "the broker has ended"
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(registry: Registry, process: subprocess.Popen) -> bool:
    assert process.poll() is None, "the registry has ended"
    try:
        return requests.get(f"{registry.url}/subjects", timeout=5).ok
    except (requests.ConnectionError, requests.Timeout):  # A busy machine accepts the connection, but answers later.
        return False
