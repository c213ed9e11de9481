"""Lists as messages tell them."""

from collections.abc import Sequence


def some(names: Sequence[str], most: int) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
