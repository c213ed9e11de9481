"""How a run that raised ends in the ledger: only a build that failed for a reason of its own is an attempt."""

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
"""The ends that count: after so many of them on the same inputs a person must look."""

NO_ATTEMPT: tuple[type[Exception], ...] = (
    AlreadyRunning,  # Another run does the work.
    MixedInputs,  # It read nothing, too: what is missing is on its way.
    NoValidUpdate,  # It read nothing: whatever comes is another input.
    ServiceUnavailable,
    UpdateChanged,  # What it pinned is gone: the next run pins something else.
)
"""What says nothing of a dataset's function and its inputs: the same run may succeed when it is asked for again."""


LASTING: tuple[type[Exception], ...] = (FunctionWrong, InvalidDefinition, NotAsDeclared)
"""Mistakes in code, declaration or data that stay until somebody changes one of them (ADR 119)."""


OF_ITS_OWN = (Exception, SystemExit)
"""What a function may end with by itself. All else is an interrupt: KeyboardInterrupt, and Dagster's of a run that it
terminates. None of them is a SystemExit, so that one is the function's `sys.exit()`.
"""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=10), timedelta(minutes=10)
"""Between two attempts on the same inputs: what passes by itself takes seconds, or minutes."""


MOST_DEATHS = 2
"""Runs on the same inputs in which Spark may die: a third one would end what others work with again."""


def is_death(reason: str) -> bool:
    """Return whether a run ended because Spark died, by its reason in the ledger, `Error: message`."""
    return reason.partition(":")[0] == SparkDied.__name__


def needs_a_change(reason: str) -> bool:
    """Return whether no further run on the same inputs can end well, by a run's reason, `Error: message`."""
    return any(reason.partition(":")[0] in _names(error) for error in LASTING)


def is_of_code(reason: str) -> bool:
    """Return whether a change of code is needed, by a run's reason, `Error: message`."""
    return reason.partition(":")[0] == FunctionWrong.__name__


def pause_after(attempts: int) -> timedelta:
    """How long after the last of so many attempts (at least one) the next may begin: 10 s, 2 min, 10 min."""
    return min(FIRST_PAUSE * 12 ** min(attempts - 1, 4), LONGEST_PAUSE)


def end_of(error: BaseException) -> str:
    """The state of a run that ends with this error: `failed`, or `abandoned` if it does not count as an attempt."""
    is_attempt = isinstance(error, OF_ITS_OWN) and not isinstance(error, NO_ATTEMPT)
    return FAILED if is_attempt or isinstance(error, SparkDied) else ABANDONED


def is_outage(error: str | None) -> bool:
    """Whether a class of this name is an error of what every run needs: the next run would end with it, too."""
    return error in _names(ServiceUnavailable)


def _names(error: type[Exception]) -> set[str]:
    return {error.__name__}.union(*map(_names, error.__subclasses__()))
