"""Check whether a process with a loaded code location may fork, and disable finalizers that its forks must not run."""

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
"""Names of native threads that restart themselves in a fork. The named thread belongs to PyArrow's allocator."""


class NotForkable(FeedAssetsError):
    """Loading the code location starts threads that a fork would lack, or opens files that it would share."""


def check_forkable(inherited: Collection[int]) -> None:
    """Raise NotForkable if a fork would lack threads, or share open files. Files in `inherited` may be open."""
    gc.collect()  # A garbage collection closes files that nothing refers to any more.
    if threads := _python_threads() or _native_threads():
        raise NotForkable(f"loading the code location starts threads: {', '.join(threads)}")
    if files := _shared_files(inherited):
        raise NotForkable(f"loading the code location leaves files open that runs would share: {', '.join(files)}")


def forget_finalizers() -> None:
    """Disable finalizers of objects made before this fork, such as temporary folders.

    The parent process and its other forks still use these objects.
    """
    for each in [*vars(weakref.finalize)["_registry"]]:
        each.atexit = False


def _python_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each is not threading.main_thread()]


def _native_threads() -> list[str]:
    """Return the names of this process's native threads that a fork would lack.

    Libraries that support forks, such as OpenBLAS, end their threads before a fork. So fork once as a trial, and count
    only the threads that are left.
    """
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
        with suppress(OSError):  # The handle with which the files were listed is closed by now.
            if _is_shared(handle):
                paths.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
    return paths


def _is_shared(handle: int) -> bool:
    """Return whether an open file is one that forks must not share, such as a connection or a database.

    A log that is only appended to may be shared.
    """
    flags = fcntl.fcntl(handle, fcntl.F_GETFL)
    is_written = flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_APPEND
    return is_written and not stat.S_ISCHR(os.fstat(handle).st_mode)
