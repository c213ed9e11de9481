"""Producer and consumer of docs/file-feed.md with the AWS command line only, against our reader and writer."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.read import latest, require
from feed_assets.feeds.write import claim, invalidate, publish

MEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
PAGE = Path(__file__).parents[2] / "docs" / "file-feed.md"


def script(name: str) -> str:
    """Return a script exactly as the page prints it."""
    return dict(re.findall(r"^```bash title=(\S+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE))[name]


@pytest.fixture
def run(s3_url, s3_env, s3_board):
    """Run a script of the page with the `aws` of this environment."""
    _, _, bucket, prefix = s3_url.split("/")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "BUCKET": bucket, "ROOT": f"{prefix}/", "PARTITION": MEN.path}

    def run(name, *arguments, **changes):
        command = ["bash", "-c", script(name), name, *map(str, arguments)]
        done = subprocess.run(command, env={**environment, **changes}, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.strip(), done.stderr

    return run


@pytest.fixture
def parts(tmp_path):
    for name in ("part 1.csv", "part-2.csv"):
        (tmp_path / name).write_text(name)
    return [tmp_path / "part 1.csv", tmp_path / "part-2.csv"]


def test_an_update_published_by_the_shell_script_is_readable(run, s3_board, parts):
    code, update_id, errors = run("producer.sh", *parts)
    assert (code, errors) == (0, "")
    update = require(latest(s3_board, MEN))
    assert (update.id, [s3_board.get(file.key) for file in update.files]) == (update_id, [b"part 1.csv", b"part-2.csv"])
    assert abs(datetime.strptime(update_id + "Z", "%Y%m%d.%H%M%S%z") - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_shell_claims_an_id_after_ours_and_we_one_after_the_shells(run, s3_board, parts):
    future = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    publish(s3_board, MEN, {"a": b""}, future)
    claim(s3_board, MEN, b"unfinished", future)
    _, update_id, _ = run("producer.sh", *parts)
    assert update_id == f"{future + timedelta(seconds=2):%Y%m%d.%H%M%S}"
    assert publish(s3_board, MEN, {"a": b""}, NOW).id == f"{future + timedelta(seconds=3):%Y%m%d.%H%M%S}"


def test_the_shell_script_reads_our_updates_and_skips_invalid_ones(run, s3_board, tmp_path):
    good = publish(s3_board, MEN, {"part 1.csv": b"one", "sub/b": b"two"}, NOW)
    invalidate(s3_board, MEN, publish(s3_board, MEN, {"a": b""}, NOW).id)
    invalidate(s3_board, MEN, publish(s3_board, MEN, {"a": b""}, NOW).id, how="file")
    for name, manifest in (
        ("20300101.000000", b"0\r\n"),
        ("20300102.000000", b"0\n\n"),
        ("20300231.000000", b"0"),
        ("20300101.2460", b"0"),
    ):
        s3_board.put(f"{MEN.path}/{name}/_SUCCESS", manifest)
    code, update_id, errors = run("consumer.sh", tmp_path / "out")
    assert (code, update_id, errors) == (0, good.id, "")
    assert (tmp_path / "out" / "part 1.csv").read_text() == "one"
    assert (tmp_path / "out" / "sub" / "b").read_text() == "two"
    assert require(latest(s3_board, MEN)) == good


def test_the_shell_reads_an_update_without_files_and_with_its_own_marker(run, s3_board, s3_url, s3_env, tmp_path):
    update = publish(s3_board, MEN, {}, NOW)
    _, _, bucket, prefix = s3_url.split("/")
    s3_env.client().put_object(Bucket=bucket, Key=f"{prefix}/{update.path}/", Body=b"")
    assert run("consumer.sh", tmp_path / "out")[:2] == (0, update.id)
    assert require(latest(s3_board, MEN)) == update


def test_the_shell_script_and_we_read_a_manifest_written_by_echo(run, s3_board, tmp_path):
    manifest = subprocess.run(["bash", "-c", "echo 2"], capture_output=True, check=True).stdout
    for name, data in {"a": b"one", "b": b"two", "_SUCCESS": manifest}.items():
        s3_board.put(f"{MEN.path}/20300101.000000/{name}", data)
    assert run("consumer.sh", tmp_path / "out") == (0, "20300101.000000", "")
    assert require(latest(s3_board, MEN)).id == "20300101.000000"


def test_the_shell_script_distinguishes_a_missing_update_from_a_refused_request(run, tmp_path):
    code, _, errors = run("consumer.sh", tmp_path / "out")
    assert (code, "no valid update" in errors) == (1, True)
    code, _, errors = run("consumer.sh", tmp_path / "out", AWS_SECRET_ACCESS_KEY="wrong")
    assert (code != 0, "SignatureDoesNotMatch" in errors) == (True, True)
