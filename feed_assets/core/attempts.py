"""Rules for how a run that raised ends in the ledger: only a build that failed for its own reason is an attempt."""

from datetime import timedelta

from feed_assets.core.errors import (
    AlreadyRunning,
    FunctionWrong,
    InvalidDefinition,
    MixedInputs,
    NotAsDeclared,
    NoValidUpdate,
    ServiceUnavailable,
    SparkDied,
    UpdateChanged,
)

FAILED, REFUSED, ABANDONED = "failed", "refused", "abandoned"

ATTEMPTS = frozenset({FAILED, REFUSED})
"""End states that count as attempts: after too many of them on the same inputs a person must act."""

NO_ATTEMPT: tuple[type[Exception], ...] = (
    AlreadyRunning,  # Another run builds the partition.
    MixedInputs,  # The run read nothing: the missing update is on its way.
    NoValidUpdate,  # The run read nothing: any later update is another input.
    ServiceUnavailable,
    UpdateChanged,  # Its pinned update is gone: the next run pins another.
)
"""Errors that are not due to a dataset's function or inputs: the same run may succeed when it is requested again."""


LASTING: tuple[type[Exception], ...] = (FunctionWrong, InvalidDefinition, NotAsDeclared)
"""Mistakes in code, declaration or data that stay until somebody changes one of them (ADR 39)."""


OF_ITS_OWN = (Exception, SystemExit)
"""Exceptions that a function may end with by itself. All others are interrupts: KeyboardInterrupt, and Dagster's when
it terminates a run. No interrupt is a SystemExit, so a SystemExit is the function's `sys.exit()`.
"""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=10)
"""Pauses between two attempts on the same inputs: a problem that passes by itself takes seconds, or minutes."""


MOST_DEATHS = 2
"""Number of runs on the same inputs in which Spark may die. A third one would end the Spark of others again."""


def is_death(reason: str) -> bool:
    """Return whether a run ended because Spark died. `reason` is that in the ledger: `Error: message`."""
    return reason.partition(":")[0] == SparkDied.__name__


def needs_a_change(reason: str) -> bool:
    """Return whether further runs on the same inputs would fail, too. `reason` is that of a run: `Error: message`."""
    return any(reason.partition(":")[0] in _names(error) for error in LASTING)


def is_of_code(reason: str) -> bool:
    """Return whether a change of code is needed. `reason` is that of a run: `Error: message`."""
    return reason.partition(":")[0] == FunctionWrong.__name__


def pause_after(attempts: int) -> timedelta:
    """Return the pause after the last of `attempts` attempts (at least one): 10 s, 2 min, 10 min."""
    return min(FIRST_PAUSE * 12 ** min(attempts - 1, 4), LONGEST_PAUSE)


def end_of(error: BaseException) -> str:
    """Return the state of a run that ends with `error`: `failed`, or `abandoned` if it does not count as an attempt."""
    is_attempt = isinstance(error, OF_ITS_OWN) and not isinstance(error, NO_ATTEMPT)
    return FAILED if is_attempt or isinstance(error, SparkDied) else ABANDONED


def is_outage(error: str | None) -> bool:
    """Return whether `error` names a class of ServiceUnavailable: the next run would fail with it, too."""
    return error in _names(ServiceUnavailable)


def _names(error: type[Exception]) -> set[str]:
    return {error.__name__}.union(*map(_names, error.__subclasses__()))
