"""Reports of counts and quality for the ledger, as JSON lines from files, pipes and programs.

`core.report_lines` parses them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from getpass import getuser
from hashlib import sha256
from typing import Any, BinaryIO

from feed_assets.core.errors import InvalidDefinition, InvalidName, InvalidReport, PartitionClosed
from feed_assets.core.events import Rejected
from feed_assets.core.limits import READ_BYTES, REJECT_BYTES, ROW_BYTES, as_text, shortened
from feed_assets.core.report_lines import BackfillReport, QualityReport, parse_report
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import event_rejects
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.states import backfills, count_reports, window_policies, window_queries
from feed_assets.ledger.states.count_reports import ReportOutcome
from feed_assets.settings import settings

LINES_PER_TRANSACTION = 1000
"""The most lines per transaction. `READ_BYTES` limits a transaction's bytes.

So other writers wait for at most one batch.
"""

_BOM = b"\xef\xbb\xbf"
_NONE = (InvalidDefinition, InvalidName, InvalidReport, PartitionClosed)

_MOVES = {"started": backfills.begin, "done": backfills.finish, "failed": backfills.give_up}
_OfWindow = QualityReport | BackfillReport

Line = str | Rejected
"""A line as text, or already rejected because it is too long."""


def report_state(records: Iterable[Mapping[str, Any]], by: str | None = None) -> ReportOutcome:
    """Report record counts and quality to the ledger of the settings.

    Args:
        records: The reports as mappings, in the form of the JSON lines of `feed-assets state report`. Moments may be
            datetimes.
        by: The name of the reporter; by default this process's user.

    Returns:
        The numbers of reports that were recorded or already known, the rejected reports with their reasons, and the
        number of windows whose state changed. A rejected report is kept in the ledger and does not stop other reports.

    Raises:
        LedgerUnavailable: The ledger's database does not answer. Recorded reports stay. Repeating the call is harmless.
    """
    total = ReportOutcome()
    for outcome in record(open_ledger(settings().ledger), map(as_text, records), by):
        total = total.with_(outcome)
    return total


def record(ledger: Ledger, lines: Iterable[Line], by: str | None = None) -> Iterator[ReportOutcome]:
    """Record lines as they arrive, and yield the outcome of each batch."""
    reporter = by or getuser()
    for batch in _batches(lines):
        yield _record(ledger, batch, datetime.now(UTC), reporter)


def lines_of(file: BinaryIO) -> Iterator[Line]:
    """Yield the lines of a file or pipe, without blank lines, in bounded memory even for endless lines."""
    number = 0
    while head := file.readline(ROW_BYTES + 1):
        number += 1
        if len(head) > ROW_BYTES and not head.endswith(b"\n"):
            yield _too_long(head, file, number)
        elif text := head.removeprefix(_BOM if number == 1 else b"").strip():
            yield text.decode(errors="surrogateescape")


def _too_long(head: bytes, file: BinaryIO, number: int) -> Rejected:
    size, digest, piece = len(head), sha256(head), head
    while not piece.endswith(b"\n") and (piece := file.readline(ROW_BYTES)):
        size += len(piece)
        digest.update(piece)
    reason = f"line {number} has {size} bytes: expected at most {ROW_BYTES}."
    return Rejected(shortened(head, size, digest.hexdigest(), REJECT_BYTES), reason)


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    batch, size = list[Line](), 0
    for line in lines:
        batch.append(line)
        size += len(line) if isinstance(line, str) else REJECT_BYTES
        if len(batch) == LINES_PER_TRANSACTION or size >= READ_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _record(ledger: Ledger, lines: Sequence[Line], now: datetime, by: str) -> ReportOutcome:
    """Record a batch: first all counts together, then each report on a window. Repetition is harmless."""
    counts, window_reports, rejected = list[Report](), list[tuple[str, _OfWindow]](), list[Rejected]()
    for line in lines:
        parsed = _parsed(line)
        if isinstance(parsed, Rejected):
            rejected.append(parsed)
        elif isinstance(parsed, _OfWindow):
            window_reports.append((str(line), parsed))
        else:
            counts.extend(replace(each, line=str(line)) for each in parsed)
    outcome = count_reports.report(ledger, counts, now, by)
    for line, each in window_reports:
        try:
            outcome = outcome.with_(_record_window(ledger, each, now, by))
        except _NONE as error:
            rejected.append(Rejected(line, str(error)))
    _keep(ledger, rejected, now)
    outcome.rejected.extend(rejected)
    return outcome


def _parsed(line: Line) -> tuple[Report, ...] | _OfWindow | Rejected:
    try:
        return line if isinstance(line, Rejected) else parse_report(line)
    except InvalidReport as error:
        return Rejected(str(line), str(error))


def _record_window(ledger: Ledger, each: _OfWindow, now: datetime, by: str) -> ReportOutcome:
    """Record a report on a window: the result of a check, or a backfill."""
    with ledger.read() as connection:
        tracked = window_policies.tracked(connection, [each.dataset]).get(each.dataset) or window_policies.default()
    window = tracked.window_from(tracked.path_of(each.sub_partition), each.grain, each.start)
    address = WindowAddress(each.dataset, each.sub_partition, each.grain, window.key)
    if isinstance(each, BackfillReport):
        return _MOVES[each.state](ledger, address, each.reason, by, now)
    return window_queries.report_quality(
        ledger, address, each.check, state=each.state, reason=each.reason, by=by, now=now, version=each.version
    )


def _keep(ledger: Ledger, rejected: Sequence[Rejected], now: datetime) -> None:
    if rejected:
        with ledger.write() as connection:
            event_rejects.reject(connection, count_reports.SOURCE, rejected, now)
