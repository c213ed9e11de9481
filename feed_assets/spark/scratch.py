"""Private scratch folders of a Spark that feed_assets starts. Its shuffles, spills and buffers contain rows of feeds.

The process that makes a folder locks it, and the JVM inherits the lock. If both are killed, the sensor `orphans`
removes the folder. Unlike a process id, a lock is visible in every container that has the folder.
"""

import atexit
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from feed_assets.core.errors import InvalidSetting
from feed_assets.home import OWNED, home

UMASK = 0o077
"""Umask of a JVM that feed_assets starts, and of its Python workers. Only this user can read their files."""

LOCAL_DIR, LOCAL_DIRS = "spark.local.dir", "SPARK_LOCAL_DIRS"
"""The setting and the environment variable that name disks for scratch files.

If both are set, Spark uses the variable.
"""

HADOOP_TMP = "spark.hadoop.hadoop.tmp.dir"
_UNIX_SOCKETS = "spark.python.unix.domain.socket"
_MOST_BYTES_OF_SOCKETS = 60
"""The most bytes in the path of a folder of sockets. The name that Spark gives to a socket adds 43 bytes.

On macOS, which has the lower limit, the path of a socket has at most 103 bytes.
"""
_PREFIX = "feed-assets-spark-"
_LOCK, _UNLOCKED = "held", "new"
_MOST_SECONDS_UNLOCKED = 3600
"""Age in seconds at which a folder without a lock file must belong to a killed process.

A living process makes the lock file at once.
"""
_DEFAULT = re.compile(r"^[ \t]*spark\.local\.dir[ \t]*[ \t=:][ \t]*(\S.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Scratch:
    """Scratch folders of one JVM, one on each disk, and the file descriptors that keep them locked.

    `sockets` is the folder of the sockets between the JVM and Python: one of `folders`, or a separate folder. It is
    None if no folder has a path that is short enough. Python and the JVM then connect by ports of 127.0.0.1.
    """

    folders: tuple[Path, ...] = ()
    locks: tuple[int, ...] = ()
    sockets: Path | None = None

    def with_one_on(self, disk: Path) -> "Scratch":
        """Return these folders and a new one on another disk. Raise OSError if the new folder cannot be made."""
        folder, lock = _make_folder(disk)
        return replace(self, folders=(*self.folders, folder), locks=(*self.locks, lock))

    def with_sockets(self) -> "Scratch":
        """Return these folders and a folder of sockets. Raise OSError if it cannot be made."""
        if _holds_sockets(self.folders[0]):
            return replace(self, sockets=self.folders[0])
        if not _holds_sockets(_temporary() / self.folders[0].name):
            return self
        folder, lock = _make_folder(_temporary())
        return replace(self, locks=(*self.locks, lock), sockets=folder)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that make a JVM use the folders."""
        return {LOCAL_DIRS: ",".join(map(str, self.folders))}

    def conf(self, master: str) -> dict[str, str]:
        """Return the configuration of the folder in which Hadoop buffers uploads to S3, and of the folder of sockets.

        Without the first, all users would share one folder with a well-known name. Without the second, any user could
        connect to PySpark's servers, and a server that waits for such a user serves nobody else. Only a `local`
        master gets this configuration, because executors on another machine do not have the scratch folder.
        """
        if not master.startswith("local"):
            return {}
        buffers = {HADOOP_TMP: str(self.folders[0] / "hadoop")}
        if self.sockets is None:
            return buffers
        return {**buffers, f"{_UNIX_SOCKETS}.enabled": "true", f"{_UNIX_SOCKETS}.dir": str(self.sockets)}

    def remove(self) -> None:
        """Remove the scratch folders of this process, and release their locks."""
        for folder in {*self.folders, *([self.sockets] if self.sockets else [])}:
            shutil.rmtree(folder, ignore_errors=True)
        for lock in self.locks:
            os.close(lock)


def disks(conf: Mapping[str, str]) -> list[Path]:
    """Return the parents of scratch folders: the disks that the user sets for Spark, or a folder in the home folder.

    A process without a home folder, such as a notebook, uses the system's folder for temporary files.
    """
    named = os.environ.get(LOCAL_DIRS) or conf.get(LOCAL_DIR) or _of_defaults()
    return [Path(each.strip()).absolute() for each in named.split(",") if each.strip()] or [_at_home()]


def make_scratch(conf: Mapping[str, str]) -> Scratch:
    """Make the scratch folders of a JVM with a configuration. Raise InvalidSetting if one cannot be made."""
    folders = Scratch()
    try:
        for disk in disks(conf):
            folders = folders.with_one_on(disk)
        return folders.with_sockets()
    except OSError as error:
        folders.remove()
        raise InvalidSetting(
            f"Spark's scratch folder cannot be made: {error}. Expected a disk that this user may write to. Name one in "
            f'{LOCAL_DIRS}, or as {LOCAL_DIR} in FEED_ASSETS_SPARK_CONF: {{"{LOCAL_DIR}": "/mnt/fast"}}.'
        ) from error


@contextmanager
def scratch(conf: Mapping[str, str]) -> Generator[Scratch]:
    """Yield scratch folders that are removed when the block ends."""
    folders = make_scratch(conf)
    try:
        yield folders
    finally:
        folders.remove()


def remove_at_exit(folders: Scratch, end_jvm: Callable[[], object]) -> None:
    """Remove scratch folders when this process ends, after the end of its JVM."""
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # A forked process inherits this exit handler.
            end_jvm()
            folders.remove()

    atexit.register(remove)


def sweep_scratch(conf: Mapping[str, str]) -> list[Path]:
    """Remove this user's scratch folders that no process locks any more. Return the removed folders."""
    places = {*disks(conf), _at_home(), _temporary()}
    earlier = f".{_PREFIX}"  # Earlier versions made folders by such names.
    candidates = [each for disk in places for name in (_PREFIX, earlier) for each in sorted(disk.glob(f"{name}*"))]
    return [each for each in candidates if _is_let_go(each) and not shutil.rmtree(each, ignore_errors=True)]


def _at_home() -> Path:
    return home() / "scratch" if home().is_dir() else _temporary()


def _temporary() -> Path:
    return Path(tempfile.gettempdir())


def _holds_sockets(folder: Path) -> bool:
    return len(os.fsencode(folder)) <= _MOST_BYTES_OF_SOCKETS


def _of_defaults() -> str:
    """Return the disks in `spark-defaults.conf`, which all other settings override.

    Return '' if the file names none.
    """
    spec = find_spec("pyspark")  # Read the file here: an import of PySpark would take a second in each sensor.
    spark = os.environ.get("SPARK_HOME") or (str(Path(spec.origin).parent) if spec and spec.origin else "")
    file = Path(os.environ.get("SPARK_CONF_DIR") or f"{spark}/conf") / "spark-defaults.conf"
    values = _DEFAULT.findall(file.read_text("utf-8", "replace")) if file.is_file() else []
    return values[-1] if values else ""


def _make_folder(disk: Path) -> tuple[Path, int]:
    """Make a folder, and give its lock file its name only when the file is locked. So no sweep finds it unlocked.

    The folder itself is never renamed: another user could see its first name in /tmp, and occupy the second one.
    """
    if "," in str(disk):
        raise OSError(f"{disk} has a comma in its path, which Spark reads as the end of the path")
    disk.mkdir(0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=disk, prefix=_PREFIX))
    lock = os.open(folder / _UNLOCKED, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNED)
    fcntl.flock(lock, fcntl.LOCK_SH)
    (folder / _UNLOCKED).rename(folder / _LOCK)
    return folder, lock


def _is_let_go(folder: Path) -> bool:
    """Return whether a scratch folder can be removed: it belongs to this user, and no process uses it.

    A process uses a folder if it has the folder's lock, or will lock it soon.
    """
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            return False
        with (folder / _LOCK).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:  # It is new, or its making or removal was killed halfway.
        return _is_old(folder)
    return True


def _is_old(folder: Path) -> bool:
    try:
        return time.time() - folder.stat().st_mtime > _MOST_SECONDS_UNLOCKED
    except FileNotFoundError:
        return False
