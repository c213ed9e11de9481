"""Check that a Harness uses environment variables of the test, and none of the developer's shell."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dotenv import dotenv_values, find_dotenv
from dotenv.main import DotEnv

from feed_assets.core.errors import SourceNotGiven
from feed_assets.home import home
from feed_assets.settings import PREFIX

_STORES = ("BLACKBOARD", "BLACKBOARDS", "BLACKBOARD_QUEUE", "LEDGER")
_SERVERS = ("KAFKA", "KAFKA_REGISTRY", "WAREHOUSES", "TARGETS")
_DELIVERIES = ("EVENTS_TO", "ALERT_WEBHOOK", "ALERT_SMTP", "ALERT_APPRISE")
_REACHING = ("DAGSTER_HOME", *(f"{PREFIX}{name}" for name in (*_STORES, *_SERVERS, *_DELIVERIES)))
"""Variables that say where a Harness reads, writes and delivers to."""


def _of_the_shell() -> list[Mapping[str, str | None]]:
    """Return three sets of variables: the environment, and the project's `.env` file read in two ways.

    They differ in how `${NAME}` in the file is replaced: in the second set by the file's own value, and only then by
    the shell's. In the third set the shell's value comes first.
    """
    file = find_dotenv(usecwd=True)
    return [dict(os.environ), dotenv_values(file), DotEnv(file, override=False).dict() if file else {}]


_ENVIRONMENTS = _of_the_shell()
"""The environment at the start of the tests, and at the start of each open `fresh_home`.

If a variable now has another value, the test has set it.
"""


@contextmanager
def noted_environment() -> Generator[None]:
    """Treat the variables that have a value now as not set by the test, until the block ends."""
    _ENVIRONMENTS.append(dict(os.environ))
    try:
        yield
    finally:
        _ENVIRONMENTS.pop()


def is_of_the_test(variable: str) -> bool:
    """Return whether a variable was set by the test, not by the shell, a `.env` file or a module loaded earlier."""
    value = os.environ.get(variable)
    return value is not None and all(each.get(variable) != value for each in _ENVIRONMENTS)


def refuse_settings_of_the_shell() -> None:
    """Raise SourceNotGiven if a test would use a setting of the developer's shell or the project's home."""
    __tracebackhide__ = True
    if "DAGSTER_HOME" not in os.environ:
        raise SourceNotGiven(
            f"a Harness would use {home()}, the home of `feed-assets run`: expected a home of the test. Make the "
            'Harness in `with fresh_home(tmp_path / "home"):`.'
        )
    names = [name for name in _REACHING if name in os.environ and not is_of_the_test(name)]
    if names:
        raise SourceNotGiven(
            f"a Harness would use {', '.join(names)} of this shell: expected values that the test sets. Make the "
            'Harness in `with fresh_home(tmp_path / "home"):`, which unsets them, and set the test\'s own values there.'
        )


def refuse_another_home(of_the_harness: Path) -> None:
    """Raise SourceNotGiven if the current home folder is not the one in which a Harness was made.

    This happens if the Harness is used after the end of its `with fresh_home(…):` block.
    """
    __tracebackhide__ = True
    if home() != of_the_harness:
        raise SourceNotGiven(
            f"this Harness was made in {of_the_harness}, which the test has left, and would now use {home()}. Use it "
            "within its `with fresh_home(…):` block: a fixture needs `yield harness` there, not `return harness`."
        )
    refuse_settings_of_the_shell()
