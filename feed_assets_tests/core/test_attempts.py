"""Outcome of a run that raised: a failed attempt, or no attempt."""

from dagster._core.errors import DagsterExecutionInterruptedError

from feed_assets.core import errors
from feed_assets.core.attempts import ABANDONED, ATTEMPTS, FAILED, REFUSED, end_of
from feed_assets.core.message_words import LONGEST_EXCERPT, LONGEST_REASON, excerpt, reason_of
from feed_assets_tests.support.each_case import each_case

ENDS = {
    RuntimeError("the function's own"): FAILED,
    ZeroDivisionError(): FAILED,
    MemoryError(): FAILED,
    errors.UnreadableUpdate(): FAILED,
    errors.InvalidDefinition(): FAILED,
    errors.InvalidSetting(): FAILED,
    errors.InvalidName(): FAILED,
    errors.UpdateAbandoned(): FAILED,
    errors.SourceUnavailable(): FAILED,
    errors.FeedAssetsError(): FAILED,
    KeyboardInterrupt(): ABANDONED,
    SystemExit(1): FAILED,
    GeneratorExit(): ABANDONED,
    DagsterExecutionInterruptedError(): ABANDONED,
    errors.AlreadyRunning(): ABANDONED,
    errors.BlackboardMissing(): ABANDONED,
    errors.BlackboardRefused(): ABANDONED,
    errors.BlackboardUnavailable(): ABANDONED,
    errors.LedgerUnavailable(): ABANDONED,
    errors.NoValidUpdate(): ABANDONED,
    errors.SparkUnavailable(): ABANDONED,
    errors.UpdateChanged(): ABANDONED,
}


@each_case(("error", "end"), ENDS.items(), ids=lambda each: each if isinstance(each, str) else repr(each))
def test_each_error_ends_a_run_in_its_state(error, end):
    assert end_of(error) == end


@each_case(
    ("shortened", "begins", "most"),
    [
        (lambda text: reason_of(errors.UnreadableUpdate(text)), "UnreadableUpdate: it is long, ", LONGEST_REASON),
        (lambda text: excerpt(f"{text}\nat line 3"), "it is long, ", LONGEST_EXCERPT),
    ],
)
def test_a_long_error_text_is_shortened_in_the_middle_and_keeps_its_remedy(shortened, begins, most):
    whole = shortened("it is long, Do this.")
    assert whole == f"{begins}Do this."
    text = shortened(f"it is long, {'x' * most} Do this.")
    assert text.startswith(begins)
    assert text.endswith("x Do this.")
    assert most <= len(text) <= most + len(" … ")


def test_only_a_failure_of_its_own_and_a_refused_audit_are_attempts():
    assert {FAILED, REFUSED} == ATTEMPTS
