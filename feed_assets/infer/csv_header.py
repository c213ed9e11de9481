"""Checks of CSV headers for names that a feed cannot have."""

from collections.abc import Sequence
from pathlib import Path

from feed_assets.core.errors import InvalidName


def refuse_names(file: Path, names: Sequence[str]) -> None:
    """Raise InvalidName for a header with an empty or repeated name. Case is ignored, as in Spark."""
    first: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise InvalidName(
                f"{file}: its header has no name for column {number}: expected one for each column. Have the producer "
                "name it."
            )
        if (earlier := first.setdefault(name.lower(), name)) != name:
            raise InvalidName(
                f"{file}: its header has {earlier} and {name}: expected names that differ by more than upper and lower "
                "case. Have the producer rename one."
            )
        if names.index(name) < number - 1:
            raise InvalidName(
                f"{file}: its header has the name {name} twice: expected each name once. Have the producer rename one."
            )
