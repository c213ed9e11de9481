"""Checks that a process that has loaded a code location may be forked, and finalizers that its forks must not run."""

import fcntl
import gc
import os
import stat
import threading
import weakref
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from feed_assets.core.errors import FeedAssetsError

KNOW_OF_FORKS = {"jemalloc_bg_thd"}
"""Names of native threads that a fork begins anew by itself. PyArrow's allocator has this one."""


class NotForkable(FeedAssetsError):
    """A code location that leaves behind, where it is loaded, what a fork would lack or share."""


def check_forkable(inherited: Collection[int]) -> None:
    """Raise NotForkable for threads that forks would lack, and for what they would share beside the files inherited."""
    gc.collect()  # This closes what is not referenced any more.
    if threads := _python_threads() or _native_threads():
        raise NotForkable(f"the code location starts threads where it is loaded: {', '.join(threads)}")
    if files := _shared_files(inherited):
        raise NotForkable(f"the code location leaves open where it is loaded what runs would share: {', '.join(files)}")


def forget_finalizers() -> None:
    """Keep this fork's end from finalizing what was made before it, such as a temporary folder: others use it, too."""
    for each in [*vars(weakref.finalize)["_registry"]]:
        each.atexit = False


def _python_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each is not threading.main_thread()]


def _native_threads() -> list[str]:
    """Return the threads left after a trial fork: libraries that handle forks, as OpenBLAS does, end theirs before."""
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    names = [Path(each, "comm").read_text().strip() for each in Path("/proc/self/task").iterdir() if _is_other(each)]
    return [each for each in names if each not in KNOW_OF_FORKS]


def _is_other(task: Path) -> bool:
    return task.name != str(os.getpid())


def _shared_files(inherited: Collection[int]) -> list[str]:
    paths: list[str] = []
    for handle in {int(each.name) for each in Path("/proc/self/fd").iterdir()}.difference(inherited):
        with suppress(OSError):  # This one listed the others.
            if _is_shared(handle):
                paths.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
    return paths


def _is_shared(handle: int) -> bool:
    """Return whether forks would write it as one: a connection, a database. A log, only appended to, may be shared."""
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    is_written = flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_APPEND
    return is_written and not stat.S_ISCHR(os.fstat(handle).st_mode)
