"""File objects through which pyarrow reads files."""

from feed_assets.core.feeds import File
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import check_served


class ReadOnlyFile:
    """A base class of file objects for pyarrow. Subclasses add `read`, `seek` and `tell`."""

    closed = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: pyarrow reads the end of a file first."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing: the file is only read."""

    def close(self) -> None:
        """Mark the file as closed."""
        self.closed = True


class RangedFile(ReadOnlyFile):
    """A file on a blackboard, read in ranges. A read raises UpdateChanged if the file is not the listed one."""

    def __init__(self, board: Blackboard, file: File) -> None:
        self._board, self._file, self._at = board, file, 0

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or by default all remaining bytes."""
        remaining = self._file.size - self._at
        size = remaining if size < 0 else min(size, remaining)
        if size <= 0:
            return b""
        served, data = self._board.part(self._file.key, self._at, size) or (None, b"")
        check_served(self._file, served)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position in bytes, and return it."""
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._at
