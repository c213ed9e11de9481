"""Count reports of parts and sources. The newest report of each part counts, and replaces the report before it.

Reports may arrive in any order, repeatedly, and from many processes: the result depends only on the newest report of
each part. Source: "Data Dependency Driven Orchestration", "the record count and Kafka offset for each part".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import INGESTED
from feed_assets.core.errors import FeedAssetsError, InvalidReport
from feed_assets.core.events import Rejected, is_moment
from feed_assets.core.feeds import Feed
from feed_assets.core.reports import NO_VERSION, Report, as_text, version_shown, windows_of
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import window_of
from feed_assets.ledger import bulk, closures, event_rejects, key_tables
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.states import offset_checks, window_policies
from feed_assets.ledger.states.deltas import Delta
from feed_assets.ledger.states.rollup import Judging
from feed_assets.ledger.tables import report as table
from feed_assets.ledger.update_counts import COUNTER

SOURCE = "state"
"""The source under which rejected reports are stored, beside rejected events."""

_Key = tuple[str, str, str]
_Deltas = dict[tuple[str, datetime], Delta]
_COUNTED = tuple(table.c[name] for name in ("sub_partition", "tier", "part", "version", "digest", "windows"))
_COLUMNS = ("version", "digest", "windows", "records", "first", "last", "offsets", "snapshot", "batch", "schema")


@dataclass
class ReportOutcome:
    """The outcome of reports: how many were recorded, known before (or older than a known report), or rejected.

    `transitions` is the number of windows that changed their state.
    """

    accepted: int = 0
    known: int = 0
    transitions: int = 0
    rejected: list[Rejected] = field(default_factory=list[Rejected])

    def with_(self, other: "ReportOutcome") -> "ReportOutcome":
        """Return the outcome of both groups of reports together."""
        rejected, transitions = [*self.rejected, *other.rejected], self.transitions + other.transitions
        return ReportOutcome(self.accepted + other.accepted, self.known + other.known, transitions, rejected)


def report(ledger: Ledger, reports: Sequence[Report], now: datetime, by: str | None = None) -> ReportOutcome:
    """Record reports, and log the window transitions that follow, in one transaction.

    Invalid reports are stored as rejects with the reason, and returned. If a sum of counts overflows, bisection of the
    list finds the report to reject. A repeated call changes nothing.
    """
    try:
        return _in_one(ledger, reports, now, by)
    except InvalidReport as error:
        if len(reports) == 1:
            outcome = ReportOutcome(rejected=[Rejected(as_text(reports[0]), str(error))])
            with ledger.write() as connection:
                event_rejects.reject(connection, SOURCE, outcome.rejected, now)
            return outcome
    middle = len(reports) // 2
    first, second = (report(ledger, half, now, by) for half in (reports[:middle], reports[middle:]))
    total = first.with_(second)
    return replace(total, rejected=[*{each.raw: each for each in reversed(total.rejected)}.values()][::-1])


def _in_one(ledger: Ledger, reports: Sequence[Report], now: datetime, by: str | None) -> ReportOutcome:
    outcome = ReportOutcome()
    grouped: dict[Feed, list[Report]] = {}
    for each in reports:
        grouped.setdefault(each.dataset, []).append(each)
    if not grouped:
        return outcome
    with ledger.write() as connection:
        for dataset, tracked in window_policies.lock(connection, grouped, now).items():
            _Recording(connection, dataset, tracked, now=now, by=by, outcome=outcome).record(grouped[dataset])
        outcome.rejected = _by_line(outcome.rejected)
        event_rejects.reject(connection, SOURCE, outcome.rejected, now)
    return outcome


def _by_line(rejected: Iterable[Rejected]) -> list[Rejected]:
    """Return one reject for each line, with its first reason, because a line may have several reports."""
    reasons_by_line: dict[str, dict[str, None]] = {}
    for each in rejected:
        reasons_by_line.setdefault(each.raw, {})[each.reason] = None
    return [
        Rejected(raw, next(iter(whys)) + (f" (the first of {len(whys)} reasons)" if len(whys) > 1 else ""))
        for raw, whys in reasons_by_line.items()
    ]


@dataclass(frozen=True)
class _Recording:
    """Writer of reports about one dataset into the ledger. The caller must have locked the dataset's row."""

    connection: sa.Connection
    dataset: Feed
    tracked: Tracked
    now: datetime
    by: str | None
    outcome: ReportOutcome

    def record(self, reports: Sequence[Report]) -> None:
        placed = map(self._placed, reports)
        newest = self._newest([each for each in placed if self._is_sound(each)])
        before = self._stored(newest.values())
        new = [each for each in newest.values() if self._is_newer(each, before.get(each.key))]
        judging = Judging(self.connection, self.dataset, self.tracked, self.now, self.by)
        new = self._not_closed(self._not_folded(new, before, judging), before)
        if not new:
            return
        bulk.insert(self.connection, table, [self._values(each) for each in new], (*_COLUMNS, "by", "at"))
        deltas = _deltas(new, before)
        is_by_others = self.by != COUNTER and any(each.tier == INGESTED for each in new)
        if is_by_others and window_policies.put_reported(self.connection, self.dataset):
            self._take_back(deltas)
        compared = offset_checks.record(
            self.connection, self.dataset, self.tracked, _offset_changes(new, before), judging.base_of
        )
        self.outcome.transitions += judging.count(deltas, compared)
        self.outcome.accepted += len(new)
        if named := [each for each in new if each.schema]:
            last = max(named, key=_version)
            window_policies.put_schema(self.connection, self.dataset, last.schema or "", last.version)

    def _take_back(self, deltas: _Deltas) -> None:
        """Remove the counts that feed_assets made itself for a feed, because its producer reports from now on.

        This happens once for each feed.
        """
        is_own = (table.c.dataset == str(self.dataset)) & (table.c.by == COUNTER)
        gone = sa.delete(table).where(is_own).returning(*_COUNTED)
        for each in self.connection.execute(gone).all():
            _add(deltas, each, windows_of(each.windows).items(), -1)

    def _placed(self, new: Report) -> Report:
        """Return a report with the levels of its sub-partition in the declared order."""
        path = self.tracked.path_of(new.sub_partition)
        return new if path == new.sub_partition else replace(new, sub_partition=path)

    def _is_sound(self, new: Report) -> bool:
        """Return whether a report names only a tier, a sub-partition and windows that the dataset has.

        Otherwise reject it.
        """
        try:
            if self.tracked.is_ours and new.tier == INGESTED and self.by != COUNTER:
                raise InvalidReport(
                    f"{self.dataset} is built by our runs, which report its records. Report the counts of its sources."
                )
            if self.tracked.tiers and new.windows and new.tier not in (INGESTED, *self.tracked.tiers):
                raise InvalidReport(f"tier {new.tier!r}: expected one of {', '.join(self.tracked.tiers)}, as declared.")
            self.tracked.check(new.sub_partition)
            for start, _ in new.windows:
                self._check_window(new.sub_partition, start)
        except FeedAssetsError as error:
            self._reject(new, str(error))
            return False
        return True

    def _check_window(self, sub_partition: str, start: datetime) -> None:
        base = self.tracked.base
        window = window_of(base, start, self.tracked.zone_of(sub_partition))
        if window.start != start:
            raise InvalidReport(
                f"window {start:%Y-%m-%dT%H:%M:%SZ} is not the start of a window of {base!r}: expected, for example, "
                f"{window.start:%Y-%m-%dT%H:%M:%SZ}."
            )
        if not self.tracked.members:
            return
        if not self.tracked.expects(sub_partition, window):
            raise InvalidReport(
                f"{sub_partition} is not expected in {window.key}: it joined the dataset later, or had left it. "
                "Correct its dates in the declaration, or the report."
            )
        self.tracked.check(sub_partition, window)

    def _newest(self, reports: Iterable[Report]) -> dict[_Key, Report]:
        """Return the report with the greatest version of each part. If versions are equal, the first report counts."""
        report_by_key: dict[_Key, Report] = {}
        for new in reports:
            if self._is_newer(new, previous := report_by_key.get(new.key)):
                self.outcome.known += previous is not None
                report_by_key[new.key] = new
        return report_by_key

    def _is_newer(self, new: Report, previous: Any | None) -> bool:
        if previous is None:
            return True
        if not _are_of_one_kind(new.version, previous.version):
            before, now = version_shown(previous.version), version_shown(new.version)
            problem = f"part {new.part!r} has the version {before}, and now {now}"
            self._reject(new, f"{problem}: expected either times or whole numbers, not both.")
            return False
        if new.version > previous.version:
            return True
        if new.version == previous.version and new.digest != previous.digest:
            self._reject(
                new,
                f"part {new.part!r} was reported with the same version {version_shown(new.version)} and other content: "
                "expected a greater version for a correction.",
            )
        else:
            self.outcome.known += 1
        return False

    def _stored(self, reports: Iterable[Report]) -> Mapping[_Key, Any]:
        names, dataset = ("dataset", "sub_partition", "tier", "part"), str(self.dataset)
        key_table = key_tables.rows(self.connection, names, ((dataset, *each.key) for each in reports))
        columns = [table.c[name] for name in (*names, "version", "digest", "windows", "offsets")]
        rows = self.connection.execute(sa.select(*columns).join(key_table, key_tables.same_keys(table, key_table)))
        return {(row.sub_partition, row.tier, row.part): row for row in rows}

    def _not_folded(self, new: list[Report], before: Mapping[_Key, Any], judging: Judging) -> list[Report]:
        """Return the reports that name no folded window.

        Reject other reports: folding forgets which parts old reports counted, so a part could count twice. A report of
        a part that is still known is accepted as a correction. All counts by feed_assets itself are accepted, too.
        """
        if self.by == COUNTER:
            return new
        named = {each.key: set[datetime]() if each.key in before else {*dict(each.windows)} for each in new}
        folded = judging.folded((key[0], start) for key, starts in named.items() for start in starts)
        kept: list[Report] = []
        for each in new:
            closed = [start for start in named[each.key] if (each.sub_partition, start) in folded]
            if closed:
                why = f"window {closed[0]:%Y-%m-%dT%H:%MZ} has long been complete and takes no more counts."
                self._reject(each, why)
            else:
                kept.append(each)
        return kept

    def _not_closed(self, new: list[Report], before: Mapping[_Key, Any]) -> list[Report]:
        """Return the reports that do not change counts of a closed window. Reject other reports."""
        if not closures.has_any(self.connection, self.dataset):
            return new
        changed = {(each.key, start) for each in new for start in _changed(each, before.get(each.key))}
        places = {each: self.tracked.holding(self.dataset, each[0][0], each[1]) for each in changed}
        why = {key: why for (key, _), why in closures.of_windows(self.connection, places).items()}
        for each in new:
            if each.key in why:
                self._reject(each, why[each.key])
        return [each for each in new if each.key not in why]

    def _reject(self, new: Report, why: str) -> None:
        self.outcome.rejected.append(Rejected(as_text(new), why))

    def _values(self, new: Report) -> dict[str, Any]:
        sub_partition, tier, part = new.key
        return {
            "dataset": str(self.dataset),
            "sub_partition": sub_partition,
            "tier": tier,
            "part": part,
            "version": new.version,
            "digest": new.digest,
            "windows": new.counts,
            "records": new.records,
            "first": new.first,
            "last": new.last,
            "offsets": new.offsets,
            "snapshot": new.snapshot,
            "batch": new.batch,
            "schema": new.schema,
            "by": self.by,
            "at": self.now,
        }


def _version(report: Report) -> str:
    return report.version


def _are_of_one_kind(*versions: str) -> bool:
    """Return whether the versions of reports are all times, or all numbers. `NO_VERSION` fits both."""
    return len({is_moment(version) for version in versions if version != NO_VERSION}) < 2


def _changed(new: Report, previous: Any | None) -> set[datetime]:
    """Return the starts of the windows for which a report has another count than the report that it replaces."""
    before = windows_of(previous.windows) if previous else {}
    return {start for start, _ in {*new.windows} ^ {*before.items()}}


def _deltas(new: Iterable[Report], before: Mapping[_Key, Any]) -> _Deltas:
    """Return the changes of window counts: new reports minus the reports that they replace."""
    deltas: _Deltas = {}
    for each in new:
        _add(deltas, each, each.windows, 1)
        if previous := before.get(each.key):
            _add(deltas, previous, windows_of(previous.windows).items(), -1)
    return deltas


def _offset_changes(new: Iterable[Report], before: Mapping[_Key, Any]) -> Iterator[offset_checks.OffsetChange]:
    """Yield the offsets of new reports as added, and the offsets of the reports that they replace as removed."""
    for each in new:
        yield offset_checks.OffsetChange(each.sub_partition, each.tier, each.offsets, dict(each.windows))
        if (previous := before.get(each.key)) and previous.offsets:
            yield offset_checks.OffsetChange(
                each.sub_partition, each.tier, previous.offsets, windows_of(previous.windows), -1
            )


def all_deltas(connection: sa.Connection, dataset: Feed) -> _Deltas:
    """Return the counts of all reports of a dataset, by sub-partition and start.

    This is needed if the base grain of the dataset changes.
    """
    deltas: _Deltas = {}
    for each in connection.execute(sa.select(*_COUNTED).where(table.c.dataset == str(dataset))):
        _add(deltas, each, windows_of(each.windows).items(), 1)
    return deltas


def _add(deltas: _Deltas, reported: Any, windows: Iterable[tuple[datetime, int]], sign: int) -> None:
    """Add the counts of one report to the changes (deltas) of its windows. With `sign` -1, subtract them."""
    data = sign * _data(reported)
    for start, count in windows:
        deltas.setdefault((reported.sub_partition, start), Delta()).add(reported.tier, sign * count, sign, data)


def _data(reported: Any) -> int:
    """Return a digest of an ingested report, as a number.

    If two windows have equal sums of these numbers, they have the same reports.
    """
    if reported.tier != INGESTED:
        return 0
    identity = f"{reported.part} {reported.version} {reported.digest}"
    return int.from_bytes(blake2b(identity.encode(), digest_size=7).digest())
