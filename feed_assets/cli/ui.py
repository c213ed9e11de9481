"""`feed-assets ui`: the web UI, the daemon, and one warm Spark that all runs share."""

import os
import secrets
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from feed_assets.cli.location import Module, load, prepare
from feed_assets.cli.processes import ProcessFailed, Started, free_port, group, is_free, stop_once, wait_for_port
from feed_assets.cli.project import module_of_project
from feed_assets.core.addresses import LOOPBACK

if TYPE_CHECKING:
    from feed_assets.settings import Settings

_SERVER = {
    "spark.connect.grpc.binding.address": LOOPBACK,  # the default is every interface
    "spark.ui.enabled": "false",
}


def ui(
    port: Annotated[int, typer.Option(help="Port of the web UI.")] = 3000,
    module: Module = None,
) -> None:
    """Web UI and daemon, with one warm Spark that all runs share. Ctrl-C ends all of it."""
    from feed_assets.settings import home, settings

    if not is_free(port):
        raise ProcessFailed(f"port {port} is taken: end what listens there, or choose another with --port.")
    stop_once()
    config, target = settings(), _target(module)
    folder = prepare(home())
    try:
        with ExitStack() as stack:
            needed = [] if config.spark_remote else [stack.enter_context(_warm_spark(folder, config))]
            typer.echo(f"web UI: http://127.0.0.1:{port}  everything kept in: {folder}  end it with Ctrl-C")
            needed.append(stack.enter_context(group("dagster dev", _dagster(port, target))))
            _watch(needed)
    except KeyboardInterrupt:
        typer.echo("feed-assets ui: all ended")


@contextmanager
def _warm_spark(folder: Path, config: "Settings") -> Generator[Started]:
    """A Spark Connect server that has run a job; the settings of all that is started later name it."""
    from feed_assets.spark.jvm import environment_of, properties_file

    port, log = free_port(), folder / "spark" / "connect.log"  # Dagster empties `logs`
    log.parent.mkdir(0o700, exist_ok=True)
    _environment(log.parent)
    typer.echo("starting Spark...")
    values = _server_conf(port, config)
    with TemporaryDirectory(prefix="feed-assets-") as scratch, properties_file(values, Path(scratch)) as properties:
        os.environ["SPARK_PID_DIR"] = scratch
        command = _connect_server(properties, config.spark_master)
        with group(f"Spark (log: {log})", command, log, environment_of(values)) as server:
            wait_for_port(server, port)
            os.environ["FEED_ASSETS_SPARK_REMOTE"] = remote = f"sc://{LOOPBACK}:{port}"
            _warm_up(remote)
            yield server


def _environment(logs: Path) -> None:
    """Set what server and clients agree on; the token keeps other users of this machine out."""
    for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(name, None)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ |= {
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": secrets.token_hex(),
        "SPARK_HOME": str(_spark_home()),
        "SPARK_LOG_DIR": str(logs),
    }


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ProcessFailed("pyspark is not installed: install feed-assets with its dependencies.")
    return Path(spec.origin).parent


def _connect_server(properties: Path, master: str) -> list[str]:
    script = _spark_home() / "sbin" / "start-connect-server.sh"
    options = ["--master", master, "--driver-memory", "1g", "--properties-file", str(properties)]
    return ["bash", str(script), "--wait", *options]


def _server_conf(port: int, config: "Settings") -> dict[str, str]:
    from feed_assets.spark.session import conf

    return {**conf(config), **_SERVER, "spark.connect.grpc.binding.port": str(port)}


def _warm_up(remote: str) -> None:
    """Run one small job with a shuffle: the first in a fresh JVM takes seconds."""
    from feed_assets.spark.connect import connect

    session = connect(remote)
    session.range(1000).groupBy().count().collect()
    session.stop()


def _target(module: str | None) -> list[str]:
    """What Dagster is to load: the module that is named, else `workspace.yaml`, else the project's module.

    A module is loaded first: one with a mistake would be a UI without assets. Raises ModuleNotLoaded.
    """
    if module is None and Path("workspace.yaml").is_file():
        return ["-w", "workspace.yaml"]
    name, folder = (module, Path.cwd()) if module else module_of_project()
    load(module)
    return ["-m", name, "-d", str(folder)]


def _dagster(port: int, target: Sequence[str]) -> list[str]:
    quiet = ["-W", "ignore:Function `dev_command` is superseded"]  # by `dg dev`, another package
    return [sys.executable, *quiet, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port), *target]


def _watch(needed: Sequence[Started]) -> NoReturn:
    """Wait until a signal interrupts. Raises ProcessFailed for a process that ends by itself."""
    while True:
        for each in needed:
            each.check()
        time.sleep(0.5)
