"""Scratch files of our Spark: they have rows of feeds, are private, and are removed at the end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from textwrap import dedent

import psutil
import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.spark.scratch import disks, make_scratch, scratch, sweep_scratch
from feed_assets_tests.support.each_case import each_case

PLANTED = "planted-row-of-a-feed"
WORKS = dedent(
    """
    import json, os, stat, sys
    from datetime import datetime
    from pathlib import Path
    import psutil
    from pyspark.storagelevel import StorageLevel
    from pyspark.sql import functions as sf
    from feed_assets.core.feeds import Feed, Partition
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.settings import Settings
    from feed_assets.spark.session import session
    from feed_assets.spark.written_frame import write

    planted, root = sys.argv[1], Path(sys.argv[2])
    url = (root / "lake").as_uri()
    (root / "lake").mkdir()
    os.umask(0o022)
    spark = session(Settings(blackboard=url, spark_conf={"spark.shuffle.compress": "false"}))

    def pass_on(batches):
        Path(root, "by_a_worker").write_text(planted)
        yield from batches

    rows = spark.range(20_000).select(sf.concat(sf.lit(planted), "id").alias("k"))
    spilled = rows.mapInArrow(pass_on, "k string").repartition(4, "k").persist(StorageLevel.DISK_ONLY)
    spilled.count()
    partition = Partition(Feed.parse("shop/out/v1.0"), "2026-01-01")
    write(spilled, Blackboard.open(url), partition, "20260101.000000")
    places = [Path(each) for each in sys.argv[3:]]
    found = [each for place in places for each in place.rglob("*") if not each.is_symlink() and not each.is_socket()]
    modes = {str(each): stat.S_IMODE(each.lstat().st_mode) for each in found}
    holding = [str(each) for each in found if each.is_file() and planted.encode() in each.read_bytes()]
    lake = {str(each.relative_to(root)): stat.S_IMODE(each.stat().st_mode) for each in (root / "lake").rglob("*")}
    worker = stat.S_IMODE((root / "by_a_worker").stat().st_mode)
    jvm = [each.pid for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    hadoop = spark.sparkContext._jsc.hadoopConfiguration().get("hadoop.tmp.dir")
    said = {"modes": modes, "holding": holding, "lake": lake, "worker": worker, "jvm": jvm, "hadoop": hadoop}
    print(json.dumps(said), flush=True)
    sys.stdin.readline()
    """
)


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch):
    """Replace the system's folder for temporary files, because a sweep removes all unlocked folders there."""
    tmp_path_factory.getbasetemp()  # pytest takes the system's folder at its first use
    with TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


class Working:
    """A process whose Spark has shuffled rows on disk, and keeps them until it is ended."""

    def __init__(self, root: Path, places: list[Path], env: dict[str, str]) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
        command = [sys.executable, "-P", "-c", WORKS, PLANTED, str(root), *map(str, places)]
        self.errors = root / "errors"
        with self.errors.open("w") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            self.process = subprocess.Popen(command, env={**clean, **env}, cwd=root, text=True, **pipes)
        self.said = json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0
        assert "Traceback" not in self.errors.read_text()

    def kill(self) -> None:
        jvm = psutil.Process(self.said["jvm"][0])
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=60)
        psutil.wait_procs([jvm], timeout=60)


def test_shuffle_files_are_private_and_published_parts_keep_permissions(tmp_path, temporary):
    (home := tmp_path / "home").mkdir(0o755)
    env = {"DAGSTER_HOME": str(home), "TMPDIR": str(temporary)}
    working = Working(tmp_path, [home, temporary], env)
    said = working.said
    assert any(f"{home}/scratch/feed-assets-spark-" in each and "/blockmgr-" in each for each in said["holding"])
    assert {each: oct(mode) for each, mode in said["modes"].items() if mode & 0o077} == {}
    assert said["worker"] == 0o600
    assert said["hadoop"].startswith(f"{home}/scratch/feed-assets-spark-")
    assert sorted(name for name in said["lake"] if name.endswith(".parquet"))
    kinds = {Path(name).suffix == ".parquet": mode for name, mode in said["lake"].items()}
    assert said["lake"] == {name: kinds[Path(name).suffix == ".parquet"] for name in said["lake"]}
    assert kinds == {True: 0o644, False: 0o755}, "as without us: the umask of the run's process is 022"
    working.end()
    assert [*(home / "scratch").iterdir()] == []


def test_scratch_folders_on_a_user_s_disk_are_private_and_swept_after_a_kill(tmp_path, temporary, monkeypatch):
    (disk := tmp_path / "fast").mkdir(0o777)
    disk.chmod(0o777)
    (home := tmp_path / "home").mkdir(0o700)
    env = {"DAGSTER_HOME": str(home), "SPARK_LOCAL_DIRS": str(disk)}
    working = Working(tmp_path, [disk], env)
    assert any("/blockmgr-" in each for each in working.said["holding"])
    assert {each: oct(mode) for each, mode in working.said["modes"].items() if mode & 0o077} == {}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert sweep_scratch({}) == [], "it works"
    working.kill()
    (left,), (sockets,) = disk.iterdir(), temporary.glob("feed-assets-spark-*")
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert {*sweep_scratch({})} == {left, sockets}
    assert [*disk.iterdir(), *temporary.glob("feed-assets-spark-*")] == []


@each_case(("disk", "temporary", "expected"), [("d", "t", "d"), ("d" * 60, "t", "t"), ("d" * 60, "t" * 60, None)])
def test_python_s_sockets_are_in_a_private_folder_with_a_short_path(disk, temporary, expected):
    with TemporaryDirectory(dir="/tmp") as root, pytest.MonkeyPatch.context() as patch:
        Path(root, temporary).mkdir()
        patch.setenv("SPARK_LOCAL_DIRS", f"{root}/{disk}")
        patch.setattr(tempfile, "tempdir", f"{root}/{temporary}")
        with scratch({}) as made:
            assert (made.sockets and made.sockets.parent) == (expected and Path(root, expected))
            enabled = made.conf("local[2]").get("spark.python.unix.domain.socket.enabled")
            assert enabled == (expected and "true")
            assert made.sockets is None or made.sockets.stat().st_mode & 0o777 == 0o700
            assert made.conf("spark://host:7077") == {}
        assert [*Path(root).glob("*/*")] == []


@each_case(
    ("variable", "conf", "defaults", "expected"),
    [
        ("/a,/b", "/c", "/d", ["/a", "/b"]),
        ("", "/c, /e", "/d", ["/c", "/e"]),
        ("", "", "/d", ["/d"]),
        ("", "", "/overwritten\nspark.local.dir=/d", ["/d"]),
        ("", "", "", ["HOME/scratch"]),
    ],
)
def test_disks_are_those_that_the_user_names_to_spark_else_the_home(variable, conf, defaults, expected):
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        (home := Path(folder) / "home").mkdir()
        (Path(folder) / "spark-defaults.conf").write_text(
            f"# disks\nspark.local.dir   {defaults}\n" if defaults else ""
        )
        patch.setenv("SPARK_CONF_DIR", folder)
        patch.setenv("DAGSTER_HOME", str(home))
        patch.setenv("SPARK_LOCAL_DIRS", variable)
        found = disks({"spark.local.dir": conf} if conf else {})
        assert [str(each).replace(str(home), "HOME") for each in found] == expected


def test_a_scratch_sweep_keeps_held_and_foreign_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (disk := tmp_path / "disk").mkdir()
    conf = {"spark.local.dir": str(disk)}
    (theirs := disk / "theirs").mkdir()
    (link := disk / "feed-assets-spark-link").symlink_to(theirs)
    with scratch(conf) as held:
        assert held.folders[0].stat().st_mode & 0o777 == 0o700
        left, before = make_scratch(conf), make_scratch({})
        for lock in (*left.locks, *before.locks):
            os.close(lock)
        assert {*sweep_scratch(conf)} == {*left.folders, *before.folders, left.sockets, before.sockets}
        assert sorted(disk.iterdir()) == sorted([held.folders[0], link, theirs])
    assert sorted(disk.iterdir()) == sorted([link, theirs])


def test_a_scratch_sweep_removes_old_unfinished_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    conf = {"spark.local.dir": str(tmp_path / "disk")}
    killed, new = (tmp_path / "disk" / f"feed-assets-spark-{name}" for name in ("killed", "new"))
    for folder in (killed, new):
        folder.mkdir(parents=True)
    os.utime(killed, (0, 0))
    assert sweep_scratch(conf) == [killed]
    assert [*(tmp_path / "disk").iterdir()] == [new]


def test_another_user_cannot_occupy_the_name_of_a_new_scratch_folder(tmp_path, monkeypatch):
    def seen(**options):
        """Make a folder, and then one with each name that the first name leads to, as somebody does who watches."""
        folder = Path(mkdtemp(**options))
        (folder.with_name(folder.name.lstrip(".")) / "theirs").mkdir(parents=True, exist_ok=True)
        return str(folder)

    monkeypatch.setattr("tempfile.mkdtemp", seen)
    with scratch({"spark.local.dir": str(tmp_path / "disk")}) as made:
        assert all((folder / "held").is_file() for folder in made.folders)


FORKS = dedent(
    """
    import os, sys
    from feed_assets.spark.scratch import make_scratch, remove_at_exit

    made = make_scratch({"spark.local.dir": sys.argv[1]})
    remove_at_exit(made, lambda: None)
    if child := os.fork():
        os.waitpid(child, 0)
        print(made.folders[0].is_dir())
    """
)


def test_a_process_removes_its_scratch_folders_at_its_end_and_a_fork_does_not(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    command = [sys.executable, "-P", "-c", FORKS, str(tmp_path)]
    assert subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout == "True\n"
    assert [*tmp_path.iterdir()] == []


def test_a_refusing_disk_leaves_no_scratch_folder_on_another(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'good'},{tmp_path / 'file' / 'below'}")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidSetting, match="cannot be made"):
        make_scratch({})
    assert [*(tmp_path / "good").iterdir()] == []


@each_case("disk", ["FILE/below", "a home with a comma"])
def test_a_disk_that_cannot_be_used_is_refused_with_what_to_set(disk):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPARK_LOCAL_DIRS", raising=False)
        patch.setenv("DAGSTER_HOME", f"{folder}/x,y")
        (Path(folder) / "x,y").mkdir()
        (Path(folder) / "file").touch()
        conf = {"spark.local.dir": disk.replace("FILE", f"{folder}/file")} if disk.startswith("FILE") else {}
        with pytest.raises(InvalidSetting, match=r"scratch folder cannot be made: .*SPARK_LOCAL_DIRS"):
            make_scratch(conf)
