"""Base classes of files that pyarrow reads through our calls."""

from feed_assets.core.feeds import File
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import check_served


class ReadOnlyFile:
    """A file object for pyarrow, less `read`, `seek` and `tell`."""

    closed = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: pyarrow reads from the end."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing: the file is only read."""

    def close(self) -> None:
        """Note that pyarrow is done with it."""
        self.closed = True


class RangedFile(ReadOnlyFile):
    """A file on a blackboard, read by ranges, each of the file that was listed."""

    def __init__(self, board: Blackboard, file: File) -> None:
        self._board, self._file, self._at = board, file, 0

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, or all that are left."""
        remaining = self._file.size - self._at
        size = remaining if size < 0 else min(size, remaining)
        if size <= 0:
            return b""
        served, data = self._board.part(self._file.key, self._at, size) or (None, b"")
        check_served(self._file, served)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a byte, and return its number."""
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def tell(self) -> int:
        """Return the number of the next byte."""
        return self._at
