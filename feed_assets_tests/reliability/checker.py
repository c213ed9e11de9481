"""The judge of a world that has come to rest: all invariants of the files `judge_….py`.

It imports nothing of the system, and reads published forms alone.
"""

from functools import cache
from importlib import import_module
from pathlib import Path

from feed_assets_tests.reliability.evidence import Evidence, Invariant, registered

FILES = ("checker", "evidence", "published", "store")
"""Modules of the checker, beside those of its invariants."""


@cache
def invariants() -> dict[str, Invariant]:
    """Return all invariants by name."""
    for file in sorted(Path(__file__).parent.glob("judge_*.py")):
        import_module(f"{__package__}.{file.stem}")
    return registered


def check(evidence: Evidence) -> list[str]:
    """Return the objections of all invariants."""
    return [f"{name}: {each}" for name, judge in invariants().items() for each in judge(evidence)]
