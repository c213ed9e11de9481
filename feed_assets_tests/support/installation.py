"""An installation on this machine: the processes of deploy/processes.toml, on free ports of loopback.

PostgreSQL is the one of the test session. Everything else is started by the layout's own command, once what it needs is
ready by the layout's own check.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from feed_assets_tests.support.deployment_files import deployment
from feed_assets_tests.support.servers import JVM, PostgreSQL, S3Server, free_ports, stop, wait_until, weed

STANDS_FOR = {"postgres": "the PostgreSQL of the session"}
PATIENCE = 180
"""Seconds until a service that is not ready counts as failed: some seconds on an idle machine."""


@dataclass
class Installation:
    """The processes by service, their environment, and the folder with their logs."""

    folder: Path
    layout: Any
    places: Any
    environment: dict[str, str]
    token: str
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

    def start(self, name: str) -> None:
        """Start a service by its command, and wait until it is ready."""
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
        wait_until(lambda: self._is_ready(name), f"{name} to be ready; see {self.folder}/{name}.log", PATIENCE, 1)

    def _is_ready(self, name: str) -> bool:
        if (code := self.processes[name].poll()) is not None:
            raise RuntimeError(f"{name} ended with {code}: {self.log(name)[-2000:]}")
        return not self.why_not_ready(name)

    def log(self, name: str) -> str:
        """Return what a service has written."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def env_of(self, name: str) -> dict[str, str]:
        """Return the environment of a service: its secrets belong to it alone."""
        own = {"FEED_ASSETS_UI_TOKEN": self.token} if name == "web" else {}
        return {**self.environment, **own}


@contextmanager
def installation(folder: Path, module: str, postgres: PostgreSQL, jars: Path) -> Iterator[Installation]:
    """Run all services without a profile until the block ends."""
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
    (folder / "spark.conf").write_text(f"spark.authenticate true\nspark.authenticate.secret {secret}\n")
    (folder / "workspace.yaml").write_text(script.workspace(layout, script.LOOPBACK, ports["port", "code"]))
    (folder / "home" / "dagster.yaml").write_text(script.dagster_yaml())
    environment = _environment(folder, layout, s3, postgres, jars)
    environment["FEED_ASSETS_SPARK_MASTER"] = f"spark://127.0.0.1:{ports['port', 'spark-master']}"
    conf = {"spark.authenticate": "true", "spark.authenticate.secret": secret, "spark.executor.memory": "512m"}
    conf |= {"spark.driver.memory": "512m", "spark.ui.enabled": "false", "spark.executor.extraJavaOptions": JVM}
    environment["FEED_ASSETS_SPARK_CONF"] = json.dumps(conf)
    running = Installation(folder, layout, places, environment, secrets.token_urlsafe(32))
    try:
        for name in _in_order(layout):
            running.start(name)
        yield running
    finally:
        for process in reversed(running.processes.values()):
            stop(process)


def _environment(folder: Path, layout: Any, s3: S3Server, postgres: PostgreSQL, jars: Path) -> dict[str, str]:
    """Return the environment of feed-assets.env.example, filled for this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    return {
        **kept,
        **s3.env,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DAGSTER_HOME": str(folder / "home"),
        "DAGSTER_POSTGRES_URL": postgres.database().replace("+psycopg:", "+psycopg2:"),
        "FEED_ASSETS_LEDGER": postgres.database(),
        "FEED_ASSETS_LOGS": "json",
        "FEED_ASSETS_BLACKBOARD": "s3://lake",
        "FEED_ASSETS_S3_ENDPOINT": s3.endpoint,
        "FEED_ASSETS_SPARK_JARS": str(jars),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JVM,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore",
    }


def _in_order(layout: Any) -> list[str]:
    """Return the services without a profile, each after those that it needs."""
    order: list[str] = []

    def add(name: str) -> None:
        for need in layout.services[name].needs:
            add(need)
        order.extend([] if name in order or name in STANDS_FOR else [name])

    for name, each in layout.services.items():
        if not each.profile:
            add(name)
    return order


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
