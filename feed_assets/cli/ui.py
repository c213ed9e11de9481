"""`feed-assets ui`: the web UI, the daemon, and one warm Spark that all runs share."""

import os
import secrets
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from filelock import FileLock, Timeout

from feed_assets.cli.loaded_location import Module, load, prepare
from feed_assets.cli.processes import (
    NOWHERE,
    TOKEN,
    ProcessFailed,
    Started,
    end,
    free_port,
    group,
    is_free,
    stop_once,
    wait_for_port,
)
from feed_assets.cli.project import module_of_project
from feed_assets.cli.terminal import echo
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.secrets import masked
from feed_assets.home import OWNED

if TYPE_CHECKING:
    from feed_assets.cli.ui_lines import UiLines
    from feed_assets.settings import Settings

LOGS = "ui"
"""The folder for logs in the home. It is not called `logs`, because Dagster empties that folder."""

LOOK_SECONDS = 1.0
"""Seconds between two checks for news."""

_MEMORY = (
    "Code 52 means that it needs more memory: set spark.driver.memory in FEED_ASSETS_SPARK_CONF, or correct the input. "
    "If `connect.log.old` has OutOfDirectMemoryError, another user of this machine may have filled the memory."
)

_SERVER = {
    "spark.connect.grpc.binding.address": LOOPBACK,  # the default is every interface
    "spark.ui.enabled": "false",  # even if the settings enable it: everybody on this machine could open it
}


def ui(
    port: Annotated[int, typer.Option(help="Port of the web UI.")] = 3000,
    module: Module = None,
) -> None:
    """Start the web UI and the daemon, with one warm Spark that all runs share. Ctrl-C ends all of it."""
    from feed_assets.home import home, make_home, say_who_reads
    from feed_assets.settings import settings

    if not is_free(port):
        raise ProcessFailed(
            f"port {port} is taken: end the process that listens there, or choose another port with --port."
        )
    stop_once()
    config, target = settings(), _target(module)
    make_home(folder := home())
    try:
        with ExitStack() as stack:
            stack.enter_context(_only_one(folder))  # Checked first, so that a second UI fails at once.
            _look_at_launcher(prepare(folder))
            say_who_reads(sys.stdout.fileno())
            _make_ledger(config)
            from feed_assets.cli.ui_lines import UiLines  # Imported here: `--help` does not load the ledger.

            lines = UiLines(config.ledger, echo)
            lines.print_new()
            token = secrets.token_urlsafe(32)
            while True:
                _serve(config, folder, port, target=target, token=token, lines=lines)
    except KeyboardInterrupt:
        echo("feed-assets ui: all ended")


def _serve(config: "Settings", folder: Path, port: int, target: str, token: str, lines: "UiLines") -> None:
    """Start all processes, and print news until the shared Spark ends. Then end them, and record which builds failed.

    The caller starts all processes again. The new Spark gets a new token, because another user could take the old
    Spark's port and receive the old token from our runs. Raise ProcessFailed if another process ends by itself.
    """
    from feed_assets.runs import spark_deaths
    from feed_assets.runs.services import Services

    with ExitStack() as stack:
        stack.callback(_restore, dict(os.environ))
        spark = None if config.spark_remote else stack.enter_context(_warm_spark(folder, config))
        code = _watch(_dagster(stack, port, target, folder, token), spark, lines)
        services = Services.of(config)
        builds = spark_deaths.builds_on(services.ledger, os.environ["FEED_ASSETS_SPARK_REMOTE"])
    how = f"Spark ended with exit code {code}"
    spark_deaths.count_deaths(services, builds, f"{how}, which all runs share. {_MEMORY}")
    names = ", ".join(str(each.output) for each in builds) or "none"
    echo(f"feed-assets ui: {how}. Builds that used it: {names}. {_MEMORY} Starting again...")


def _restore(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _make_ledger(config: "Settings") -> None:
    """Make the ledger's file if it is missing: `/status` needs it, and its first visit may be before any tick."""
    from feed_assets.ledger.database import file_of, open_ledger

    if file_of(config.ledger):
        open_ledger(config.ledger)


def _look_at_launcher(folder: Path) -> None:
    """Raise ProcessFailed if the run launcher cannot be made. Dagster would only log this, and not before a run."""
    import dagster as dg
    from dagster_shared.check import CheckError

    try:
        with dg.DagsterInstance.get() as instance:
            _ = instance.run_coordinator, instance.run_launcher
    except (CheckError, dg.DagsterError, ImportError) as error:
        raise ProcessFailed(
            f"{folder / 'dagster.yaml'} names a class that cannot be loaded, so no run could begin: "
            f"{masked(' '.join(str(error).split()))} Mend it, and start again."
        ) from error


@contextmanager
def _only_one(folder: Path) -> Generator[None]:
    """Hold the home's lock for a UI. Even a kill releases it. Raise ProcessFailed if another UI has the lock."""
    try:
        with FileLock(folder / ".ui.lock", timeout=0, mode=OWNED):
            yield
    except Timeout:
        raise ProcessFailed(
            f"another `feed-assets ui` works in {folder}: two UIs would start runs twice. End it, or set DAGSTER_HOME."
        ) from None


@contextmanager
def _warm_spark(folder: Path, config: "Settings") -> Generator[Started]:
    """Yield a Spark Connect server that has run a job. Later processes find it by an environment variable."""
    from feed_assets.spark.heap import in_words
    from feed_assets.spark.jvm import environment_of, properties_file
    from feed_assets.spark.scratch import UMASK, scratch

    port, log = free_port(), folder / "spark" / "connect.log"  # Dagster empties `logs`
    log.parent.mkdir(0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        log.replace(log.with_name("connect.log.old"))  # The old log says why an earlier Spark has ended.
    _environment(log.parent)
    values = _server_conf(port, config)
    echo(f"starting Spark with {in_words(values)}...")
    with (
        scratch(values) as disks,
        TemporaryDirectory(prefix="feed-assets-") as folder_of_pid,
        properties_file({**disks.conf(config.spark_master), **values}, Path(folder_of_pid)) as properties,
    ):
        command = _connect_server(properties, config.spark_master)
        env = {**environment_of(values), **disks.environment, "SPARK_PID_DIR": folder_of_pid}
        with group(f"Spark (log: {log})", command, log, env=env, umask=UMASK, locks=disks.locks) as server:
            wait_for_port(server, port)
            os.environ["FEED_ASSETS_SPARK_REMOTE"] = remote = f"sc://{LOOPBACK}:{port}"
            with group("Spark's first job", [sys.executable, "-P", "-m", "feed_assets.spark.connect", remote]) as job:
                job.wait()
            yield server


def _environment(logs: Path) -> None:
    """Set the environment that server and clients share. The token keeps this machine's other users out."""
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
    options = ["--master", master, "--properties-file", str(properties)]
    return ["bash", str(script), "--wait", *options]


def _server_conf(port: int, config: "Settings") -> dict[str, str]:
    from feed_assets.spark.session import conf

    return {**conf(config), **_SERVER, "spark.connect.grpc.binding.port": str(port)}


def _target(module: str | None) -> str:
    """Return what Dagster loads through `project_code`: the named module, or else the project's.

    Return '' if no module is named and there is a `workspace.yaml`. The module is loaded here first, and
    ModuleNotLoaded is raised if it has a mistake. Otherwise a UI without assets would start.
    """
    from feed_assets.cli.project_code import attribute_for

    if module is None and Path("workspace.yaml").is_file():
        return ""
    load(module)
    name, folder = (module, Path.cwd()) if module else module_of_project()
    return attribute_for(name, None, str(folder))


def _dagster(stack: ExitStack, port: int, target: str, folder: Path, token: str) -> list[Started]:
    """Start the web server and the daemon. Print the address once the server itself listens there."""
    scratch = stack.enter_context(TemporaryDirectory(prefix="feed-assets-"))
    _isolate(scratch)
    file = Path(scratch) / "workspace.yaml"
    (logs := folder / LOGS).mkdir(0o700, exist_ok=True)
    serve = ["feed_assets.cli.web", str(port), str(file), target]
    echo("starting the web UI...")
    web = _logged(stack, "web UI", [sys.executable, "-m", *serve], logs / "web.log", {TOKEN: token})
    wait_for_port(web, port)
    daemon = [sys.executable, "-m", "dagster._daemon", "run", "--log-level", "warning", "-w", str(file)]
    started = [web, _logged(stack, "Dagster's daemon", daemon, logs / "daemon.log")]
    # Stop both at the same time: the daemon finishes its ticks first, and needs the web UI's code servers for them.
    stack.callback(end, started)
    address = f"http://{LOOPBACK}:{port}/?token={token}"
    echo(f"web UI: {address}  everything kept in: {folder}  end it with Ctrl-C")
    echo(f"A line appears here when a run ends or something needs a person. All logs are in {logs}.")
    return started


def _logged(
    stack: ExitStack, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Started:
    """Start a process whose output goes to its own log file. The terminal shows only news from the ledger."""
    return stack.enter_context(group(f"{name} (log: {log})", command, log, env))


def _isolate(scratch: str) -> None:
    """Protect the sockets of Dagster's processes from other users, and libraries from files of the current folder.

    The sockets are temporary files, so they get a private folder. When Dagster loads code, it drops the first entry of
    `sys.path`, because it expects the current folder there. So a meaningless entry precedes those of `PYTHONPATH`.
    """
    os.environ |= {"TMPDIR": scratch, "PYTHONSAFEPATH": "1", "DAGSTER_IS_DEV_CLI": "1"}
    if folders := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join([NOWHERE, folders])


def _watch(needed: Sequence[Started], spark: Started | None, lines: "UiLines") -> int:
    """Print news until Spark ends, and return its exit code. Raise ProcessFailed if a needed process ends by itself."""
    while spark is None or (code := spark.process.poll()) is None:
        for each in needed:
            each.check()
        lines.print_new()
        time.sleep(LOOK_SECONDS)
    return code
