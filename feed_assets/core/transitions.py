"""The table of allowed transitions between a window's states, for judging, backfills and the docs.

Source: "Data Dependency Driven Orchestration", "mutable with predefined data quality and backfill transition rules".
"""

from collections.abc import Mapping
from types import MappingProxyType

from feed_assets.core.completeness import WindowState
from feed_assets.core.errors import IllegalTransition

_OPEN, _COMPLETE, _WITH_ISSUE, _INVALID, _BACKFILLING, _BACKFILLED = WindowState

_CORRECTED = "a correction of its counts leaves it below the ratio, or a part of it is bad"
_ISSUE = "there are duplicates, or what holds it or what it was made of is bad"
_FAILED = "a check of it failed"
_BEGUN = "somebody makes it again"

TRANSITIONS: Mapping[WindowState, Mapping[WindowState, str]] = MappingProxyType(
    {
        _OPEN: {
            _COMPLETE: "all of it is there, or somebody has accepted it",
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
            _BACKFILLED: "it was made again, and all of it is there",
            _OPEN: "it was made again or given up, and is not complete",
            _INVALID: "the backfill was given up, and a check of it had failed",
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
            "`feed-assets state show` says what it is, and why."
        )
