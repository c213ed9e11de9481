"""A secret in every setting and in the environment: it is in no output, no file of the home and no command line."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import psutil
import pytest
import sqlalchemy as sa

from feed_assets.cli import main
from feed_assets.ledger.tables import metadata
from feed_assets_tests.integration import planted_project as project
from feed_assets_tests.support.forked_processes import Forks
from feed_assets_tests.support.secret_servers import SecretServer, secret_server
from feed_assets_tests.support.servers import PostgreSQL, family

SECRET = "Pl4nted"
PROGRAM = str(Path(sys.executable).with_name("feed-assets"))
_PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
KAFKA = {
    "FEED_ASSETS_KAFKA": json.dumps({"bootstrap.servers": "127.0.0.1:9", "sasl.password": SECRET} | _PLAIN),
    "FEED_ASSETS_KAFKA_REGISTRY": f"http://me:{SECRET}@127.0.0.1:9",
}
"""Settings of commands that ask Kafka once. In each tick of a run, clients would wait for it."""
NOWHERE = f"postgresql+psycopg://me:half,{SECRET}@{SECRET}@127.0.0.1:1/none"


@pytest.fixture
def database(postgresql: PostgreSQL) -> sa.URL:
    """Return an empty database whose password is the secret."""
    return sa.make_url(postgresql.database()).set(password=SECRET)


@pytest.fixture
def secrets() -> Iterator[SecretServer]:
    """Yield the server of the secrets that AWS keeps."""
    with secret_server() as server:
        yield server


@pytest.fixture
def planted(home: Path, database: sa.URL, secrets: SecretServer) -> dict[str, str]:
    """Return the environment of a whole set-up, most of which does not answer. AWS keeps some of its secrets."""
    ledger = database.render_as_string(hide_password=False)
    away = NOWHERE.replace(",", "%2C").replace("@", "%40", 1)
    settings = {
        "LEDGER": ledger,
        "EVENTS_TO": f"{ledger}#planted_events,{away}#events",
        "ALERT_WEBHOOK": f"http://127.0.0.1:9/{SECRET}",
        "ALERT_SECRET": SECRET,
        "ALERT_SMTP": f"smtp://me:{SECRET}@127.0.0.1:9",
        "ALERT_MAIL_FROM": "me@here.example",
        "ALERT_MAIL_TO": "you@here.example",
        "SPARK_CONF": json.dumps({"spark.hadoop.fs.s3a.secret.key": SECRET}),
        "SPARK_PROFILES": json.dumps({"big": {"spark.hadoop.fs.s3a.session.token": SECRET}}),
        "ALERT_APPRISE": f"jsons://me:{SECRET}@127.0.0.1:9/{SECRET}",
        "WAREHOUSES": json.dumps({"main": {"url": away}}),
    }
    named = {f"FEED_ASSETS_{name}": value for name, value in settings.items()}
    for name in ("FEED_ASSETS_LEDGER", "FEED_ASSETS_SPARK_CONF", "FEED_ASSETS_ALERT_SMTP"):
        secrets.secrets.create_secret(Name=name, SecretString=named[name])
        named[name] = f"aws-secretsmanager:{name}"
    secrets.parameters.put_parameter(Name=f"/{project.URL}", Value=NOWHERE, Type="SecureString")
    own = {"AWS_SECRET_ACCESS_KEY": SECRET, project.URL: f"aws-ssm:/{project.URL}", "DAGSTER_HOME": str(home)}
    return {**os.environ, **secrets.env, **named, **own, "PYTHONWARNINGS": "ignore"}


class Told:
    """Output of commands, and the command lines of every process that they started."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment, self.folder = environment, folder
        self.said, self.lines, self.codes = "", set[str](), list[int]()

    def call(self, *args: str, **changed: str) -> None:
        """Run a command to its end."""
        output = self.folder / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [PROGRAM, *args],
                env=self.environment | changed,
                cwd=self.folder,
                stdout=file,
                stderr=file,
            )
            while process.poll() is None:
                self.look(process.pid)
                time.sleep(0.05)
        self.codes.append(process.returncode)
        self.said += output.read_text()

    def fork(self, forker: Forks, *args: str, **changed: str) -> None:
        """Run a command that starts no process in a fork that has already imported it."""
        output = self.folder / "output"
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.environment, **changed}.items():
                patch.setenv(name, value)
            assert forker.run(command, args, self.folder, output) == 0
        self.said += output.read_text()

    def look(self, pid: int) -> None:
        """Record the command lines, which any user of this machine can read."""
        try:
            self.lines |= {" ".join(each.cmdline()) for each in family(pid)}
        except psutil.NoSuchProcess:
            return


def command(args: tuple[str, ...], folder: Path, output: Path) -> None:
    """Run a command in this process, with its output in a file."""
    os.chdir(folder)
    with output.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["feed-assets", *args]
    with suppress(SystemExit):
        main()
    sys.stdout.flush()


@pytest.fixture
def told(planted: dict[str, str], tmp_path: Path, forker: Forks) -> Told:
    """Run every command once, with a failing run and an unreachable source, sink, webhook and mail server."""
    found, module = Told(planted, tmp_path), ["-m", project.__name__]
    (tmp_path / "rows.csv").write_text("k,n\na,1\n")
    found.call("feed", "publish", project.RAW, "", "rows.csv", *module)
    found.call("run", *module, "--until-idle", "-v")  # `-v` prints all traces.
    found.call("doctor", *module, **KAFKA)
    explain = ["explain", project.BROKEN, *module]
    page = ["status", *module, "--html", str(tmp_path / "status.html")]
    found.fork(forker, "kafka", "lag", *module, **KAFKA)
    events = ["events", "due", *module], ["events", "ls", "--json"]
    for each in (explain, [*explain, "--json"], *events, page, ["warehouse", "load", "main", "--once", *module]):
        found.fork(forker, *each)
    for name, value in {
        "FEED_ASSETS_LEDGER": NOWHERE,
        "FEED_ASSETS_BLACKBOARD": f"s3:/{SECRET}:{SECRET}@bucket",
        "FEED_ASSETS_SPARK_REMOTE": f"sc://127.0.0.1:9/;token={SECRET}",
        "FEED_ASSETS_EVENTS_TO": f"{NOWHERE}#events",
        "FEED_ASSETS_ALERT_SMTP": f"smtp://me:{SECRET}/@x",
    }.items():
        found.fork(forker, "run", *module, "--until-idle", **{name: value})
    return found


def test_no_secret_is_printed_stored_or_on_a_command_line(told: Told, home: Path, database: sa.URL) -> None:
    assert told.codes[:2] == [0, 1]  # One source does not answer.
    assert "***" in told.said
    assert SECRET not in told.said
    assert any("java" in line for line in told.lines)
    assert [line for line in told.lines if SECRET in line] == []
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert len(kept) > 10
    assert [path for path in kept if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in rows(database)
    assert SECRET not in (told.folder / "status.html").read_text()
    assert SECRET not in (events := of_dagster())
    assert "RuntimeError" in events


def of_dagster() -> str:
    """Return all events of the failing run, with their traces, which the web UI shows."""
    with dg.DagsterInstance.get() as instance:
        failed = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        return "\n".join(each.to_json() for run in failed for each in instance.all_logs(run.run_id))


def rows(database: sa.URL) -> str:
    """Return everything that the ledger and the sink hold."""
    engine = sa.create_engine(database)
    with engine.connect() as connection:
        named = [*metadata.tables, "planted_events"]
        tables = [sa.table(name, sa.literal_column("*")) for name in named]
        found = {table.name: connection.execute(sa.select(sa.text("*")).select_from(table)).all() for table in tables}
    engine.dispose()
    assert all(found[name] for name in ("update_", "event", "run", "alert", "planted_events"))
    return repr(found)
