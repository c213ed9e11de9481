"""Mistakes in declarations of compactions: each error names what to write instead."""

import re

import dagster as dg
import pytest

from feed_assets import Compact, Resources, compacted_copy, event_table, feed_asset, foreign_feed
from feed_assets.compaction.arrangement import Arrangement
from feed_assets.core.errors import InvalidDefinition
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.public_declarations import SHOP

RAW = foreign_feed("shop/raw/v1.0", schema="id string, `at.utc` timestamp")


@feed_asset("shop/own/v1.0", inputs={"raw": RAW})
def own(raw):
    return raw


OF_OURS = (
    "compacted_copy('shop/copy/v1.0'): source is shop/own, which our runs write: expected a feed of foreign_feed. "
    "Write compact=Compact(…) at the dataset shop/own in place of a copy."
)


@each_case(
    ("declare", "expected"),
    [
        (
            lambda: foreign_feed("shop/raw/v1.0", schema="id string", compact=Compact()),
            "there is no parameter compact: the files belong to others. Declare compacted_copy(source, feed), and read",
        ),
        (lambda: compacted_copy(own, "shop/copy/v1.0"), OF_OURS),
        (lambda: compacted_copy(own.get_asset_spec(dg.AssetKey(["shop", "own"])), "shop/copy/v1.0"), OF_OURS),
        (
            lambda: compacted_copy(event_table("shop/orders", source=SHOP), "shop/copy/v1.0"),
            "source is shop/orders, which has no files: expected a feed of foreign_feed.",
        ),
        (
            lambda: compacted_copy(RAW, "shop/copy/v1.0", sort_by=("id", "at")),
            "compacted_copy('shop/copy/v1.0'): `sort_by` has 'at': expected columns of the rows: id, at.utc. Correct",
        ),
        (lambda: Compact(target=256), "target is 256 (int), expected a size as a text, such as '256m' or '1g'. Write"),
        (lambda: Compact(target="256 MB"), "target is '256 MB' (str), expected a size as a text, such as '256m' or"),
        (lambda: Resources(memory=4), "memory is 4 (int), expected memory as a text, such as '512m' or '4g'. Write"),
    ],
)
def test_a_mistake_in_a_declaration_names_what_to_write(declare, expected):
    with pytest.raises(InvalidDefinition, match=re.escape(expected)):
        declare()


def test_columns_are_compared_as_spark_compares_them(spark):
    assert compacted_copy(RAW, "shop/copy/v1.0", sort_by=("ID", "at.utc")).keys
    rows = spark.createDataFrame([("b", 1), ("a", 2)], "id string, `at.utc` int")
    assert [row["id"] for row in Arrangement(("ID",), 1)(rows).collect()] == ["a", "b"]
    with pytest.raises(InvalidDefinition, match=r"^`sort_by` has 'at': expected columns of the rows: id, at\.utc\."):
        Arrangement(("at",), 1)(rows)
