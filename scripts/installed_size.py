"""Print the installed size of feed-assets with all its dependencies, as found beside this Python.

    python -I scripts/installed_size.py

Exits with 1 if that is more than `GOAL` times the size of Dagster, its web server and PySpark with Connect.
"""

import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement  # Installed with Dagster.
from packaging.utils import canonicalize_name

GOAL = 1.15
FLOOR = ("dagster", "dagster-webserver", "pyspark[connect]")
LARGEST = 4


def needed(wanted: Iterable[str]) -> set[str]:
    """Return the names of the installed packages that these requirements need, directly or indirectly."""
    seen: set[tuple[str, str]] = set()
    left = [at for each in wanted for at in _named(Requirement(each))]
    while left:
        if (at := left.pop()) not in seen:
            seen.add(at)
            left += _below(*at)
    return {name for name, _ in seen if _is_installed(name)}


def _named(requirement: Requirement) -> Iterator[tuple[str, str]]:
    """Yield a package without an extra, and with each extra of the requirement."""
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
    """Return the size of a package's files, including compiled ones that pip or Python recorded."""
    paths = (Path(str(each.locate())) for each in distribution(name).files or ())
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def main() -> None:
    """Print the size in one line."""
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
