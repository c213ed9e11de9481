"""The output of runs in a bucket of a real S3 server, by the lines of docs/operations.md."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import pytest
import yaml

from feed_assets.cli.compute_log_looks import look_at_compute_logs
from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.queue_looks import Doubtful
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.settings import settings
from feed_assets_tests.launcher.locations import Location, served
from feed_assets_tests.support.servers import BUCKET, ROOT, S3Server

FAILURE, SUCCESS = dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS
MORE = """
from feed_assets import feed_asset, foreign_feed, with_automation

raw = foreign_feed("logs/raw/v1.0", format="csv", schema="k string, n int")

@dg.op
def say():
    print("seen on stdout")
    print("seen on stderr", file=sys.stderr)

@feed_asset("logs/broken/v1.0", inputs={"rows": raw})
def broken(rows):
    print("seen before the failure")
    raise RuntimeError("no answer: " + os.environ["LOGS_URL"])

@dg.job(executor_def=dg.in_process_executor)
def saying():
    say()
"""
DEFS = """
fails = dg.define_asset_job("fails", [broken], executor_def=dg.in_process_executor)
defs = with_automation(dg.Definitions(assets=[raw, broken], jobs=[quick, saying, fails]))
"""


def documented() -> dict:
    """Return the lines of the documentation, as `dagster.yaml` has them."""
    page = (ROOT / "docs" / "operations.md").read_text()
    return yaml.safe_load(re.findall(r"^```yaml title=compute-logs\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0])


def configure(home: Path, **changed: str | None) -> None:
    """Add the documented lines to the home's file. A value of None leaves its line out."""
    prepare(home)
    stanza = documented()
    given = stanza["compute_logs"]["config"] | {"bucket": BUCKET, "local_dir": str(home / "storage")} | changed
    stanza["compute_logs"]["config"] = {key: value for key, value in given.items() if value is not None}
    ours = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    (home / "dagster.yaml").write_text(yaml.safe_dump(ours | stanza))


@pytest.fixture(autouse=True)
def _session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let boto3 read the environment again, whatever another test has had in it."""
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return f"output-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def location(home: Path, tmp_path: Path, s3_env: S3Server, prefix: str) -> Iterator[Location]:
    configure(home, prefix=prefix)
    env = {**os.environ, "LOGS_URL": "postgresql://me:Pl4nted@h/d"}
    with served(tmp_path / "project", home, env, MORE, DEFS) as location:
        yield location


def output(location: Location, run_id: str, kept: Mapping[str, bytes]) -> str:
    """Return what the instance says that the steps of a run have printed. `kept` has the objects of the bucket.

    Dagster's own search for the steps fails on the partial output of a run that takes long.
    """
    manager = location.instance.compute_log_manager
    steps = {key.rsplit("/", 1)[1].partition(".")[0] for key in kept if key.split("/")[2] == run_id}
    found = [manager.get_log_data([run_id, "compute_logs", step]) for step in sorted(steps)]
    return "".join((each.stdout or b"").decode() + (each.stderr or b"").decode() for each in found)


def objects(server: S3Server, prefix: str) -> dict[str, bytes]:
    client = server.client()
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])]
    return {key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


def read_only(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the rights to write from this process and its children."""
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.reader_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.reader_secret)


def test_output_of_runs_is_read_from_the_bucket_without_secrets(
    location: Location, s3_env: S3Server, home: Path, prefix: str
) -> None:
    raw = Partition(Feed.parse("logs/raw/v1.0"), "")
    publish(open_board(settings()), raw, {"part-1.csv": b"k,n\na,1\n"}, datetime.now(UTC))
    said, failed = location.launch("saying"), location.launch("fails")
    assert (location.end(said), location.end(failed)) == (SUCCESS, FAILURE)
    kept = objects(s3_env, prefix)
    assert {key.split("/")[2] for key in kept} == {said, failed}
    assert not list((home / "storage").rglob("*.out")), "nothing is left on this machine"
    assert "seen on stdout" in output(location, said, kept)
    assert "seen on stderr" in output(location, said, kept)
    assert "seen before the failure" in output(location, failed, kept)
    assert b"RuntimeError" in b"".join(kept.values())
    assert b"***" in b"".join(kept.values())
    assert b"Pl4nted" not in b"".join(kept.values())


def test_a_run_ends_as_ever_if_its_bucket_refuses(
    home: Path, tmp_path: Path, s3_env: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(home, prefix=prefix)
    read_only(s3_env, monkeypatch)
    with served(tmp_path / "project", home, dict(os.environ), MORE, DEFS) as location:
        run_id = location.launch("saying")
        assert location.end(run_id) is SUCCESS
        assert "Exception while cleaning up compute log capture" in " ".join(location.said(run_id))
    assert ["seen on stdout" in path.read_text() for path in (home / "storage").rglob("*.out")] == [True]


def test_doctor_checks_the_bucket_and_warns_of_a_folder_for_everybody(
    home: Path, s3_env: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Doubtful, match=r"no dagster\.yaml"):
        look_at_compute_logs(home)
    configure(home, prefix=prefix)
    assert look_at_compute_logs(home) == f"s3://{BUCKET}/{prefix}/storage: a log was written, read and deleted"
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        configure(home, prefix=prefix, local_dir=folder)
        with pytest.raises(Doubtful, match=rf"other users can read the output of a run in {folder} while"):
            look_at_compute_logs(home)
    assert objects(s3_env, prefix) == {}
    configure(home, prefix=prefix)
    read_only(s3_env, monkeypatch)
    with pytest.raises(Exception, match="AccessDenied"):
        look_at_compute_logs(home)


def test_a_home_without_these_lines_imports_nothing_of_aws(home: Path, s3_env: S3Server) -> None:
    prepare(home)
    program = (
        "import sys; from pathlib import Path\n"
        "from feed_assets.cli.compute_log_looks import look_at_compute_logs\n"
        f"print(look_at_compute_logs(Path({str(home)!r})))\n"
        "import feed_assets, feed_assets.definitions as code; code.defs().get_repository_def()\n"
        "sys.exit(str(heavy) if (heavy := {'boto3', 'dagster_aws'} & set(sys.modules)) else 0)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "LocalComputeLogManager: no object store\n"
