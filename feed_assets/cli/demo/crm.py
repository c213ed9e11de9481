"""The CRM of another team of the shop: visits of customers, deleted customers, and events about both.

A SQLite file stands for that team's database. The demo and the tests write to the database. `customers.py` only reads
it.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO

import sqlalchemy as sa

from feed_assets import Operation
from feed_assets.defs.retail.sample import invoices_csv

_THEIRS = sa.MetaData()
_VISITS = sa.Table(
    "visits",
    _THEIRS,
    sa.Column("customer", sa.Text, primary_key=True),
    sa.Column("visited_at", sa.DateTime, primary_key=True),
    sa.Column("country", sa.Text, nullable=False),
    sa.Column("gbp", sa.Text, nullable=False),  # SQLite has no decimals.
)
_FORGOTTEN = sa.Table(
    "forgotten",
    _THEIRS,
    sa.Column("customer", sa.Text, primary_key=True),
    sa.Column("deleted_at", sa.DateTime, nullable=False),
)
_EVENTS = sa.Table(
    "events",
    _THEIRS,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("marker", sa.DateTime, nullable=False),
    sa.Column("event_marker", sa.DateTime, nullable=False),
    sa.Column("correlation_id", sa.Text, nullable=False),
    sa.Column("write_operation", sa.Text, nullable=False),
)


@dataclass(frozen=True)
class Visit:
    """The total amount of a customer's purchases at one moment.

    The time is from the shop's clock, which is treated as UTC.
    """

    customer: str
    visited_at: datetime
    country: str
    gbp: Decimal


def visits(day: str) -> list[Visit]:
    """Return the visits of one day of the sample, in order. Skip unknown customers and cancelled invoices."""
    visit_by_key: dict[tuple[str, datetime], Visit] = {}
    for line in csv.DictReader(StringIO(invoices_csv(day).decode(), newline="")):
        customer = line["CustomerID"].removesuffix(".0")
        if customer and not line["InvoiceNo"].startswith("C"):
            key = customer, datetime.fromisoformat(line["InvoiceDate"]).replace(tzinfo=UTC)
            spent = visit_by_key[key].gbp if key in visit_by_key else Decimal()
            visit_by_key[key] = Visit(*key, line["Country"], spent + int(line["Quantity"]) * Decimal(line["UnitPrice"]))
    return sorted(visit_by_key.values(), key=lambda each: (each.visited_at, each.customer))


class Crm:
    """The team's database. One transaction writes rows and the event about them."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)
        _THEIRS.create_all(self._engine)

    def write(
        self,
        new_visits: Iterable[Visit],
        upto: datetime,
        operation: Operation = Operation.UPSERT,
        at: datetime | None = None,
    ) -> None:
        """Insert or replace visits, and write an event with the marker `upto`, at the time `at` (by default `upto`)."""
        with self._engine.begin() as connection:
            rows = [{**vars(each), "gbp": str(each.gbp)} for each in new_visits]
            connection.execute(sa.insert(_VISITS).prefix_with("OR REPLACE"), rows)
            _tell(connection, operation, upto, at or upto)

    def forget(self, customer: str, at: datetime) -> None:
        """Delete a customer's visits, record the deletion, and write an event for it."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(_VISITS).where(_VISITS.c.customer == customer))
            connection.execute(sa.insert(_FORGOTTEN), {"customer": customer, "deleted_at": at})
            _tell(connection, Operation.DELETE, at, at)

    def visits(self) -> list[Visit]:
        """Return all visits, in order of time."""
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(_VISITS).order_by(_VISITS.c.visited_at)).all()
        return [Visit(row.customer, _utc(row.visited_at), row.country, Decimal(row.gbp)) for row in rows]

    def forgotten(self) -> dict[str, datetime]:
        """Return the time of the deletion for each deleted customer."""
        with self._engine.connect() as connection:
            return {row.customer: _utc(row.deleted_at) for row in connection.execute(sa.select(_FORGOTTEN))}


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)  # SQLite stores no time zone.


def _tell(connection: sa.Connection, operation: Operation, marker: datetime, at: datetime) -> None:
    """Write an event: visits up to the marker may have changed.

    `at` is the event's time, and a part of its correlation id.
    """
    event = {"table_name": "visits", "marker": marker, "event_marker": at, "correlation_id": f"crm {at}"}
    connection.execute(sa.insert(_EVENTS), {**event, "write_operation": operation.value})
