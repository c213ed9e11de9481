"""Start-up: the time of every command and every run before its own work."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import Benchmark, Goal, Pair, at_home

COMMAND = str(Path(sys.executable).with_name("feed-assets"))
DEFINITIONS = """
import sys
from feed_assets.definitions import defs
defs().get_repository_def()
sys.exit("pyspark" in sys.modules)
"""
NAMES = "from feed_assets import checks, feed_asset, foreign_feed, with_automation"
"""Imports of a typical project module."""


def process(*command: str) -> Callable[[], object]:
    """Return a function that runs a command, and raises if it fails."""
    return lambda: subprocess.run(command, check=True, capture_output=True)


@contextmanager
def both(case: Callable[[], object], floor: Callable[[], object]) -> Iterator[Pair]:
    """Run case and floor in a separate home."""
    with TemporaryDirectory() as folder, at_home(Path(folder)):
        yield Pair(case, floor)


BENCHMARKS = [
    Benchmark(
        "help",
        "feed-assets --help",
        "python -c pass",
        Goal(0.3, "s"),
        20,
        7,
        lambda: both(process(COMMAND, "--help"), process(sys.executable, "-c", "pass")),
    ),
    Benchmark(
        "import",
        "what a project's modules import of feed_assets",
        "python -c 'import dagster'",
        Goal(1.5),
        20,
        5,
        lambda: both(process(sys.executable, "-c", NAMES), process(sys.executable, "-c", "import dagster")),
    ),
    Benchmark(
        "definitions",
        "load the definitions, without Spark",
        "python -c 'import dagster'",
        Goal(1.5),
        20,
        5,
        lambda: both(process(sys.executable, "-c", DEFINITIONS), process(sys.executable, "-c", "import dagster")),
    ),
]
