"""An installation on this machine: the processes of deploy/processes.toml, on free ports of loopback.

PostgreSQL, Kafka and the registry are those of the test session. Everything else is started by the layout's own
command, once what it needs is ready by the layout's own check.
"""

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from feed_assets.heartbeats import FOLDER, FRESH_SECONDS
from feed_assets_tests.support.deployment_files import deployment
from feed_assets_tests.support.kafka_servers import Broker, Registry
from feed_assets_tests.support.kafka_topics import QUICK
from feed_assets_tests.support.servers import JVM, PostgreSQL, S3Server, free_ports, stop, wait_until, weed

STANDS_FOR = {"postgres": "the PostgreSQL of the session"}
PATIENCE = 180
"""Seconds until a service that is not ready counts as failed: some seconds on an idle machine."""


@dataclass(frozen=True)
class Neighbours:
    """The servers of the test session that an installation uses, and the jars for S3."""

    postgresql: PostgreSQL
    broker: Broker
    registry: Registry
    jars: Path


@dataclass
class Installation:
    """The processes by service, their environment, and the folder with their logs."""

    folder: Path
    layout: Any
    places: Any
    environment: dict[str, str]
    token: str
    warehouse: str
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def port(self, name: str) -> int:
        """Return the port of a service."""
        return self.places.ports["port", name]

    def why_not_ready(self, name: str) -> str:
        """Return the output of a service's own readiness check if it fails, and '' if the service is ready."""
        if name in STANDS_FOR:
            return ""
        words = self.layout.filled(self.layout.services[name].ready, self.places)
        if words[0] == "wget":  # the check of an image that has no Python, by its URL
            port = str(self.layout.services[name].port)
            words = ["feed-assets", "ready", words[-1].replace(port, str(self.port(name)))]
        command = [*_program(words[0]), *words[1:]]
        done = subprocess.run(command, cwd=self.folder, env=self.env_of(name), capture_output=True, check=False)
        return "" if done.returncode == 0 else done.stderr.decode() or f"exit code {done.returncode}"

    def start(self, *names: str) -> None:
        """Start services, each once those of them that it needs are ready. Return when all are ready."""
        left = [name for name in names if name not in STANDS_FOR]
        while left:
            wave = [name for name in left if not {*self.layout.services[name].needs} & {*left}]
            for name in wave:
                self._begin(name)
            for name in wave:
                wait_until(lambda name=name: self._is_ready(name), f"{name}; see {self.folder}/{name}.log", PATIENCE, 1)
            left = [name for name in left if name not in wave]

    def _begin(self, name: str) -> None:
        words = self.layout.filled(self.layout.services[name].command, self.places)
        more = [] if name != "seaweedfs" else _apart()
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*_program(words[0]), *words[1:], *more],
                cwd=self.folder,
                env=self.env_of(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _is_ready(self, name: str) -> bool:
        if (code := self.processes[name].poll()) is not None:
            raise RuntimeError(f"{name} ended with {code}: {self.log(name)[-2000:]}")
        return not self.why_not_ready(name)

    def kill(self, *names: str) -> None:
        """Kill services, and make what they wrote as old as if a minute had passed since."""
        for name in names:
            stop(self.processes[name])
        for path in (self.folder / "home" / FOLDER).glob("*.json"):
            held = json.loads(path.read_text())
            if {held["service"], held["service"].partition("-")[0]} & {*names}:
                path.write_text(json.dumps({**held, "at": held["at"] - FRESH_SECONDS}))
        if "loader" in names:
            with self.connection() as connection:
                connection.execute("UPDATE feed_assets.lease SET seen_at = seen_at - INTERVAL '1 minute'")

    def connection(self) -> "psycopg.Connection[Any]":
        """Return a connection to the warehouse."""
        return psycopg.connect(self.warehouse.replace("+psycopg:", ":"))

    def log(self, name: str) -> str:
        """Return what a service has written."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def env_of(self, name: str) -> dict[str, str]:
        """Return the environment of a service: its secrets belong to it alone, and it lacks what is withheld."""
        service = self.layout.services[name]
        own = {"FEED_ASSETS_UI_TOKEN": self.token} if name == "web" else {}
        held = {**self.environment, **self.layout.environment(service, self.places), **own}
        return {key: value for key, value in held.items() if key not in self.layout.withheld(service)}


@contextmanager
def installation(folder: Path, module: str, near: Neighbours) -> Iterator[Installation]:
    """Run all services until the block ends."""
    script = deployment()
    layout = replace(script.layout(), module=module)
    wanted = [(kind, name) for name, each in layout.services.items() for kind in ("port", "status") if vars(each)[kind]]
    ports = dict(zip(wanted, free_ports(len(wanted)), strict=True))
    hosts = dict.fromkeys(layout.services, script.LOOPBACK)
    places = script.Places(script.LOOPBACK, hosts, str(folder / "data"), ports)
    s3 = S3Server(f"http://127.0.0.1:{ports['port', 'seaweedfs']}", "admin", secrets.token_hex())
    for name in ("data", "home"):
        (folder / name).mkdir(0o700)
    secret = secrets.token_hex()
    conf = (script.DEPLOY / "spark.conf.example").read_text().replace(layout.home, str(folder / "home"))
    (folder / "spark.conf").write_text(re.sub(r"(?m)^spark.authenticate.secret$", rf"\g<0> {secret}", conf))
    (folder / "workspace.yaml").write_text(script.workspace(layout, script.LOOPBACK, ports["port", "code"]))
    (folder / "home" / "dagster.yaml").write_text(script.dagster_yaml())
    warehouse = near.postgresql.database()
    values = {
        **_of_spark(f"spark://127.0.0.1:{ports['port', 'spark-master']}", secret),
        **_of_servers(s3, near, warehouse),
        "FEED_ASSETS_LOGS": "json",
        "FEED_ASSETS_MASK_KEY": "",
        "FEED_ASSETS_TARGETS": "",
    }
    environment = {**_of_this_machine(folder, s3), **_filled(script.DEPLOY / "feed-assets.env.example", values)}
    running = Installation(folder, layout, places, environment, secrets.token_urlsafe(32), warehouse)
    try:
        running.start(*layout.services)
        yield running
    finally:
        for process in reversed(running.processes.values()):
            stop(process)


def _filled(example: Path, values: dict[str, str]) -> dict[str, str]:
    """Return the values of the settings that an example names. Assert that it names all of them, and no others."""
    names = {line.partition("=")[0] for line in example.read_text().splitlines() if line and line[0] != "#"}
    assert names == {*values}, f"{example} and this test name other settings: {names ^ {*values}}"
    return values


def _of_spark(master: str, secret: str) -> dict[str, str]:
    conf = {"spark.authenticate": "true", "spark.authenticate.secret": secret, "spark.executor.memory": "512m"}
    conf |= {"spark.driver.memory": "512m", "spark.ui.enabled": "false", "spark.executor.extraJavaOptions": JVM}
    return {"FEED_ASSETS_SPARK_MASTER": master, "FEED_ASSETS_SPARK_CONF": json.dumps(conf)}


def _of_servers(s3: S3Server, near: Neighbours, warehouse: str) -> dict[str, str]:
    keys = ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED")
    kafka = {"bootstrap.servers": near.broker.servers, "group.id": f"group-{secrets.token_hex()}", **QUICK}
    return {
        **{name: s3.env[name] for name in keys},
        "DAGSTER_POSTGRES_URL": near.postgresql.database().replace("+psycopg:", "+psycopg2:"),
        "FEED_ASSETS_LEDGER": near.postgresql.database(),
        "FEED_ASSETS_BLACKBOARD": "s3://lake",
        "FEED_ASSETS_S3_ENDPOINT": s3.endpoint,
        "FEED_ASSETS_SPARK_JARS": str(near.jars),
        "FEED_ASSETS_KAFKA": json.dumps(kafka),
        "FEED_ASSETS_KAFKA_REGISTRY": near.registry.url,
        "FEED_ASSETS_WAREHOUSES": json.dumps({"main": {"url": warehouse, "seconds": 0.5}}),
    }


def _of_this_machine(folder: Path, s3: S3Server) -> dict[str, str]:
    """Return what a unit or the image sets, and what keeps the processes small and apart from those of the session."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    return {
        **kept,
        **{name: s3.env[name] for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DAGSTER_HOME": str(folder / "home"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JVM,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore",
    }


def _apart() -> list[str]:
    """Return options that keep this SeaweedFS apart from that of the session."""
    names = ("master", "volume", "filer")
    ports = [f"-{name}.port={port}" for name, port in zip(names, free_ports(len(names)), strict=True)]
    return [*ports, "-ip=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0"]


def _program(name: str) -> list[str]:
    """Return the command that starts a program of the layout here."""
    if name == "weed":
        return [str(weed())]
    path = Path(sys.executable).parent / name
    return ["bash", str(path)] if name == "spark-class" else [str(path)]
