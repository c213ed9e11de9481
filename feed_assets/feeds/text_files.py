"""Checks of CSV and JSON files before and after Spark reads them: whether they changed, and their compression."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import File
from feed_assets.core.packed import BZIP2_END, MAGIC_BYTES, end_problem, packing_problem
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import check_served

AT_A_TIME = 16


def check_text_files(board: Blackboard, files: Iterable[File]) -> None:
    """Raise UnreadableUpdate for a compression that Spark cannot read, UpdateChanged if a file is not the listed one.

    This costs a request of 16 bytes for each file, and one of 11 bytes for each .bz2 file.
    """
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(partial(_check, board), files))


def check_unaltered(board: Blackboard, files: Iterable[File]) -> None:
    """Raise UpdateChanged if a file changed since it was listed. This costs a HEAD request for each file."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(partial(_check_listed, board), files))


def first_part(board: Blackboard, file: File, size: int) -> bytes:
    """Return the first bytes of a non-empty file, at most `size`.

    Raise UnreadableUpdate for a compression that Spark cannot read, UpdateChanged if the file is not the listed one.
    """
    data = _part(board, file, 0, size)
    problem = packing_problem(file.key, data, file.size)
    if problem is None and file.key.endswith(".bz2"):
        problem = end_problem(file.key, _part(board, file, max(file.size - BZIP2_END, 0), BZIP2_END))
    if problem:
        raise UnreadableUpdate(
            f"{file.key} cannot be read: {problem}. Invalidate the update (`feed-assets feed invalidate`), and have it "
            "published again."
        )
    return data


def _check(board: Blackboard, file: File) -> None:
    if file.size:
        first_part(board, file, MAGIC_BYTES)
    else:
        _check_listed(board, file)


def _check_listed(board: Blackboard, file: File) -> None:
    check_served(file, board.file(file.key))


def _part(board: Blackboard, file: File, start: int, size: int) -> bytes:
    served, data = board.part(file.key, start, size) or (None, b"")
    check_served(file, served)
    return data
