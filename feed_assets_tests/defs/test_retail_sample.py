import gzip
from pathlib import Path

import pytest

from feed_assets.defs.retail import sample
from feed_assets_tests.support.each_case import each_case

FOLDER = Path(sample.__file__).with_name("sample")


def test_the_sample_is_nine_dates_and_all_but_one_have_invoices():
    assert sample.days() == tuple(f"2010-12-0{day}" for day in range(1, 10))
    assert set(sample.days()) - set(sample.invoice_days()) == {"2010-12-04"}


@each_case("day", sample.invoice_days())
def test_invoices_are_the_files_as_they_are(day):
    content = sample.invoices_csv(day)
    assert content == gzip.decompress((FOLDER / f"{day}.csv.gz").read_bytes())
    assert content.startswith(b"InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n")


def test_a_days_rates_are_its_line_of_the_month():
    assert sample.rates_csv("2010-12-03") == b"date,GBP,USD\n2010-12-03,0.848,1.3246\n"


@each_case("day", ["2010-12-04", "2010-12-05"])
def test_a_weekend_has_a_header_only(day):
    assert sample.rates_csv(day) == b"date,GBP,USD\n"


def test_a_missing_day_of_the_retail_sample_is_named():
    with pytest.raises(ValueError, match="no invoices of '2010-12-04'"):
        sample.invoices_csv("2010-12-04")
    with pytest.raises(ValueError, match="no day '2010-12-10'"):
        sample.rates_csv("2010-12-10")
