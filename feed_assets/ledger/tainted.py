"""Marks of outputs that were built from bad data, by lineage. A mark is the state of the check `inputs`.

After a change, the mark of an output is computed again: was its newest update built from bad data? A mark stays until
these data are known to be good. So it also stays if their state is unknown: their window is open, their update is
withdrawn, or a mapping raises an error. A mark is logged, so downstream outputs get it in the same pass
(`ledger/fan_out.py`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.facts import KnownWindow
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import excerpt, shortened
from feed_assets.core.pins import Pin
from feed_assets.core.reports import INPUTS
from feed_assets.core.windows import WindowAddress, address_of
from feed_assets.ledger import batch_sets, log, quality, updates, window_facts
from feed_assets.ledger.database import upsert
from feed_assets.ledger.log import Change, LogEntry
from feed_assets.ledger.quality import FAILED, MARKED, PASSED, STALE, CheckState
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.window_rows import WindowRow, backfilling
from feed_assets.ledger.tables import quality as table

BY = "lineage"
"""The reporter of marks."""

NAMED = 24
"""Maximum number of bad inputs that a mark names. The others are only counted."""

WindowsRead = Callable[[Partition, Collection[Partition]], Iterable[WindowAddress] | None]
"""Function that returns the feed windows for which an output waited, given its consumed feed partitions.

The function returns None if the windows are unknown.
"""

_NEVER = CheckState("", None)
_GOOD = {None, WindowState.OPEN, WindowState.COMPLETE}
_UNKNOWN = KnownWindow()


def no_windows(output: Partition, read: Collection[Partition]) -> tuple[()]:  # noqa: ARG001
    """Return no windows, for outputs without declared windows of feeds."""
    return ()


@dataclass(frozen=True)
class BuildDeclarations:
    """Declarations of how outputs are made.

    `windows_read` returns the feed windows for which an output waited. `kept` are datasets that no backfill rebuilds.
    """

    windows_read: WindowsRead = no_windows
    kept: Collection[Feed] = frozenset()


AS_KNOWN = BuildDeclarations()
"""Default declarations, if none are loaded."""


def may_spread(change: LogEntry, output: Partition) -> bool:
    """Return whether a change may add or end an output's mark, which says that the output was made of bad data.

    Such a change concerns a check, a window, or the output itself.
    """
    is_of_windows = change.kind == log.WINDOW and not {change.before, change.after} <= _GOOD
    return change.kind == log.QUALITY or is_of_windows or (change.kind == log.UPDATE and change.partition == output)


def may_clear(change: LogEntry, output: Partition) -> bool:
    """Return whether a change can only end an output's mark, because data of the output are valid again.

    Only marked outputs, which are few, need a check after such a change.
    """
    is_complete = change.kind == log.WINDOW and change.after in DONE
    return is_complete or (change.kind == log.UPDATE and change.after == log.PUBLISHED and change.partition != output)


def marked(connection: sa.Connection, outputs: Collection[Partition]) -> set[Partition]:
    """Return the outputs that are marked, which means made of bad data."""
    return {*quality.failed(connection, outputs, (MARKED,))} if outputs else set()


def look(
    connection: sa.Connection, outputs: Collection[Partition], declarations: BuildDeclarations = AS_KNOWN
) -> dict[Partition, str | None]:
    """Return for each output the problem of the data from which it was built, or None if these data are good.

    Skip outputs without a published update, and marked outputs whose mark must stay.
    """
    published = batch_sets.newest(connection, outputs)
    consumed = batch_sets.consumed(connection, published)
    failed = _failed(connection, {at for pins in consumed.values() for at in _of_feeds(pins)})
    of_feeds = {
        output: declarations.windows_read(output, _good_feeds(pins, failed)) for output, pins in consumed.items()
    }
    read = {output: [*_of_tables(pins), *(of_feeds[output] or ())] for output, pins in consumed.items()}
    window_states = window_facts.known_at(connection, read.values())
    reasons = {
        output: _why(consumed.get(output, ()), failed, read.get(output, ()), window_states) for output in published
    }
    good = marked(connection, [output for output, why in reasons.items() if not why])
    stays = {output for output in good if of_feeds.get(output, ()) is None}
    stays |= _made_again(connection, {output: read[output] for output in good if output in read})
    pins_of = {output: consumed.get(output, ()) for output in good}
    stays |= {output for output in good if _is_open(pins_of[output], read.get(output, ()), window_states)}
    stays |= _made_of_withdrawn(connection, pins_of)
    kept = {
        output
        for output in good
        if output.feed in declarations.kept and _is_backfilled(read.get(output, ()), window_states)
    }
    remade = {output: pins for output, pins in pins_of.items() if output not in kept}
    stays |= _made_of_older(connection, remade, window_states)
    return {output: why for output, why in reasons.items() if output not in stays}


def _is_open(
    pins: Iterable[Pin], windows: Iterable[WindowAddress], window_states: Mapping[Partition, KnownWindow]
) -> bool:
    """Return whether a window that was read is open. If so, no good data have replaced the bad data yet.

    A feed may be read while its window is open. So a feed's window counts only if a check of this window failed.
    """
    tables = {pin.partition for pin in pins}
    states = ((at.partition in tables, window_states.get(at.partition) or _UNKNOWN) for at in windows)
    return any(at.state not in DONE and (is_table or at.is_suspect) for is_table, at in states)


def _is_backfilled(windows: Iterable[WindowAddress], window_states: Mapping[Partition, KnownWindow]) -> bool:
    """Return whether a window that was read was backfilled since.

    Outputs that no backfill rebuilds keep their old data.
    """
    return any((window_states.get(at.partition) or _UNKNOWN).state is WindowState.BACKFILLED for at in windows)


def _made_of_withdrawn(connection: sa.Connection, consumed: Mapping[Partition, Collection[Pin]]) -> set[Partition]:
    """Return the outputs that were built from an update that is now invalid, if its partition has no valid update."""
    read = {pin for pins in consumed.values() for pin in _feed_pins(pins)}
    valid = updates.newest(connection, {pin.partition for pin in read}) if read else {}
    gone = updates.invalidated(connection, [pin for pin in read if pin.partition not in valid])
    return {output for output, pins in consumed.items() if not gone.isdisjoint(pins)}


def _feed_pins(pins: Iterable[Pin]) -> Iterable[Pin]:
    return (pin for pin in pins if not pin.is_slice and not address_of(pin.partition))


def _made_of_older(
    connection: sa.Connection,
    consumed: Mapping[Partition, Collection[Pin]],
    window_states: Mapping[Partition, KnownWindow],
) -> set[Partition]:
    """Return the outputs whose consumed data have been replaced by newer, good data.

    They stay marked until they are rebuilt. Otherwise their readers would be built twice: from bad data, and again
    after the rebuild.
    """
    read = {pin.partition for pins in consumed.values() for pin in pins}
    now = {at: row.version for at, row in updates.newest(connection, read).items()}
    now |= {at: pin.version for at in read if at in window_states and (pin := window_states[at].pin(at))}
    return {
        output
        for output, pins in consumed.items()
        if any(now.get(pin.partition, pin.version) != pin.version for pin in pins)
    }


def _made_again(connection: sa.Connection, read: Mapping[Partition, Collection[WindowAddress]]) -> set[Partition]:
    """Return the outputs whose windows, or parts of them, are being backfilled.

    Their marks stay until the backfill ends. Otherwise readers of these outputs would be built between the start of a
    backfill and its checks.
    """
    again = backfilling(connection, {at.dataset for windows in read.values() for at in windows})
    rows = (
        window_queries.stored_windows(connection, {at for windows in read.values() for at in windows}) if again else {}
    )
    return {
        output for output, windows in read.items() if any(_overlaps(rows[at], again) for at in windows if at in rows)
    }


def _overlaps(row: WindowRow, windows: Iterable[WindowRow]) -> bool:
    same_dataset = (each for each in windows if each.address.dataset == row.address.dataset)
    return any(each.start < row.end and row.start < each.end for each in same_dataset)


def _failed(connection: sa.Connection, read: Collection[Partition]) -> dict[Partition, str]:
    """Return the problem of each read partition whose data are bad.

    A mark is passed on unchanged, so that it names its origin. A problem of a partition applies to its batches.
    """
    partitions = {each for at in read for each in (at, at.parent) if each}
    marked = quality.failed(connection, partitions, (MARKED,))
    failed = {at: f"{at} ({why})" for at, why in quality.failed(connection, partitions, (FAILED, STALE)).items()}
    problems = {**marked, **failed}
    return {at: why for at in read for each in (at, at.parent) if each and (why := problems.get(each))}


def _of_tables(pins: Iterable[Pin]) -> list[WindowAddress]:
    return [at for pin in pins if (at := address_of(pin.partition))]


def _good_feeds(pins: Collection[Pin], failed: Mapping[Partition, str]) -> set[Partition]:
    """Return the feed partitions that were read. Skip feeds with a bad partition, which already explains the mark."""
    bad = {at.feed for at in _of_feeds(pins) if at in failed}
    return {at for at in _of_feeds(pins) if at.feed not in bad}


def _of_feeds(pins: Iterable[Pin]) -> set[Partition]:
    return {pin.partition for pin in pins if not address_of(pin.partition)}


def _why(
    pins: Iterable[Pin],
    failed: Mapping[Partition, str],
    windows: Iterable[WindowAddress],
    window_states: Mapping[Partition, KnownWindow],
) -> str | None:
    partitions = [failed[pin.partition] for pin in sorted(pins) if pin.partition in failed]
    bad = [(at, state) for at in windows if (state := window_states.get(at.partition)) and state.is_bad]
    window_problems = [f"{at.grain} {at.key} of {_whose(at)} {state.phrase}" for at, state in bad]
    return excerpt(shortened([*dict.fromkeys(partitions + window_problems)], NAMED)) or None


def _whose(at: WindowAddress) -> str:
    return f"{at.dataset} {at.sub_partition}".rstrip()


def put(connection: sa.Connection, reasons: Mapping[Partition, str | None], now: datetime) -> None:
    """Mark outputs that have a reason, and end the marks of outputs with None. Write only differences.

    Outputs that were never marked have no row.
    """
    check_states = quality.check_states(connection, reasons)
    was = {output: check_states.get((output, INPUTS), _NEVER) for output in reasons}
    states = {output: CheckState(MARKED if why else PASSED, why) for output, why in sorted(reasons.items())}
    new = {at: state for at, state in states.items() if state != was[at] and MARKED in (state.state, was[at].state)}
    common = {"check": INPUTS, "by": BY, "at": now}
    rows = [{"feed": str(at.feed), "partition": at.key, **vars(state), **common} for at, state in new.items()]
    changes = [
        Change(
            at,
            log.QUALITY,
            INPUTS,
            at=now,
            before=was[at].state or None,
            after=state.state,
            why=state.reason,
            who=BY,
        )
        for at, state in new.items()
    ]
    upsert(connection, table, rows, ["state", "reason", "by", "at"])
    log.append(connection, changes)


def mark(connection: sa.Connection, output: Partition, now: datetime) -> None:
    """Mark an output if it was built from data that are known to be bad.

    Call this in the transaction that publishes it. This looks only at the inputs that the output has read. The next
    fan-out pass also looks at the windows of feeds for which the output waited, and may change the mark.
    """
    reasons = look(connection, [output])
    put(connection, {at: why for at, why in reasons.items() if why}, now)
