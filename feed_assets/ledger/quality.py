"""Quality of partitions: the newest state of each check, from any reporter. The log has the history.

Source: "Data Dependency Driven Orchestration", the global state store: "data quality as state".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import InvalidReport
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import version_shown
from feed_assets.ledger import key_tables, log
from feed_assets.ledger.database import upsert
from feed_assets.ledger.log import Change, LogEntry
from feed_assets.ledger.tables import change, quality, run

PASSED, WARNED, FAILED = "passed", "warned", "failed"
"""States that a check reports. A failed check blocks consumers of the partition, a warning does not."""

STALE = "stale"
"""The state of a check that failed before the data were built again, and has not run since."""

MARKED = "marked"
"""The state of the check `INPUTS` if the partition was built from bad data."""

WATCH = "watch"
"""The reporter of checks that the sensor `watch` makes.

These checks report whether events arrive in time, and whether data are up to date.
"""

BLOCKING = (FAILED, STALE, MARKED)
"""The states that block consumers."""


def is_heard(entry: LogEntry) -> bool:
    """Return whether a change may affect an output.

    Three kinds of changes cannot: prunes, warnings that begin or end, and reports by `WATCH`, because no consumer waits
    for them.
    """
    is_warning = {entry.before, entry.after} <= {PASSED, WARNED} or entry.who == WATCH
    return entry.after != log.PRUNED and not (entry.kind == log.QUALITY and is_warning)


def heard_condition() -> sa.ColumnElement[bool]:
    """Return `is_heard` as an SQL condition on rows of the log.

    The condition also excludes kinds that change no data.
    """
    both = (PASSED, WARNED)
    is_warning = sa.func.coalesce(change.c.before, "").in_(both) & sa.func.coalesce(change.c.after, "").in_(both)
    is_unheard = (change.c.kind == log.QUALITY) & (is_warning | (sa.func.coalesce(change.c.who, "") == WATCH))
    return change.c.after.is_distinct_from(log.PRUNED) & change.c.kind.not_in(log.NO_DATA) & ~is_unheard


def report(
    connection: sa.Connection,
    partition: Partition,
    check: str,
    state: str,
    reason: str | None,
    by: str,
    now: datetime,
    version: str | None = None,
) -> bool:
    """Record the state of a check. Return False if the report's version is not greater than the stored version.

    Log the report if the state or the reason changed, or if the check failed in a new version. A report without a
    version always counts, and does not change the stored version. Raise InvalidReport if the stored version is reported
    again with different content. A repeated call changes nothing.
    """
    key = {"feed": str(partition.feed), "partition": partition.key, "check": check}
    same_check = sa.and_(*(quality.c[name] == value for name, value in key.items()))
    before = connection.execute(sa.select(quality).where(same_check)).first()
    values: dict[str, Any] = {"state": state, "reason": reason, "by": by, "at": now}
    if version is not None:
        values |= {"version": version, "digest": sha256(repr((state, reason)).encode()).hexdigest()[:32]}
        if before and before.version is not None and not _is_newer(values, before):
            return False
    upsert(connection, quality, [{**key, **values}], [*values])
    fails_anew = version is not None and state == FAILED
    if before is None or fails_anew or (before.state, before.reason) != (state, reason):
        was = before.state if before else None
        log.append(
            connection, [Change(partition, log.QUALITY, check, at=now, before=was, after=state, why=reason, who=by)]
        )
    return True


def _is_newer(values: Mapping[str, Any], before: sa.Row[Any]) -> bool:
    if values["version"] == before.version and values["digest"] != before.digest:
        raise InvalidReport(
            f"check {before.check} was reported with the same version {version_shown(before.version)} and other "
            "content: expected a greater version for a correction."
        )
    return values["version"] > before.version


def audited(
    connection: sa.Connection, partition: Partition, results: Mapping[str, Sequence[str]], by: str, now: datetime
) -> None:
    """Record the results of all checks of a partition's published update: state and reason by check.

    If a check passes, and is new or passed before, it is not logged, because the log already has the update. A repeated
    call changes nothing.
    """
    before = check_states(connection, [partition])
    key = {"feed": str(partition.feed), "partition": partition.key}
    rows = [{**key, "check": check, "state": each[0], "reason": each[1]} for check, each in results.items()]
    upsert(connection, quality, [{**row, "by": by, "at": now} for row in rows], ["state", "reason", "by", "at"])
    news = list[Change]()
    for check, (state, reason) in results.items():
        was = before.get((partition, check), CheckState(PASSED, None))
        if was != CheckState(state, reason) and {was.state, state} != {PASSED}:
            news.append(
                Change(partition, log.QUALITY, check, at=now, before=was.state, after=state, why=reason, who=by)
            )
    log.append(connection, news)


def release(
    connection: sa.Connection, partitions: Iterable[Partition], by: str, now: datetime, why: str | None = None
) -> None:
    """Set the failed checks of the runs of these partitions to `passed`, because the published data are good.

    Results of other reporters stay. Marks stay, too, because their cause is in the inputs. A repeated call changes
    nothing.
    """
    key_table = key_tables.partitions(connection, partitions)
    query = sa.select(quality).join(key_table, key_tables.same_keys(quality, key_table))
    failed = query.where(quality.c.state.in_((FAILED, STALE)), _OWN).order_by(*quality.primary_key.columns)
    rows = connection.execute(failed).mappings().all()
    _put(connection, rows, {"state": PASSED, "reason": why, "by": by, "at": now}, by)


_OWN = sa.exists().where(run.c.id == quality.c.by, run.c.feed == quality.c.feed, run.c.partition == quality.c.partition)
"""Condition for checks that the partition's own runs reported, not people, other jobs or monitors."""


def make_stale(connection: sa.Connection, partition: Partition, by: str, now: datetime) -> None:
    """Set every failed check of a partition to stale, because its data were built again since.

    The check keeps its reporter, which must run the check again. A repeated call changes nothing.
    """
    of_partition = (quality.c.feed == str(partition.feed)) & (quality.c.partition == partition.key)
    failed = connection.execute(sa.select(quality).where(of_partition, quality.c.state == FAILED)).mappings().all()
    for row in failed:
        before = row["reason"] or f"check {row['check']} failed"
        why = f"check {row['check']} failed before the data were made again, and has not run since: {before}"
        _put(connection, [row], {"state": STALE, "reason": why, "at": now}, by)


def _put(connection: sa.Connection, rows: Sequence[sa.RowMapping], values: Mapping[str, Any], by: str) -> None:
    upsert(connection, quality, [{**row, **values} for row in rows], [*values])
    log.append(connection, [_change(row, values, by) for row in rows])


def _change(row: sa.RowMapping, new: Mapping[str, Any], by: str) -> Change:
    partition = Partition(Feed.parse(row["feed"]), row["partition"])
    before, after = row["state"], new["state"]
    return Change(
        partition, log.QUALITY, row["check"], at=new["at"], before=before, after=after, why=new["reason"], who=by
    )


@dataclass(frozen=True)
class CheckState:
    """The newest state of a check, and the reason for it."""

    state: str
    reason: str | None


def check_states(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[tuple[Partition, str], CheckState]:
    """Return the state of each check of some partitions, by partition and check."""
    rows = key_tables.matching(connection, quality, key_tables.keys(partitions))
    return {
        (Partition(Feed.parse(row.feed), row.partition), row.check): CheckState(row.state, row.reason) for row in rows
    }


def failed(
    connection: sa.Connection, partitions: Iterable[Partition], states: Collection[str] = BLOCKING
) -> Mapping[Partition, str]:
    """Return the partitions with a check in one of the states, each with the reasons. A reason names its check."""
    key_table = key_tables.partitions(connection, partitions)
    query = (
        sa.select(quality).join(key_table, key_tables.same_keys(quality, key_table)).where(quality.c.state.in_(states))
    )
    reasons_by_partition: dict[Partition, list[str]] = {}
    for row in connection.execute(query.order_by(quality.c.check)):
        reasons = reasons_by_partition.setdefault(Partition(Feed.parse(row.feed), row.partition), [])
        reasons.append(_with_name(row))
    return {partition: "; ".join(dict.fromkeys(reasons)) for partition, reasons in reasons_by_partition.items()}


def _with_name(row: sa.Row[Any]) -> str:
    """Return the reason of a check's state, after the name of the check.

    Leave the name out for marks, because users do not know the check `inputs`.
    """
    if not row.reason:
        return f"check {row.check} failed"
    has_name = row.state == MARKED or row.reason.startswith((f"{row.check}:", f"{row.check} ", f"check {row.check} "))
    return row.reason if has_name else f"{row.check}: {row.reason}"
