"""The table of allowed transitions between a window's states, for judging, backfills and the docs.

Source: "Data Dependency Driven Orchestration", "mutable with predefined data quality and backfill transition rules".
"""

from collections.abc import Mapping
from types import MappingProxyType

from feed_assets.core.completeness import WindowState
from feed_assets.core.errors import IllegalTransition

_OPEN, _COMPLETE, _WITH_ISSUE, _INVALID, _BACKFILLING, _BACKFILLED = WindowState

_CORRECTED = "after a correction its counts are below the ratio, or a window in it is bad"
_ISSUE = "there are duplicates, an input is bad, or a window that contains it is bad"
_FAILED = "a check failed"
_BEGUN = "somebody makes its data again"

TRANSITIONS: Mapping[WindowState, Mapping[WindowState, str]] = MappingProxyType(
    {
        _OPEN: {
            _COMPLETE: "all its data are there, or somebody has accepted it",
            _WITH_ISSUE: _ISSUE,
            _INVALID: _FAILED,
        },
        _COMPLETE: {_OPEN: _CORRECTED, _WITH_ISSUE: _ISSUE, _INVALID: _FAILED, _BACKFILLING: _BEGUN},
        _WITH_ISSUE: {
            _OPEN: _CORRECTED,
            _COMPLETE: "nothing is wrong with it any more",
            _INVALID: _FAILED,
            _BACKFILLING: _BEGUN,
        },
        _INVALID: {
            _OPEN: _CORRECTED,
            _COMPLETE: "its checks pass",
            _WITH_ISSUE: "its checks pass, and there is another issue",
            _BACKFILLING: _BEGUN,
        },
        _BACKFILLING: {
            _BACKFILLED: "its data were made again, and all are there",
            _OPEN: "its data were made again, or the backfill was given up, and it is not complete",
            _INVALID: "the backfill was given up, and a check had failed",
            _COMPLETE: "the backfill was given up, and nothing was wrong with it",
            _WITH_ISSUE: "the backfill was given up, and it had an issue",
        },
        _BACKFILLED: {_OPEN: _CORRECTED, _WITH_ISSUE: _ISSUE, _INVALID: _FAILED, _BACKFILLING: _BEGUN},
    }
)
"""The states that may follow each state, with the cause. There are no other transitions."""


def check_transition(label: object, before: WindowState, after: WindowState) -> None:
    """Raise IllegalTransition if a window cannot change from one state to the other."""
    if after not in TRANSITIONS[before]:
        allowed = ", ".join(TRANSITIONS[before])
        raise IllegalTransition(
            f"{label} is {before} and cannot become {after}: after {before} come {allowed}. "
            "`feed-assets state show` shows the state and the reason."
        )
