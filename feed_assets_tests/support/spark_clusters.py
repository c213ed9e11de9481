"""A standalone Spark cluster of the installed PySpark: a master and two workers, which end with the block."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyspark

from feed_assets_tests.support.servers import JVM, free_ports, stop, wait_until

ROOT = Path(__file__).parents[2]
_SMALL = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JVM, "SPARK_LOCAL_IP": "127.0.0.1"}
CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.executor.extraJavaOptions": JVM,
}


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Run the cluster until the block ends; yield the master's URL. Each worker has two cores and 1 GB."""
    home, env = _home_and_env()
    (port,) = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    spark_class = ["bash", str(home / "bin" / "spark-class")]
    first = [*spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    first += ["--port", str(port), "--webui-port", "0"]
    worker = [*spark_class, "org.apache.spark.deploy.worker.Worker", master]
    worker += ["--webui-port", "0", "--cores", "2", "--memory", "1g"]
    with ExitStack() as stack:
        _start(stack, first, env, folder, "master")
        # Two names, because the copy of a slow task starts only on another host.
        for host in ("127.0.0.1", "localhost"):
            work = ["--host", host, "--work-dir", str(folder / f"work-{host}")]
            _start(stack, [*worker, *work], env, folder, f"worker-{host}")
        wait_until(lambda: _said(folder / "master.log", "Registering worker") == 2, f"two workers; see {folder}", 180)
        yield master


@dataclass
class SmallCluster:
    """A standalone cluster of one worker with two cores, at fixed ports, so that it can be killed and come back."""

    folder: Path
    port: int
    web_port: int
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def target(self) -> dict[str, str]:
        """Return the cluster as a compute target of the settings."""
        address = "127.0.0.1"
        return {
            "kind": "standalone",
            "master": f"spark://{address}:{self.port}",
            "url": f"http://{address}:{self.web_port}",
        }

    def start(self) -> None:
        """Start master and worker, and wait until the worker has registered."""
        self.folder.mkdir(exist_ok=True)
        home, env = _home_and_env()
        deploy, host = ["bash", str(home / "bin" / "spark-class")], ["--host", "127.0.0.1"]
        ports = ["--port", str(self.port), "--webui-port", str(self.web_port)]
        size = ["--webui-port", "0", "--cores", "2", "--memory", "1200m", "--work-dir", str(self.folder / "work")]
        master = [*deploy, "org.apache.spark.deploy.master.Master", *host, *ports]
        worker = [*deploy, "org.apache.spark.deploy.worker.Worker", self.target["master"], *host, *size]
        _start(self._running, master, env, self.folder, "master")
        _start(self._running, worker, env, self.folder, "worker")
        is_up = partial(_said, self.folder / "master.log", "Registering worker")
        wait_until(lambda: is_up() == 1, f"a worker; see {self.folder}", 180)

    def kill(self) -> None:
        """Kill master, worker and executors, which are in their process groups."""
        self._running.close()
        self._running = ExitStack()


def driver_env(master: str, folder: Path) -> dict[str, str]:
    """Return the environment that a user of the cluster sets: the master, and the Python of the executors.

    Memory is small.
    """
    return {
        **os.environ,
        "FEED_ASSETS_SPARK_MASTER": master,
        "FEED_ASSETS_SPARK_CONF": json.dumps(CONF),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "FEED_ASSETS_BLACKBOARD": (folder / "lake").as_uri(),
        "FEED_ASSETS_LEDGER": f"sqlite:///{folder / 'ledger.db'}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


def _home_and_env() -> tuple[Path, dict[str, str]]:
    home = Path(pyspark.__file__).parent
    return home, {**os.environ, "SPARK_HOME": str(home), **_SMALL, "PYTHONPATH": str(ROOT)}


def _start(stack: ExitStack, command: list[str], env: dict[str, str], folder: Path, name: str) -> None:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    stack.callback(stop, process)


def _said(log: Path, text: str) -> int:
    return log.read_text(errors="replace").count(text)
