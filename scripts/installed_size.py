"""Print the size of feed-assets with all that it needs, as it is installed beside this Python.

    python -I scripts/installed_size.py

Exits with 1 where that is more than `GOAL` times what Dagster, its web server and PySpark with Connect need alone.
"""

import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement  # Dagster needs it, too.
from packaging.utils import canonicalize_name

GOAL = 1.15
FLOOR = ("dagster", "dagster-webserver", "pyspark[connect]")
LARGEST = 4


def needed(wanted: Iterable[str]) -> set[str]:
    """The names of what is installed of these requirements and, in turn, of theirs."""
    seen: set[tuple[str, str]] = set()
    left = [at for each in wanted for at in _named(Requirement(each))]
    while left:
        if (at := left.pop()) not in seen:
            seen.add(at)
            left += _below(*at)
    return {name for name, _ in seen if _is_installed(name)}


def _named(requirement: Requirement) -> Iterator[tuple[str, str]]:
    """A package without an extra, and with each that is asked for."""
    for extra in ("", *requirement.extras):
        yield canonicalize_name(requirement.name), extra


def _below(name: str, extra: str) -> list[tuple[str, str]]:
    if not _is_installed(name):
        return []
    some = map(Requirement, distribution(name).requires or ())
    return [at for each in some if not each.marker or each.marker.evaluate({"extra": extra}) for at in _named(each)]


def _is_installed(name: str) -> bool:
    try:
        return bool(distribution(name))
    except PackageNotFoundError:
        return False


def megabytes(name: str) -> float:
    """What a package's files take, those that pip or Python compiled among them if it has noted them."""
    paths = (Path(str(each.locate())) for each in distribution(name).files or ())
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def main() -> None:
    """Say it in a line."""
    sizes = {name: megabytes(name) for name in needed(["feed-assets"])}
    total, floor = sum(sizes.values()), sum(map(megabytes, needed(FLOOR)))
    largest = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST]
    named = ", ".join(f"{name} {sizes[name]:.0f}" for name in largest)
    print(
        f"installed: {total:.0f} MB in {len(sizes)} packages ({named}), {total / floor:.2f} x {' + '.join(FLOOR)} alone"
    )
    if total > GOAL * floor:
        sys.exit(f"installed: expected at most {GOAL} x. What was added to the dependencies?")


if __name__ == "__main__":
    main()
