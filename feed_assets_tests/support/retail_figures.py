"""The figures of the retail domain, computed in Python's own decimals without Spark and without the product.

They take the bytes of raw CSVs, so that a test can pass any update that it dropped, late ones too.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from io import StringIO

CENT = Decimal("0.01")


@dataclass(frozen=True)
class Rate:
    """One row of exchange_rate."""

    date: date
    gbp_per_eur: Decimal
    usd_per_eur: Decimal
    rate_date: date


@dataclass(frozen=True)
class Summary:
    """One row of daily_summary."""

    date: date
    purchases: int
    most_expensive_invoice: str | None
    most_expensive_gbp: Decimal | None
    total_gbp: Decimal
    gbp_per_eur: Decimal | None
    total_eur: Decimal | None


def summary(day: str, invoices: bytes, rates: Mapping[str, bytes]) -> Summary:
    """Return a day's row, from its invoices and the rates' file of each day."""
    sums, found = _sums(invoices), rate(day, rates)
    most = min(sums, key=lambda number: (-sums[number], *_order(number)), default=None)
    total = sum(sums.values(), Decimal())
    return Summary(
        date.fromisoformat(day),
        len(sums),
        most,
        sums[most] if most else None,
        total,
        found and found.gbp_per_eur,
        found and _quotient(total, found.gbp_per_eur),
    )


def rate(day: str, rates: Mapping[str, bytes]) -> Rate | None:
    """Return the rate of the day, or else the newest rate of the six days before."""
    asked = date.fromisoformat(day)
    for back in range(7):
        for row in _rows(rates.get(f"{asked - timedelta(days=back)}", b"")):
            return Rate(asked, Decimal(row["GBP"]), Decimal(row["USD"]), date.fromisoformat(row["date"]))
    return None


def buyers(invoices: bytes) -> dict[str, tuple[int, Decimal]]:
    """Return purchases and pounds of each buyer."""
    numbers: dict[str, set[str]] = defaultdict(set)
    pounds: dict[str, Decimal] = defaultdict(Decimal)
    for row in _bought(invoices):
        if row["CustomerID"]:
            buyer = row["CustomerID"].split(".")[0]
            numbers[buyer].add(row["InvoiceNo"])
            pounds[buyer] += _gbp(row)
    return {buyer: (len(numbers[buyer]), pounds[buyer]) for buyer in numbers}


def lines(invoices: bytes) -> list[tuple]:
    """Return every line as (InvoiceNo, StockCode, Quantity, UnitPrice, CustomerID, is_cancellation, gbp)."""
    return [
        (
            row["InvoiceNo"],
            row["StockCode"],
            int(row["Quantity"]),
            Decimal(row["UnitPrice"]),
            row["CustomerID"].removesuffix(".0") or None,
            row["InvoiceNo"][0] == "C",
            _gbp(row),
        )
        for row in _rows(invoices)
    ]


def _order(number: str) -> tuple[bool, int, str]:
    """Return a sort key: numbers by value, then texts that are no number."""
    return (False, int(number), "") if number.isdigit() else (True, 0, number)


def _quotient(total: Decimal, divisor: Decimal) -> Decimal:
    with localcontext(prec=60):
        return (total / divisor).quantize(CENT, ROUND_HALF_EVEN)


def _sums(invoices: bytes) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for row in _bought(invoices):
        sums[row["InvoiceNo"]] += _gbp(row)
    return sums


def _bought(invoices: bytes) -> list[dict[str, str]]:
    return [row for row in _rows(invoices) if row["InvoiceNo"][0] != "C"]


def _gbp(row: dict[str, str]) -> Decimal:
    return int(row["Quantity"]) * Decimal(row["UnitPrice"])


def _rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(content.decode(), newline="")))
