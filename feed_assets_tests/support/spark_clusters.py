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
    """A standalone cluster of one worker with two cores, at fixed ports, so that it can be killed and come back.

    If it `recovers`, a restarted master goes on with the worker and the applications.
    """

    folder: Path
    port: int
    web_port: int
    recovers: bool = False
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
        self._start_master()
        size = ["--webui-port", "0", "--cores", "2", "--memory", "1200m", "--work-dir", str(self.folder / "work")]
        self._start("worker", "worker.Worker", self.target["master"], *size)
        is_up = partial(_said, self.folder / "master.log", "Registering worker")
        wait_until(lambda: is_up() == 1, f"a worker; see {self.folder}", 180)

    def _start_master(self) -> None:
        options = ["--port", str(self.port), "--webui-port", str(self.web_port)]
        if self.recovers:
            conf = self.folder / "spark.conf"
            conf.write_text(
                f"spark.deploy.recoveryMode FILESYSTEM\nspark.deploy.recoveryDirectory {self.folder / 'recovery'}\n"
            )
            options += ["--properties-file", str(conf)]
        self._master = self._start("master", "master.Master", *options)

    def _start(self, name: str, role: str, *options: str) -> "subprocess.Popen[bytes]":
        home, env = _home_and_env()
        command = ["bash", str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
        return _start(self._running, [*command, *options, "--host", "127.0.0.1"], env, self.folder, name)

    def restart_master(self) -> None:
        """Kill the master alone, start another, and wait until it has finished its recovery."""
        stop(self._master)
        self._start_master()
        wait_until(lambda: _said(self.folder / "master.log", "Recovery complete"), "the master's recovery", 180)

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


def _start(
    stack: ExitStack, command: list[str], env: dict[str, str], folder: Path, name: str
) -> "subprocess.Popen[bytes]":
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    stack.callback(stop, process)
    return process


def _said(log: Path, text: str) -> int:
    return log.read_text(errors="replace").count(text)
