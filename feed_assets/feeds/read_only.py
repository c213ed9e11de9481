"""Files that pyarrow reads by calls of ours: what all of them have alike."""


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
