"""Open alerts, and reports of re-runs, with their delivery state on each channel.

A row is deleted once the alert is resolved and every channel has delivered the resolution.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

import sqlalchemy as sa

from feed_assets.ledger import key_tables
from feed_assets.ledger.database import Ledger, insert_into, upsert
from feed_assets.ledger.tables import alert, alert_said

OPENED, RESOLVED, REPORTED = "opened", "resolved", "report"

NO_ALERTS = AGAIN, REPORT = "again:", "report:"
"""Name prefixes of rows that are not alerts.

`again:` marks a partition that was built again, `report:` a report about such partitions.
"""

_OWN = ("log", "webhook", "mail")
"""The channels that have a column in `alert`. Other channels have rows in `alert_said`."""

_NOTICES = UUID("6f0cf1d4-0f0b-5a53-9d6c-1c2f6a3f7e55")
"""The namespace of the ids of notices."""


@dataclass(frozen=True)
class Alert:
    """An open alert; `opened` is in UTC."""

    name: str
    opened: datetime
    reason: str


@dataclass(frozen=True)
class Notice:
    """One message that a channel has not delivered yet. `state` is `opened` or `resolved` for an alert, or `report`.

    `at` is the time (UTC) of that state.
    """

    channel: str
    name: str
    opened: datetime
    state: str
    at: datetime
    reason: str
    receivers: tuple[str, ...] = ()
    """Owners who receive the notice in addition to those in the settings: `team:ads`, or an e-mail address."""

    @property
    def id(self) -> str:
        """Return the notice's id.

        It is the same for each delivery attempt and each channel, so a receiver can drop repeats.
        """
        return str(uuid5(_NOTICES, f"{self.name}|{self.opened.isoformat()}|{self.state}"))


def _anything(_: str) -> bool:
    return True


def keep(
    ledger: Ledger,
    kind: str,
    reasons: Mapping[str, str],
    now: datetime,
    is_ours: Callable[[str], bool] = _anything,
) -> None:
    """Replace the open alerts of a kind: open the new alerts, and resolve the alerts that are not in `reasons`.

    The keys of `reasons` are alert names without the prefix `kind:`. Call this from only one place for each kind, with
    all alerts of this code location. `is_ours` decides which open alerts belong to this location. It gets the alert
    name without `kind:`, up to the first `|`. Alerts of other code locations stay. If nothing changed, nothing is
    written.
    """
    names = {f"{kind}:{key}": reason for key, reason in reasons.items()}
    with ledger.read() as connection:
        opened = _of_kind(connection, kind)
    over = {each for each in opened.keys() - names.keys() if is_ours(each.removeprefix(f"{kind}:").partition("|")[0])}
    if not over and names.items() <= opened.items():
        return
    with ledger.write() as connection:
        _resolve(connection, over, now)
        _open(connection, names, now)


def resolve(ledger: Ledger, kind: str, keys: Collection[str], now: datetime) -> None:
    """Resolve alerts of a kind, if they are open. The keys are alert names without `kind:`."""
    with ledger.read() as connection:
        names = {f"{kind}:{key}" for key in of_kind(connection, kind).keys() & {*keys}}
    if names:
        with ledger.write() as connection:
            _resolve(connection, names, now)


def of_kind(connection: sa.Connection, kind: str) -> dict[str, str]:
    """Return the open alerts of a kind: reasons by name without `kind:`."""
    return {name.removeprefix(f"{kind}:"): reason for name, reason in _of_kind(connection, kind).items()}


def _of_kind(connection: sa.Connection, kind: str) -> dict[str, str]:
    """Return the open alerts of a kind: reasons by name."""
    return {each.name: each.reason for each in open_alerts(connection) if each.name.startswith(f"{kind}:")}


def _open(connection: sa.Connection, reasons: Mapping[str, str], now: datetime) -> None:
    """Open alerts by name.

    A new opening replaces a resolution of the same name that a channel has not delivered yet.
    """
    insert, is_open = insert_into(connection, alert), alert.c.resolved.is_(None)
    kept = ("opened", *_OWN)
    values = {name: sa.case((is_open, alert.c[name]), else_=insert.excluded[name]) for name in kept}
    values |= {"reason": insert.excluded.reason, "resolved": None}
    rows = [{"name": name, "opened": now, "reason": reason} for name, reason in reasons.items()]
    if rows:
        resolved = sa.select(alert.c.name).where(alert.c.resolved.is_not(None))
        names = sa.select(key_tables.rows(connection, ("name",), [[name] for name in sorted(reasons)]).c.name)
        again = alert_said.c.name.in_(names) & alert_said.c.name.in_(resolved)
        connection.execute(sa.delete(alert_said).where(again))
        connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=values), rows)


def _resolve(connection: sa.Connection, names: Iterable[str], now: datetime) -> None:
    key_table = key_tables.rows(connection, ("name",), [[name] for name in sorted(names)])
    gone = alert.c.name.in_(sa.select(key_table.c.name)) & alert.c.resolved.is_(None)
    connection.execute(sa.update(alert).where(gone).values(resolved=now))


def open_alerts(connection: sa.Connection) -> tuple[Alert, ...]:
    """Return the open alerts, oldest first."""
    return tuple(Alert(row.name, row.opened, row.reason) for row in connection.execute(_OPEN))


_OPEN = sa.select(alert).where(alert.c.resolved.is_(None)).order_by(alert.c.opened, alert.c.name)


def undelivered(connection: sa.Connection, channels: Collection[str]) -> tuple[Notice, ...]:
    """Return the undelivered notices of these channels: oldest alerts first, an opening before its resolution."""
    rows = connection.execute(sa.select(alert).order_by(alert.c.opened, alert.c.name)).mappings().all()
    delivered_states = {(each.name, each.channel): each.state for each in connection.execute(sa.select(alert_said))}
    return tuple(
        notice
        for row in rows
        for channel in channels
        for notice in _notices(
            row, channel, row[channel] if channel in _OWN else delivered_states.get((row["name"], channel))
        )
    )


def _notices(row: sa.RowMapping, channel: str, delivered_state: str | None) -> list[Notice]:
    states = {OPENED: row["opened"]} | ({RESOLVED: row["resolved"]} if row["resolved"] else {})
    if row["name"].startswith(NO_ALERTS):
        states = {REPORTED: row["opened"]} if row["name"].startswith(REPORT) else {}
    undelivered_states = [
        state for state in states if delivered_state is None or (delivered_state, state) == (OPENED, RESOLVED)
    ]
    to = tuple(json.loads(row["receivers"] or "[]"))
    return [
        Notice(channel, row["name"], row["opened"], state=state, at=states[state], reason=row["reason"], receivers=to)
        for state in undelivered_states
    ]


def delivered(ledger: Ledger, notice: Notice, channels: Collection[str]) -> None:
    """Record that a channel delivered a notice. Delete an alert once all `channels` have delivered its resolution.

    Do nothing if the alert opened again in the meantime.
    """
    condition = (alert.c.name == notice.name) & (alert.c.opened == notice.opened)
    with ledger.write() as connection:
        if notice.channel in _OWN:
            connection.execute(sa.update(alert).where(condition).values({notice.channel: notice.state}))
        elif connection.execute(sa.select(alert.c.name).where(condition).with_for_update()).first():
            row = {"name": notice.name, "channel": notice.channel, "state": notice.state}
            upsert(connection, alert_said, [row], ["state"])
        connection.execute(sa.delete(alert).where(condition, *map(_is_over, channels)))
        gone = alert_said.c.name.not_in(sa.select(alert.c.name))
        connection.execute(sa.delete(alert_said).where(alert_said.c.name == notice.name, gone))


def _is_over(channel: str) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a channel has delivered the last notice of an alert: a resolution or a report."""
    last = [RESOLVED, REPORTED]
    if channel in _OWN:
        return alert.c[channel].in_(last)
    rows = sa.select(alert_said.c.name).where(alert_said.c.channel == channel, alert_said.c.state.in_(last))
    return alert.c.name.in_(rows)
