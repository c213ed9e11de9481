"""Rules for how the ledger records a run that raised an error. Only a failure of the build counts as an attempt."""

from datetime import timedelta

from feed_assets.core.errors import (
    AlreadyRunning,
    FunctionWrong,
    InvalidDefinition,
    MixedInputs,
    NotAsDeclared,
    NoValidUpdate,
    ResourcesBusy,
    ServiceUnavailable,
    SparkDied,
    TargetLost,
    UpdateChanged,
)

FAILED, REFUSED, ABANDONED = "failed", "refused", "abandoned"

ATTEMPTS = frozenset({FAILED, REFUSED})
"""End states that count as attempts: after too many of them on the same inputs a person must act."""

NO_ATTEMPT: tuple[type[Exception], ...] = (
    AlreadyRunning,  # Another run builds the partition.
    MixedInputs,  # The run read nothing. It runs again when an update arrives that belongs to the other inputs.
    NoValidUpdate,  # The run read nothing. Once there is an update, the run has another input.
    ResourcesBusy,  # The run built nothing.
    ServiceUnavailable,
    TargetLost,  # No outage: the run is tried on another target.
    UpdateChanged,  # The update that the run has pinned is gone: the next run pins another.
)
"""Errors that are not due to a dataset's function or inputs: the same run may succeed when it is requested again."""


LASTING: tuple[type[Exception], ...] = (FunctionWrong, InvalidDefinition, NotAsDeclared)
"""Errors that every run repeats until a person changes the code, the declaration or the data (ADR 39)."""


OF_ITS_OWN = (Exception, SystemExit)
"""Exceptions that a function itself may raise. All others are interrupts: KeyboardInterrupt, and the exception by which
Dagster terminates a run. No interrupt is a SystemExit, so a SystemExit means that the function called `sys.exit()`.
"""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=10)
"""Shortest and longest pause between two attempts on the same inputs. Temporary problems take seconds or minutes."""


MOST_DEATHS = 2
"""Maximum number of runs on the same inputs in which Spark dies. A further run could again end Spark for other runs."""


def is_death(reason: str) -> bool:
    """Return whether a run ended because Spark died. `reason` is the run's reason in the ledger, `Error: message`."""
    return reason.partition(":")[0] == SparkDied.__name__


def needs_a_change(reason: str) -> bool:
    """Return whether further runs on the same inputs would fail, too. `reason` is a run's reason, `Error: message`."""
    return any(reason.partition(":")[0] in _names(error) for error in LASTING)


def is_of_code(reason: str) -> bool:
    """Return whether a change of code is needed. `reason` is a run's reason, `Error: message`."""
    return reason.partition(":")[0] == FunctionWrong.__name__


def pause_after(attempts: int) -> timedelta:
    """Return the pause after the last of `attempts` attempts (at least one): 10 s, 2 min, 10 min."""
    return min(FIRST_PAUSE * 12 ** min(attempts - 1, 4), LONGEST_PAUSE)


def end_of(error: BaseException) -> str:
    """Return the state of a run that ends with `error`: `failed`, or `abandoned` if it does not count as an attempt."""
    is_attempt = isinstance(error, OF_ITS_OWN) and not isinstance(error, NO_ATTEMPT)
    return FAILED if is_attempt or isinstance(error, SparkDied) else ABANDONED


def is_outage(error: str | None) -> bool:
    """Return whether `error` names ServiceUnavailable or a subclass. In an outage the next run would fail, too."""
    return error in _names(ServiceUnavailable)


def _names(error: type[Exception]) -> set[str]:
    return {error.__name__}.union(*map(_names, error.__subclasses__()))
