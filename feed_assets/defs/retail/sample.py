"""The sample data of the package, in the form of a shop's and a bank's raw feeds.

`sample/README.md` names the source of the data.
"""

import gzip
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).with_name("sample")


def days() -> tuple[str, ...]:
    """Return the dates of the sample, in order. Each has a file of rates, which may have only a header."""
    return tuple(f"2010-12-{day:02}" for day in range(1, 10))


def invoice_days() -> tuple[str, ...]:
    """Return the dates that have invoices."""
    return tuple(day for day in days() if _invoices(day).exists())


def invoices_csv(day: str) -> bytes:
    """Return the invoice lines of one day, in the form of `retail/invoices_raw/v1.0`."""
    if day not in invoice_days():
        raise ValueError(f"the sample has no invoices of {day!r}: expected one of {', '.join(invoice_days())}.")
    return gzip.decompress(_invoices(day).read_bytes())


def rates_csv(day: str) -> bytes:
    """Return the rates of one day, in the form of `fx/ecb_raw/v1.0`. On a day without rates, return only the header."""
    if day not in days():
        raise ValueError(f"the sample has no day {day!r}: expected one of {', '.join(days())}.")
    header, *lines = _rates()
    return b"".join([header, *(line for line in lines if line.startswith(f"{day},".encode()))])


def _invoices(day: str) -> Path:
    return _FOLDER / f"{day}.csv.gz"


@cache
def _rates() -> tuple[bytes, ...]:
    return tuple((_FOLDER / "eur_reference_rates_2010-12.csv").read_bytes().splitlines(keepends=True))
