"""The sample that ships with the package, as the two raw feeds that a shop and a bank would drop.

`sample/README.md` says whose data it is.
"""

import gzip
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).with_name("sample")


def days() -> tuple[str, ...]:
    """Return the dates of the sample, in order: each has a file of rates, even if with a header only."""
    return tuple(f"2010-12-{day:02}" for day in range(1, 10))


def invoice_days() -> tuple[str, ...]:
    """Return the dates that have invoices."""
    return tuple(day for day in days() if _invoices(day).exists())


def invoices_csv(day: str) -> bytes:
    """Return the invoice lines of one day, as `retail/invoices_raw/v1.0` holds them."""
    if day not in invoice_days():
        raise ValueError(f"the sample has no invoices of {day!r}: expected one of {', '.join(invoice_days())}.")
    return gzip.decompress(_invoices(day).read_bytes())


def rates_csv(day: str) -> bytes:
    """Return the rates of one day, as `fx/ecb_raw/v1.0` holds them: the header alone on a day without rates."""
    if day not in days():
        raise ValueError(f"the sample has no day {day!r}: expected one of {', '.join(days())}.")
    header, *lines = _rates()
    return b"".join([header, *(line for line in lines if line.startswith(f"{day},".encode()))])


def _invoices(day: str) -> Path:
    return _FOLDER / f"{day}.csv.gz"


@cache
def _rates() -> tuple[bytes, ...]:
    return tuple((_FOLDER / "eur_reference_rates_2010-12.csv").read_bytes().splitlines(keepends=True))
