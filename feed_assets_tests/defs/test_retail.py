"""The retail domain on its sample and on made-up days, with late rates and a late line."""

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from functools import cache

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.retail import sample
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import consumed
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.session import session
from feed_assets.testing import Harness
from feed_assets_tests.support import retail_figures

INVOICES, RATES = "retail/invoices_raw/v1.0", "fx/ecb_raw/v1.0"
PURCHASES, PER_DAY, PER_BUYER = (
    f"retail/{name}/v1.0" for name in ("purchases", "num_purchases_per_day", "purchases_per_buyer")
)
RATE, SUMMARY = "fx/exchange_rate/v1.0", "retail/daily_summary/v1.0"
FRIDAY, SATURDAY, SUNDAY, MONDAY = "2010-12-03", "2010-12-04", "2010-12-05", "2010-12-06"
SAMPLE = [day for day in sample.days() if FRIDAY <= day <= MONDAY]
"""A weekend with a day on both sides; each day costs five runs."""
INVOICED = [day for day in sample.invoice_days() if day in SAMPLE]

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"
NO_RATE, TIE, CANCELLED = "2011-03-01", "2011-04-01", "2011-04-02"


def line(day: str, number: str, quantity: str, price: str, customer: str = "", time: str = "10:00:00") -> str:
    return f"{number},S1,THING,{quantity},{day} {time},{price},{customer},France"


GOOD = [
    line(NO_RATE, "536365", "2", "5.0", "17850.0"),
    line(NO_RATE, "99999", "10", "1", "17850.0"),  # as much, and a smaller number, though not as text
    line(NO_RATE, "A1", "1", "10.00"),  # as much, and no number
    line(NO_RATE, "536366", "1", "0.001", "13047"),
    line(NO_RATE, "536366", "1", "0.001", "13047"),  # an equal line is one more
    line(NO_RATE, "536367", "-3", "0.0"),
    line(NO_RATE, "C536368", "-100", "5.0", "17850.0"),
    line(NO_RATE, "536369", "1", "2.5", "", "00:00:00"),
    line(NO_RATE, "536370", "1", "2.5", "", "23:59:59"),
]
BAD = [
    (line("2011-03-02", "1", "1", "1", "", "00:00:00"), "InvoiceDate: not on 2011-03-01"),
    (line("2011-02-28", "1", "1", "1", "", "23:59:59"), "InvoiceDate: not on 2011-03-01"),
    (line("never", "1", "1", "1"), "InvoiceDate: not a timestamp"),
    (line(NO_RATE, "", "1", "1"), "InvoiceNo: missing"),
    (line(NO_RATE, "1", "", "1"), "Quantity: missing"),
    (line(NO_RATE, "1", "1.5", "1"), "Quantity: not an int"),
    (line(NO_RATE, "1", "1", ""), "UnitPrice: missing or negative"),
    (line(NO_RATE, "1", "1", "-0.01"), "UnitPrice: missing or negative"),
    (line(NO_RATE, "1", "1", "0.00001"), "UnitPrice: more than 4 digits after the point"),
    (line(NO_RATE, "1", "1", "1", "somebody"), "CustomerID: not a number"),
    (f"1,S1,THING,1,{NO_RATE} 10:00:00,1", "malformed"),
]
BAD_RATES = [
    ("2011-04-02,0.6,1.2", "date: not that of its partition"),
    (",0.6,1.2", "date: missing"),
    ("2011-04-01,N/A,1.2", "GBP: not a decimal(9,6)"),
    ("2011-04-01,0,1.2", "GBP: missing or not positive"),
    ("2011-04-01,0.4,-1", "USD: missing or not positive"),
    ("2011-04-01,0.6,1.2", "duplicate of date"),
]


def csv_of(*lines: str, header: str = HEADER) -> bytes:
    return "".join(f"{each}\n" for each in (header, *lines)).encode()


def rates_of(*lines: str) -> bytes:
    return csv_of(*lines, header="date,GBP,USD")


class Retail:
    """The domain, its published data (without rejects), and the runs of each step of the story."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.invoices: dict[str, bytes] = {}
        self.rates: dict[str, bytes] = {}

    def drop_invoices(self, day: str, content: bytes, bad: bytes = b"") -> None:
        self.invoices[day] = content
        self.harness.drop(INVOICES, day, {"invoices.csv": content + bad})

    def drop_rates(self, day: str, content: bytes, bad: bytes = b"") -> None:
        self.rates[day] = content
        self.harness.drop(RATES, day, {"rates.csv": content + bad})

    def rows(self, feed: str, day: str) -> list[dict]:
        update = read.latest(open_board(settings()), Partition(Feed.parse(feed), day)).update
        return [row.asDict() for row in read_own(session(settings()), open_board(settings()), update).collect()]

    def versions(self, feed: str) -> dict[str, str]:
        """Return the data version of each of the sample's days."""
        with open_ledger(settings().ledger).read() as connection:
            found = updates.newest(connection, [Partition(Feed.parse(feed), day) for day in SAMPLE])
        return {partition.key: row.version for partition, row in found.items()}

    def state(self, feed: str, day: str) -> tuple[str, str]:
        graph = Graph(self.harness.definitions.resolve_asset_graph())
        with open_ledger(settings().ledger).read() as connection:
            (found,) = verdicts(graph, connection, [Partition(Feed.parse(feed), day)], utc_now())
        return found.state.value, found.reason

    def consumed(self, feed: str, day: str) -> dict[tuple[str, str], str]:
        """Return the updates that the newest one was built from, by input and partition."""
        mine = (consumed.c.feed == feed) & (consumed.c.partition == day) & consumed.c.is_input
        query = sa.select(consumed).where(mine, consumed.c.id == self.harness.newest(feed, day))
        with open_ledger(settings().ledger).read() as connection:
            return {(row.input_feed, row.input_partition): row.position for row in connection.execute(query)}


def ran(runs) -> dict[str, set[str | None]]:
    """Return the partitions of each dataset that were run."""
    found: dict[str, set[str | None]] = {}
    for run in runs:
        found.setdefault(run.assets[0], set()).add(run.partition)
    return found


@pytest.fixture(scope="module")
def retail(spark, tmp_path_factory):
    from feed_assets.definitions import defs

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(tmp_path_factory.mktemp("retail")))
        settings.cache_clear()
        with Harness(defs()) as harness:
            told = reported(Retail(harness))
            told.rows = cache(told.rows)  # The data no longer changes, and each read takes three Spark jobs.
            yield told
    settings.cache_clear()


def reported(retail: Retail) -> Retail:
    """Play the story: all rates but Sunday's; Sunday's; a new version of Friday's; one more invoice line of Friday."""
    for day in INVOICED:
        retail.drop_invoices(day, sample.invoices_csv(day))
    drop_rates(retail, [day for day in SAMPLE if day != SUNDAY])
    drop_made_up_days(retail)
    retail.first = retail.harness.run_until_idle()
    retail.waited = retail.state(SUMMARY, SUNDAY)
    drop_rates(retail, [SUNDAY])
    retail.sunday = retail.harness.run_until_idle()
    retail.before = retail.versions(RATE)
    retail.drop_rates(FRIDAY, rates_of(f"{FRIDAY},0.858,1.3246"))
    retail.friday = [retail.harness.tick(), retail.harness.tick(), retail.harness.run_until_idle()]
    retail.after = retail.versions(RATE)
    retail.summaries = retail.versions(SUMMARY)
    retail.drop_invoices(FRIDAY, sample.invoices_csv(FRIDAY) + csv_of(MORE).removeprefix(csv_of()))
    retail.line = retail.harness.run_until_idle()
    retail.checks = {(name, day): retail.harness.checks(name, day) for name in CHECKED for day in DAYS}
    retail.mixed = summed_up_from(retail, {f"{PER_DAY}/{FRIDAY}": oldest(PER_DAY, FRIDAY)})
    return retail


def oldest(feed: str, day: str) -> str:
    return open_board(settings()).children(f"{feed}/{day}")[0]


def summed_up_from(retail: Retail, named: dict[str, str]) -> dg.ExecuteInProcessResult:
    """Run Friday's summary by hand, from named updates."""
    return dg.materialize(
        [*retail.harness.definitions.assets],
        partition_key=FRIDAY,
        selection=["retail/daily_summary"],
        run_config={"ops": {"retail__daily_summary": {"config": {"updates": named}}}},
        instance=retail.harness.instance,
        raise_on_error=False,
    )


def drop_rates(retail: Retail, days: Iterable[str]) -> None:
    for day in days:
        retail.drop_rates(day, sample.rates_csv(day))


MORE = line(FRIDAY, "599999", "10000", "9.99", "17850.0")


def drop_made_up_days(retail: Retail) -> None:
    retail.drop_invoices(NO_RATE, csv_of(*GOOD), csv_of(*(each for each, _ in BAD)).removeprefix(csv_of()))
    retail.drop_rates(NO_RATE, rates_of())
    retail.drop_invoices(TIE, csv_of(line(TIE, "1", "1", "1.0025")))  # 2.005 euros: to the even cent
    bad = rates_of(*(each for each, _ in BAD_RATES)).removeprefix(rates_of())
    retail.drop_rates(TIE, rates_of(f"{TIE},0.5,1.25"), bad)
    retail.drop_invoices(CANCELLED, csv_of(line(CANCELLED, "C1", "-1", "5.0", "17850.0")))
    retail.drop_rates(CANCELLED, rates_of())


MADE_UP = (NO_RATE, TIE, CANCELLED)
DAYS = (*INVOICED, *MADE_UP)
CHECKED = ("retail/purchases", "retail/num_purchases_per_day", "retail/purchases_per_buyer", "retail/daily_summary")


@pytest.mark.parametrize("day", DAYS)
def test_daily_summaries_equal_separately_computed_figures(retail, day):
    (row,) = retail.rows(SUMMARY, day)
    assert row == vars(retail_figures.summary(day, retail.invoices[day], retail.rates))


@pytest.mark.parametrize("day", [*SAMPLE, *MADE_UP])
def test_rates_in_effect_equal_separately_computed_figures(retail, day):
    expected = retail_figures.rate(day, retail.rates)
    assert retail.rows(RATE, day) == ([vars(expected)] if expected else [])


@pytest.mark.parametrize("day", DAYS)
def test_clean_lines_equal_separately_computed_ones(retail, day):
    names = ("InvoiceNo", "StockCode", "Quantity", "UnitPrice", "CustomerID", "is_cancellation", "gbp")
    clean = [tuple(row[name] for name in names) for row in retail.rows(PURCHASES, day)]
    assert sorted(clean, key=repr) == sorted(retail_figures.lines(retail.invoices[day]), key=repr)


@pytest.mark.parametrize("day", DAYS)
def test_counts_of_purchases_equal_separately_computed_figures(retail, day):
    expected = retail_figures.summary(day, retail.invoices[day], retail.rates)
    assert retail.rows(PER_DAY, day) == [{"date": expected.date, "purchases": expected.purchases}]
    buyers = {row["CustomerID"]: (row["purchases"], row["gbp"]) for row in retail.rows(PER_BUYER, day)}
    assert buyers == retail_figures.buyers(retail.invoices[day])


def test_of_equally_expensive_invoices_the_smaller_number_wins(retail):
    (row,) = retail.rows(SUMMARY, NO_RATE)
    assert (row["most_expensive_invoice"], row["most_expensive_gbp"]) == ("99999", 10)


def test_without_any_rate_there_is_none_and_no_euros(retail):
    assert retail.rows(RATE, NO_RATE) == []
    (row,) = retail.rows(SUMMARY, NO_RATE)
    assert (row["gbp_per_eur"], row["total_eur"]) == (None, None)
    assert row["total_gbp"] == Decimal("35.002")


def test_euros_are_rounded_half_even(retail):
    (row,) = retail.rows(SUMMARY, TIE)
    assert row["total_eur"] == Decimal("2.00")


def test_a_day_of_cancellations_alone_is_a_row_of_nothing_bought(retail):
    (row,) = retail.rows(SUMMARY, CANCELLED)
    assert (row["purchases"], row["most_expensive_invoice"], row["total_gbp"], row["total_eur"]) == (0, None, 0, 0)


@pytest.mark.parametrize("day", [SATURDAY, SUNDAY])
def test_a_weekend_has_fridays_rate(retail, day):
    (row,) = retail.rows(RATE, day)
    assert (row["rate_date"], row["gbp_per_eur"]) == (date.fromisoformat(FRIDAY), Decimal("0.858"))


@pytest.mark.parametrize(("raw", "reason"), BAD)
def test_a_bad_line_is_rejected_with_its_reason(retail, raw, reason):
    (found,) = [row for row in retail.rows(f"{PURCHASES.replace('/v', '_rejects/v')}", NO_RATE) if row["raw"] == raw]
    assert reason in found["reason"]
    assert found["file"].startswith(f"{INVOICES}/{NO_RATE}/")


def test_no_other_line_is_rejected(retail):
    rejects = PURCHASES.replace("/v", "_rejects/v")
    assert {day: len(retail.rows(rejects, day)) for day in DAYS} == dict.fromkeys(DAYS, 0) | {NO_RATE: len(BAD)}


@pytest.mark.parametrize(("raw", "reason"), BAD_RATES)
def test_a_bad_rate_is_rejected_with_its_reason(retail, raw, reason):
    (found,) = [row for row in retail.rows("fx/exchange_rate_rejects/v1.0", TIE) if row["raw"] == raw]
    assert reason in found["reason"]


def test_a_bad_rate_is_rejected_only_on_its_own_date(retail):
    found = {day: len(retail.rows("fx/exchange_rate_rejects/v1.0", day)) for day in (*SAMPLE, *MADE_UP)}
    assert {day: count for day, count in found.items() if count} == {TIE: len(BAD_RATES)}


def test_a_day_with_purchases_waits_for_the_rates_event_and_not_for_a_rate(retail):
    assert sample.rates_csv(SUNDAY) == rates_of()
    assert retail.waited == ("waits for input", f"no valid update of {RATE} {SUNDAY}")
    assert SUNDAY not in ran(retail.first)["retail/daily_summary"]
    assert ran(retail.sunday)["retail/daily_summary"] == {SUNDAY}


def test_days_without_an_event_are_not_built(retail):
    assert ran(retail.first)["retail/daily_summary"] == {FRIDAY, MONDAY, *MADE_UP}
    assert retail.harness.newest(SUMMARY, SATURDAY) is None


def test_a_new_friday_rate_changes_only_the_days_before_monday(retail):
    weekend = {FRIDAY, SATURDAY, SUNDAY}
    assert {day for day in retail.before if retail.before[day] != retail.after[day]} == weekend
    rates, summaries, more = map(ran, retail.friday)
    assert rates == {"fx/exchange_rate": weekend | {MONDAY}}  # whose window has Friday in it
    assert (summaries, more) == ({"retail/daily_summary": {FRIDAY, SUNDAY}}, {})


def test_one_more_line_has_its_day_summed_up_again_and_no_other(retail):
    assert ran(retail.line) == {
        name.removesuffix("/v1.0"): {FRIDAY} for name in (PURCHASES, PER_DAY, PER_BUYER, SUMMARY)
    }
    newest = retail.harness.newest
    assert retail.consumed(SUMMARY, FRIDAY) == {
        (feed, FRIDAY): newest(feed, FRIDAY) for feed in (PURCHASES, PER_DAY, PER_BUYER, RATE)
    }
    assert retail.consumed(PURCHASES, FRIDAY) == {(INVOICES, FRIDAY): newest(INVOICES, FRIDAY)}
    now = retail.versions(SUMMARY)
    assert {day for day in now if now[day] != retail.summaries[day]} == {FRIDAY}


def test_every_check_of_what_is_published_passed(retail):
    assert [partition for partition, found in retail.checks.items() if not found or not all(found.values())] == []


def test_a_summary_of_inputs_that_do_not_belong_together_is_refused(retail):
    failed = retail.mixed.failure_data_for_node("retail__daily_summary")
    assert "adds_up: purchases and total_gbp must equal those of the lines" in str(failed.error)
    assert retail.rows(SUMMARY, FRIDAY)[0]["most_expensive_invoice"] == "599999"


def test_every_run_of_the_retail_story_succeeds(retail):
    runs = [*retail.first, *retail.sunday, *(run for tick in retail.friday for run in tick), *retail.line]
    assert [run.error for run in runs if not run.succeeded] == []
