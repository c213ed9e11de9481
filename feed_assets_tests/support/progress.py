"""Progress of long tests, for the log."""

import sys


def print_progress(words: str) -> None:
    """Print words at once, for the log of a test that fails."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()
