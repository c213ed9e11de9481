"""A home folder for one test."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from feed_assets.settings import PREFIX, settings
from feed_assets.testing.environment import noted_environment

_OF_SPARK = f"{PREFIX}SPARK_"


@contextmanager
def fresh_home(folder: Path) -> Generator[Path]:
    """Let this process work in a new home folder with an empty blackboard and ledger, until the block ends.

    Settings have their defaults, except `FEED_ASSETS_SPARK_…`, which locate Spark. Variables that were set before
    do not count as the test's: a `Harness` refuses to use the databases that they name.

    Args:
        folder: The folder to create. Its parent must exist.

    Yields:
        The folder. It stays after the `with` block, which restores the environment.
    """
    before = _own_variables()
    folder.mkdir(0o700)
    with noted_environment():
        spark = {name: value for name, value in before.items() if name.startswith(_OF_SPARK)}
        _set(spark | {"DAGSTER_HOME": str(folder)})
        try:
            yield folder
        finally:
            _set(before)


def _own_variables() -> dict[str, str]:
    """Return all variables that configure feed_assets, and Dagster's home."""
    return {name: value for name, value in os.environ.items() if name == "DAGSTER_HOME" or name.startswith(PREFIX)}


def _set(variables: dict[str, str]) -> None:
    for name in _own_variables():
        del os.environ[name]
    os.environ.update(variables)
    settings.cache_clear()
