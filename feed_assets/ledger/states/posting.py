"""Log entries about windows: transitions, and hold reasons of windows that stay open."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from feed_assets.core.completeness import WindowState
from feed_assets.core.transitions import check_transition
from feed_assets.core.windows import WindowAddress, minutes_of
from feed_assets.ledger import log, quality
from feed_assets.ledger.log import Change
from feed_assets.ledger.sessions import lock_log
from feed_assets.ledger.states.window_rows import WindowRow

SMALLER = "smaller windows"
"""The name under which the log has a problem of a smaller window. It stands in place of a check's name."""


class NewTransition(NamedTuple):
    """A window's change of state that is not in the log yet, and why the state changed."""

    row: WindowRow
    before: WindowState
    why: str


def post(
    connection: sa.Connection, new: Sequence[NewTransition], held: Sequence[WindowRow], now: datetime, by: str | None
) -> None:
    """Log transitions in order of time, and the changed hold reasons of the windows in `held`.

    A hold reason names the bad parts that keep a window open although all of its data have arrived. Raise
    IllegalTransition for a transition that is not allowed.
    """
    if not new and not held:
        return
    lock_log(connection)
    ordered = sorted(new, key=_in_order)
    changes = [_transition(each, now, by) for each in ordered]
    changes += [_held(row, now, by) for row in sorted(held, key=_address)]
    for number, each in enumerate(ordered, log.append(connection, changes)):
        each.row.changed = number
    for row in [*(each.row for each in new), *held]:
        row.told = row.data


def _transition(new: NewTransition, now: datetime, by: str | None) -> Change:
    row = new.row
    partition = row.address.partition
    check_transition(partition, new.before, row.state)
    return Change(
        partition,
        log.WINDOW,
        row.address.grain,
        at=now,
        before=new.before.value,
        after=row.state.value,
        why=new.why,
        who=by,
    )


def _held(row: WindowRow, now: datetime, by: str | None) -> Change:
    after = quality.FAILED if row.held else quality.PASSED
    return Change(row.address.partition, log.QUALITY, SMALLER, at=now, after=after, why=row.held, who=by)


def _in_order(transition: NewTransition) -> tuple[datetime, int, WindowAddress]:
    row = transition.row
    return row.start, -minutes_of(row.address.grain), row.address


def _address(row: WindowRow) -> WindowAddress:
    return row.address
