"""Schemas that a feed may declare: those that Spark's parser reads, as far as the format can hold them."""

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from feed_assets.core.csv_dialect import RFC_4180
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.schemas import SCALARS, check_schema
from feed_assets.spark.csv_files import _columns
from feed_assets.spark.input_frames import ddl
from feed_assets.spark.written_frame import _statistics
from feed_assets_tests.support.each_case import each_case

FEED = Feed.parse("t/raw/v1.0")
READ = [
    "k string, n int",
    "id STRING NOT NULL COMMENT 'it is', n decimal(6, 2)",
    "a: int, b: string",
    "`a b` string, `c``d` int",
    "date date, order int, select string, _x int, 1a int",
    "n dec, m numeric(38), o decimal(38,38), p decimal(0)",
    "s struct<a: int, b: array<map<string, struct<c int NOT NULL>>>>, e struct<>",
    "a array<int>, b binary, v variant",
    "`größe` int",
    *(f"c {kind}" for kind in SCALARS),
]
REFUSED = {
    "n integr": "column 'n' has the type 'integr', which Spark does not have: is integer meant?",
    "n text": "column 'n' has the type 'text', which Spark does not have: is string meant?",
    "n str": "column 'n' has the type 'str', which Spark does not have: is string meant?",
    "n Float64": "column 'n' has the type 'Float64', which Spark does not have: is double meant?",
    "n int64": "'int64', which Spark does not have: is bigint meant?",
    "n bool": "'bool', which Spark does not have: is boolean meant?",
    "n datetime": "'datetime', which Spark does not have: is timestamp meant?",
    "n xyz": "which Spark does not have, expected one of string, ",
    "größe int": "column 'gr' has the type 'ö'",
    "": "it has no columns, expected columns such as 'id string, at timestamp'",
    "  ": "it has no columns",
    "k": "column 'k' has no type, expected one, such as in 'id string, at timestamp'",
    "int": "column 'int' has no type",
    "k string,": "'its end' where a column is expected",
    "k string n int": "'n' where ',' is expected",
    "k string; n int": "';' where ',' is expected",
    "k string)": "')' where ',' is expected",
    "a-b int": "has the type '-'",
    "12 int": "'12' where a column is expected",
    "1e3 int": "'1e3' where a column is expected",
    "'k' string": "where a column is expected",
    "n decimal(50,2)": "column 'n': decimal(50,2) is not a type, expected one such as decimal(10,2)",
    "n decimal(2,3)": "decimal(2,3) is not a type",
    "n decimal(1,2,3)": "decimal(1,2,3) is not a type",
    "n decimal()": "is not a type",
    "n decimal(": "it ends where ')' is expected",
    "n decimal(3": "it ends where ')' is expected",
    "n int(3)": "int(3) is not a type",
    "n varchar(3)": "column 'n' has the type 'varchar', which Spark does not have",
    "m map<string>": "'>' where ',' is expected",
    "m map<string,int": "it ends where '>' is expected",
    "a array": "it ends where '<' is expected",
    "s struct": "it ends where '<' is expected",
    "k string not": "it ends where 'null' is expected",
    "k string comment x": "the comment of column 'k' is not a text in quotes",
    "k string comment": "the comment of column 'k' is not a text in quotes",
}


def refused(schema: str, form: str = "parquet") -> str | None:
    """Return why a schema is refused, or None."""
    try:
        check_schema(FEED, schema, form)
    except InvalidDefinition as error:
        return str(error)
    return None


def columns(spark, schema: str) -> list[str] | None:
    """Return the columns that Spark reads from a schema, or None if it cannot parse it."""
    try:
        return ddl(spark, schema).names
    except (PySparkException, Py4JError):  # The second for varchar, which it parses and then cannot use.
        return None


@pytest.mark.parametrize("schema", READ)
def test_schemas_that_spark_parses_may_be_declared(spark, schema):
    assert refused(schema) is None
    assert columns(spark, schema)


@pytest.mark.parametrize("schema", REFUSED)
def test_schemas_that_spark_cannot_parse_are_refused_with_the_reason(spark, schema):
    said = refused(schema)
    assert said is not None
    assert said.startswith(f"t/raw/v1.0: schema {schema!r}: ")
    assert REFUSED[schema] in said
    assert "\n" not in said
    if schema not in ("", "  ", "int"):  # Which Spark takes for no column, and for one called `value`.
        assert columns(spark, schema) is None


WORDS = ["k", "`a b`", "string", "INT", "decimal", "map", "array", "struct", "not", "null", "comment", "'x'", "7", "12"]
WORDS += ["<", ">", "(", ")", ",", ":", "k string,", "array<", "map<string,", "n struct<", "e decimal(3)"]


@hypothesis_settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS, "<", ">", "(", ")", ",", ":", "k string,", "array<", "map<string,"]), max_size=9)
)
def test_every_random_schema_that_may_be_declared_is_parsed_by_spark(spark, words):
    schema = " ".join(words)
    if refused(schema) is None:
        assert columns(spark, schema), schema


@each_case("kind", ["array<int>", "map<string,int>", "struct<a: int>", "binary", "variant", "void"])
@each_case("form", ["csv", "json"])
def test_types_that_text_cannot_hold_are_refused_by_name(kind, form):
    said = refused(f"c {kind}", form)
    assert said is not None
    assert f"column 'c' is declared {kind.split('<')[0].split('(')[0]}, which cannot be read from {form}: " in said
    assert refused(f"c {kind}") is None


ADDED, NOT_FOUND = (
    "have names of columns that reading adds: rename them",
    "cannot be found in JSON: rename them without quotes and backslashes.",
)


@each_case(
    ("name", "form", "why"),
    [
        *((name, "parquet", ADDED) for name in ("_raw", "_FILE", "_reasons", "_corrupt", "_metadata")),
        ("a\\b", "json", NOT_FOUND),
        ('a"b', "json", NOT_FOUND),
    ],
)
def test_columns_that_a_run_adds_or_cannot_find_are_not_declared(name, form, why):
    assert f"columns {[name.lower()]} {why}" in str(refused(f"k int, `{name}` string", form))
    assert form == "parquet" or refused(f"k int, `{name}` string", "csv") is None


@each_case("schema", ["k string, k int", "k string, n int, K int", "`k` int, k int"])
def test_a_column_is_there_once(schema):
    assert "column 'k' occurs twice, expected each column once" in str(refused(schema))


def test_the_timestamp_type_follows_the_session_setting(spark):
    before = spark.conf.get("spark.sql.timestampType")
    found = [ddl(spark, "at timestamp").simpleString()]
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        found.append(ddl(spark, "at timestamp").simpleString())
    finally:
        spark.conf.set("spark.sql.timestampType", before)
    assert found == ["struct<at:timestamp>", "struct<at:timestamp_ntz>"]


def test_derived_columns_are_cached_by_schema(spark):
    first, equal, other = (ddl(spark, schema) for schema in ("k string, n int", "k string,n int", "k string, n long"))
    assert first is not equal
    for made in (
        lambda schema: _columns(spark, schema, ("k",), RFC_4180, "\n"),
        lambda schema: _statistics(spark, schema, None, None),
    ):
        assert made(first) is made(equal)
        assert made(first) is not made(other)
