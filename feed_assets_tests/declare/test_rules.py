"""Wrong declarations are refused at once, in one line with file, line, and the expected value."""

import re
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from feed_assets import (
    ByEvents,
    Cadence,
    DeletesTable,
    EventFiles,
    EventSource,
    Input,
    Late,
    LineageTable,
    Plan,
    Retention,
    Rule,
    SqlTable,
    Within,
    checks,
    event_table,
    feed_asset,
    foreign_feed,
    with_automation,
)
from feed_assets.core.argument_types import as_share
from feed_assets.core.errors import FeedAssetsError
from feed_assets_tests.support.each_case import each_case

RAW = foreign_feed("t/raw/v1.0", schema="k string")
SHOP = EventSource("shop", (SqlTable("sqlite:///shop.db", "events", "id"),))


def made(feed: str = "t/sums/v1.0", function: Any = None, **options: Any) -> dg.AssetsDefinition:
    def sums(raw): ...

    return feed_asset(feed, **{"inputs": {"raw": RAW}, **options})(function or sums)


@dg.asset
def plain(): ...


async def waits(raw): ...


def yields(raw):
    yield raw


async def waits_and_yields(raw):
    yield raw


def together(*assets: Any) -> dg.Definitions:
    return with_automation(dg.Definitions(assets=assets))


def reads(feed: str, *inputs: str) -> dg.AssetsDefinition:
    """Return a dataset that reads other datasets, of which it knows only the names."""
    read = {f"input_{number}": foreign_feed(name, schema="k string") for number, name in enumerate(inputs)}
    parameters = ", ".join(read)
    return feed_asset(feed, inputs=read)(eval(f"lambda {parameters}: None"))  # noqa: S307


REFUSED = {
    "a share above 1": (lambda: Late(growth=5), "Late(): growth is 5 (int), expected a share from 0 to 1, such as"),
    "per cent above 100": (lambda: Late(growth="500%"), "growth is '500%' (str), expected a share from 0 to 1"),
    "95 for 95 %": (
        lambda: checks.references("a", "b", "k", at_least=95),
        "references('a'): at_least is 95 (int), expected a share from 0 to 1, such as 0.05 or '5%'.",
    ),
    "a negative age": (lambda: Late(max_age=-timedelta(1)), "max_age is"),
    "a negative tolerance": (lambda: Cadence("0 6 * * *", -timedelta(1)), "expected a time of 0 or more"),
    "nothing kept": (lambda: Retention(keep=0), "Retention(): keep is 0 (int), expected 1 or more."),
    "fewer bytes than none": (lambda: Rule(Plan(), at_least=-1), "Rule(): at_least is -1 (int), expected 0 or more."),
    "no folder": (lambda: EventFiles("", "csv"), "prefix is '' (str), expected a folder such as events/shop."),
    "a folder above": (lambda: EventFiles("../e", "csv"), "prefix is '../e' (str), expected a folder"),
    "no URL": (lambda: SqlTable("nonsense", "t", "id"), "SqlTable(): url is 'nonsense' (str), expected a SQLAlchemy"),
    "a password": (
        lambda: SqlTable("postgresql://me:secret@h/d", "t", "id"),
        "SqlTable(): url is 'postgresql://me:***@h/d' (str), expected no password in it, because the web UI",
    ),
    "what may be one": (lambda: SqlTable("postgresql://u s: pw@h/d", "t", "id"), "expected no password in it"),
    "a password in a query": (lambda: LineageTable("postgresql://h/d?sslpassword=x", "t"), "expected no password"),
    "a URL that SQLAlchemy has not": (lambda: LineageTable("postgres://h/d", "t"), "expected a SQLAlchemy URL"),
    "no URL of deletes": (lambda: DeletesTable("env:", "gone"), "url is 'env:' (str), expected a SQLAlchemy URL"),
    "an owner": (lambda: made(owners=["me"]), "feed_asset('t/sums/v1.0'): owners[0] is 'me' (str), expected team:NAME"),
    "an owner of a feed": (lambda: foreign_feed("t/a", schema="k int", owners=["me"]), "expected team:NAME"),
    "an upper bound below": (lambda: checks.within("a", 10, 1), "checks.within('a', 10, 1): expected `low` first."),
    "a check that finds no number": (lambda: checks.Check("x", "y", bool), "neither of `aggregate` and `measure`"),
    "a check that finds two": (
        lambda: checks.Check("x", "y", bool, "count(1)", len),
        "both of `aggregate` and `measure`",
    ),
    "what a check found": (
        lambda: checks.Check("x", "y", bool, "count(1)", finding="{nope}"),
        "`finding` is '{nope}' (KeyError: 'nope'), expected a text with '{found}' or '{rows}'",
    ),
    "a check's name": (lambda: checks.Check("a b", "y", bool, "count(1)"), "expected letters, digits and '_'"),
    "a check that was not called": (
        lambda: made(checks=[checks.not_empty]),
        "the function not_empty, which was not called (write not_empty(…)), expected a list of checks.",
    ),
    "a check that is no list": (lambda: made(checks=checks.not_empty()), ". Write checks=[checks.not_empty()]."),
    "the name of a check": (lambda: made(checks=["not_empty"]), "expected a list of checks. Write checks=[checks.not"),
    "inputs that are a list": (
        lambda: made(inputs=[RAW]),
        "expected a dict of names to what @feed_asset, foreign_feed or Input gives. Write inputs={'orders': orders}.",
    ),
    "an input without its decorator": (
        lambda: made(inputs={"raw": reads}),
        "inputs['raw'] is the function reads, expected a dict of names to what @feed_asset, foreign_feed or Input "
        "gives. Put @feed_asset(…) above reads.",
    ),
    "a dependency without its decorator": (lambda: made(deps=[Input(reads)]), ". Put @feed_asset(…) above reads."),
    "an input of plain Dagster": (
        lambda: made(inputs={"raw": plain}),
        "t/sums/v1.0 cannot take inputs['raw']: plain is no feed asset: expected an asset of @feed_asset.",
    ),
    "a dependency on a plain spec": (
        lambda: made(deps=[dg.AssetSpec("orders")]),
        "t/sums/v1.0 cannot take deps[0]: orders is no feed: declare it with foreign_feed()",
    ),
    "a mapping as a text": (
        lambda: Input(RAW, mapping="all"),
        "expected a mapping of Dagster, Within, BatchDate, DayToDate, Previous or None. Write "
        "mapping=dg.AllPartitionMapping().",
    ),
    "tags that are a list": (
        lambda: made(tags=["x"]),
        "tags is ['x'] (list), expected None, or a dict of names to str. Write tags={'name': 'value'}.",
    ),
    "metadata that are a text": (
        lambda: made(metadata="x"),
        "expected None, or a dict of names to values. Write metadata={'name': 'value'}.",
    ),
    "kinds that are a list": (
        lambda: made(kinds=["pyspark", "jdbc"]),
        "expected None, or a set of str. Write kinds={'pyspark', 'jdbc'}.",
    ),
    "a function or nothing": (lambda: made(chart=1), "expected None, or a function from"),
    "an input alone": (lambda: made(inputs=RAW), ". Write inputs={'orders': orders}."),
    "the name of a dependency": (
        lambda: made(deps=["t/raw/v1.0"]),
        "deps[0] is 't/raw/v1.0' (str), expected a list of what @feed_asset, foreign_feed or Input gives. Write "
        "deps=[orders].",
    ),
    "partitions as a text": (
        lambda: made(partitions_def="daily"),
        "expected partitions of Dagster. Write partitions_def=dg.DailyPartitionsDefinition('2026-01-01').",
    ),
    "partitions that were not called": (
        lambda: made(partitions_def=dg.DailyPartitionsDefinition),
        "which was not called (write DailyPartitionsDefinition(…)), expected partitions of Dagster.",
    ),
    "a schema that is a dict": (
        lambda: foreign_feed("t/a", schema={"k": "int"}),
        "expected columns in Spark's DDL, as one text. Write schema='id string, price double'.",
    ),
    "a share for late data": (lambda: made(late=0.05), "late is 0.05 (float), expected Late or None. Write late=Late("),
    "a cron for a cadence": (lambda: made(cadence="0 6 * * *"), "expected Cadence or None. Write cadence=Cadence("),
    "hours as a number": (lambda: Late(max_age=2), "expected timedelta or None. Write max_age=timedelta(hours=1)."),
    "an owner that is no list": (lambda: made(owners="team:ads"), ". Write owners=['team:ads']."),
    "a kind that is no set": (lambda: made(kinds="parquet"), ". Write kinds={'parquet'}."),
    "two characters that part columns": (
        lambda: foreign_feed("t/a", schema="k int", delimiter="||"),
        "expected one character that is not a letter, digit, quote or line end, such as ';'",
    ),
    "a retry policy": (
        lambda: made(retry_policy=dg.RetryPolicy()),
        "there is no parameter retry_policy: a failed run is requested again automatically",
    ),
    "a key prefix": (lambda: made(key_prefix=["a"]), "the asset key is the name of the feed or table. Write"),
    "another name for a parameter": (
        lambda: made(function=lambda raws: raws),
        "takes raws, its inputs are raw: expected one parameter for each input, with the same name",
    ),
    "a coroutine": (
        lambda: made(function=waits),
        "t/sums/v1.0: waits() is `async`: expected a plain function that returns a DataFrame. Write `def`.",
    ),
    "a generator": (lambda: made(function=yields), "yields() has a `yield`: expected a plain function that returns"),
    "a generator of coroutines": (lambda: made(function=waits_and_yields), "waits_and_yields() is `async`: expected"),
    "no version of a dataset": (lambda: made("t/sums"), "t/sums has no version: expected one, such as 't/sums/v1.0'."),
    "a zone": (lambda: Cadence("0 6 * * *", timezone="CEST"), "expected a time zone such as 'Europe/Berlin'"),
    "a cron": (lambda: Cadence("0 25 * * *"), "Cadence: the cron is '0 25 * * *': Bad hour. Expected one such as"),
    "a group": (lambda: made(group_name="my group"), "group_name is 'my group' (str), expected letters, digits and"),
    "a check of no input": (
        lambda: made(checks=[checks.references("raw", "prices", "k")]),
        "t/sums/v1.0: check raw_in_prices names the input 'prices': expected one of its inputs, raw.",
    ),
    "a text for an asset": (lambda: made(inputs={"raw": "t/raw/v1.0"}), ". Write inputs={'orders': orders}."),
    "no function": (lambda: feed_asset("t/a/v1.0", inputs={})(3), "function is 3 (int), expected a function."),
    "itself": (lambda: made("t/raw/v1.0"), "t/raw/v1.0 reads itself, as raw"),
    "a name with a space": (lambda: made("t/my orders/v1.0"), "feed 't/my orders/v1.0': Dagster's names have only"),
    "a foreign one": (lambda: foreign_feed("t/my orders", schema="k int"), "Dagster's names have only letters, digits"),
    "a table's": (lambda: event_table("my orders", source=SHOP), "Dagster's names have only letters, digits"),
    "half a version": (
        lambda: made("t/sums/v1"),
        "feed 't/sums/v1' ends in what looks like a misspelled version: expected v<major>.<minor> without leading "
        "zeros. Is 't/sums/v1.0' meant?",
    ),
    "half a version of a foreign one": (lambda: foreign_feed("t/a/v2", schema="k int"), "Is 't/a/v2.0' meant"),
    "a schema": (
        lambda: foreign_feed("t/raw/v1.0", schema="n integr"),
        "t/raw/v1.0: schema 'n integr': column 'n' has the type 'integr', which Spark does not have: is integer meant?",
    ),
    "a version without its v": (
        lambda: foreign_feed("t/raw/1.0", schema="k int"),
        "Is 't/raw/v1.0' meant?",
    ),
    "no parentheses": (
        lambda: feed_asset(together),
        "@feed_asset stands above together() without parentheses: expected @feed_asset(feed, inputs).",
    ),
    "no inputs": (
        lambda: feed_asset("t/sums/v1.0"),
        "feed_asset('t/sums/v1.0'): found no inputs: expected feed_asset(feed, inputs). Add it.",
    ),
    "a misspelt parameter": (
        lambda: foreign_feed("t/raw/v1.0", shema="k int"),
        "foreign_feed('t/raw/v1.0'): there is no parameter shema: is schema meant?",
    ),
    "a format": (lambda: foreign_feed("t/raw/v1.0", schema="k int", format="jsonl"), "'parquet'. Write format='json'."),
    "what a format cannot hold": (lambda: foreign_feed("t/a", schema="k array<int>"), "which cannot be read from csv"),
    "a pipeline of nothing": (lambda: ByEvents(pipelines={"p": []}), "pipeline 'p' has no tables"),
    "an unknown table": (
        lambda: together(RAW, made(by_events=ByEvents(pipelines={"p": ["t/rwa/v1.0"]}))),
        "t/sums/v1.0 is built by events of 't/rwa/v1.0', which is not declared in this code location: "
        "expected one of t/raw/v1.0, ",
    ),
    "an unknown table of a rule": (
        lambda: together(RAW, made(by_events=ByEvents(plans=[Rule(Plan(), frozenset({"t/raw"}))]))),
        "by events of 't/raw', which is not declared in this code location",
    ),
    "two roles": (
        lambda: together(foreign_feed("t/sums/v1.0", schema="k string"), RAW, made()),
        "t/sums is a feed that others write at feed_assets_tests/",
    ),
    "two functions": (lambda: together(RAW, made(), made()), "t/sums is declared twice, the first time at "),
    "two of one name to Dagster": (
        lambda: together(RAW, reads("t/x/y/v1.0", "t/raw/v1.0"), reads("t/x__y/v1.0", "t/raw/v1.0")),
        "t/x/y and t/x__y are both named t__x__y in Dagster: expected different names",
    ),
    "a partition key": (
        lambda: together(
            foreign_feed("t/k/v1.0", schema="k int", partitions_def=dg.StaticPartitionsDefinition(["a", "süd"]))
        ),
        "t/k: partition key 'süd' cannot be a path segment",
    ),
    "a cycle": (
        lambda: together(reads("t/a/v1.0", "t/b/v1.0"), reads("t/b/v1.0", "t/c/v1.0"), reads("t/c/v1.0", "t/a/v1.0")),
        "t/b reads t/c reads t/a reads t/b",
    ),
}  # fmt: skip


@each_case("case", REFUSED)
def test_an_invalid_declaration_is_refused_in_one_line_with_file_and_line(case):
    declare, said = REFUSED[case]
    with pytest.raises(FeedAssetsError) as refused:
        declare()
    line = str(refused.value)
    assert said in line
    assert "\n" not in line
    file, number, _ = line.split(":", 2)
    assert file.endswith("declare/test_rules.py")
    assert int(number) > 0


def test_the_line_is_that_of_the_declaration():
    with pytest.raises(FeedAssetsError) as refused:
        Late(growth=5)
    assert f"test_rules.py:{refused.traceback[0].lineno + 1}: Late()" in str(refused.value)


def test_two_conflicting_declarations_are_named_with_both_lines():
    one = foreign_feed("t/x/v1.0", schema="k string")
    other = foreign_feed("t/x/v1.0", schema="k int")
    with pytest.raises(FeedAssetsError) as refused:
        together(one, other)
    line = str(refused.value)
    second, first = map(int, re.findall(r"test_rules\.py:(\d+)", line))
    assert second == first + 1
    assert "schema is 'k string' (" in line


@each_case(("written", "share"), [("5%", 0.05), ("12.5 %", 0.125), (0.05, 0.05), (1, 1), (0, 0)])
def test_a_share_is_a_number_or_per_cent(written, share):
    assert as_share(Late(growth=written).growth) == share
    assert f"at least {share:.1%} of" in checks.references("a", "b", "k", at_least=written).description


def test_names_with_hyphens_and_dots_are_dagsters_to_hold():
    raw = foreign_feed("t-x/raw-1.2/v1.0", schema="k string")
    dataset = made("t-x/sums-1/v1.0", inputs={"raw": raw}, checks=[checks.not_null("a b")])
    together(raw, dataset).get_repository_def()
    assert [check.name for check in dataset.check_specs] == ["not_null_a_b"]


def test_one_object_in_two_modules_is_one_asset():
    dataset = made()
    assert len([*together(RAW, dataset, RAW).assets]) == 2


def test_a_mapping_may_lead_to_other_partitions_of_another_feed():
    week = dg.TimeWindowPartitionMapping(start_offset=-6)
    days = dg.DailyPartitionsDefinition("2024-01-01")
    raw = foreign_feed("t/days/v1.0", schema="k string", partitions_def=days)
    assert made(inputs={"raw": Input(raw, mapping=week)}, partitions_def=days).keys


DAYS = dg.DailyPartitionsDefinition("2021-01-01")
BEFORE = dg.DailyPartitionsDefinition("2020-01-01", end_date="2021-01-01")
REGIONS = dg.StaticPartitionsDefinition(["apac", "emea"])


@each_case(
    ("raw_parts", "own_parts", "says"),
    [
        (DAYS, None, "t/sums/v1.0 has no partitions_def, so each run reads all partitions of t/raw/v1.0."),
        (None, DAYS, "t/sums/v1.0 has partitions_def, but none of its inputs has: "),
        (DAYS, DAYS, None),
        (None, None, None),
        (
            DAYS,
            BEFORE,
            "t/sums/v1.0 has partitions from 2020-01-01 00:00 up to 2021-01-01 00:00. It reads t/raw/v1.0, which has "
            "partitions from 2021-01-01 00:00: the two have no period in common, so no partition is built. Correct",
        ),
        (BEFORE, DAYS, "the two have no period in common"),
        (BEFORE, dg.DailyPartitionsDefinition("2020-12-31"), None),
        (
            DAYS,
            REGIONS,
            "t/sums/v1.0 reads the partition of t/raw/v1.0 that has the same key. One of the two has time partitions ",
        ),
        (
            REGIONS,
            DAYS,
            "so no key is the same and no partition is built. Declare which partitions are read: Input(…, map",
        ),
        (DAYS, dg.StaticPartitionsDefinition(["2021-01-01", "all"]), None),
        (dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS}), REGIONS, None),
        (
            dg.MultiPartitionsDefinition({"at": dg.HourlyPartitionsDefinition("2021-01-01-00:00"), "region": REGIONS}),
            dg.MultiPartitionsDefinition({"at": DAYS, "region": REGIONS}),
            "different lengths, such as hours and days. Declare Input(…, mapping=Within())",
        ),
        *[(dg.MultiPartitionsDefinition({"at": DAYS, "region": REGIONS}),) * 2 + (None,)],
    ],
)
def test_partitions_that_hardly_fit_get_a_hint_with_the_line(caplog, raw_parts, own_parts, says):
    caplog.clear()
    raw = foreign_feed("t/raw/v1.0", schema="k int", partitions_def=raw_parts)
    feed_asset("t/sums/v1.0", inputs={"raw": raw}, partitions_def=own_parts)(lambda raw: raw)
    hints = [record.getMessage() for record in caplog.records]
    assert len(hints) == bool(says)
    assert all("declare/test_rules.py:" in each and says in each for each in hints)


def test_a_dimension_under_another_name_gets_a_hint(caplog):
    at = dg.HourlyPartitionsDefinition("2021-01-01-00:00")
    by_region = foreign_feed(
        "t/hits/v1.0", schema="k int", partitions_def=dg.MultiPartitionsDefinition({"at": at, "region": REGIONS})
    )
    for name, count in (("region", 0), ("area", 1)):
        caplog.clear()
        parts = dg.MultiPartitionsDefinition({"at": DAYS, name: REGIONS})
        feed_asset("t/sums/v1.0", inputs={"raw": Input(by_region, mapping=Within())}, partitions_def=parts)(
            lambda raw: raw
        )
        hints = [record.getMessage() for record in caplog.records]
        assert (
            sum("so each partition reads all keys of region. Give both the same name." in it for it in hints) == count
        )
        assert len(hints) == count


def test_a_dataset_that_takes_the_name_of_another_one_of_its_feed_gets_a_hint(caplog):
    text = "\n@feed_asset('t/sums/v1.0', inputs={'raw': raw})\ndef sums(raw):\n    return raw\n"
    names = {"feed_asset": feed_asset, "raw": RAW, "__name__": "shop.sums"}
    exec(compile(text * 2, "shop/sums.py", "exec"), names)  # noqa: S102 (a file of a user, twice the same name)
    (hint,) = [record.getMessage() for record in caplog.records]
    assert (
        hint == "shop/sums.py:6: t/sums/v1.0 is also declared at shop/sums.py:2, as sums: this one replaces the other."
    )
