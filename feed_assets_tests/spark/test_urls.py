import pytest

from feed_assets.core.errors import InvalidName
from feed_assets.spark.urls import escaped, spark_path
from feed_assets_tests.support.each_case import each_case


@each_case(
    ("url", "key", "path"),
    [
        ("file:///data/lake", "ads/x.csv", "file:///data/lake/ads/x.csv"),
        ("file:///data/lake/", "x", "file:///data/lake/x"),
        ("file:///data/my%20lake%2Bmore", "a b/x%20y", "file:///data/my lake+more/a b/x%20y"),
        ("s3://bucket", "ads/x", "s3a://bucket/ads/x"),
        ("s3://bucket/lake/", "ads/x", "s3a://bucket/lake/ads/x"),
        ("gs://bucket/lake", "ads/x", "gs://bucket/lake/ads/x"),
        ("az://account/container", "ads/x", "abfss://container@account.dfs.core.windows.net/ads/x"),
        ("az://account/container/lake", "ads/x", "abfss://container@account.dfs.core.windows.net/lake/ads/x"),
        ("s3://bucket/lake", "", "s3a://bucket/lake"),
    ],
)
def test_a_key_of_a_blackboard_is_a_path_of_spark(url, key, path):
    assert spark_path(url, key) == path


def test_an_in_memory_url_has_no_spark_path():
    with pytest.raises(InvalidName, match=r"memory://.*use a file:// URL"):
        spark_path("memory://", "x")


def test_glob_characters_are_escaped_and_nothing_else():
    assert escaped(r"s3a://b/a[1]{2}*?\x +%20é#1") == r"s3a://b/a\[1\]\{2\}\*\?\\x +%20é#1"
    assert escaped("file:///lake/2026-01-01-10:00/a.csv") == "file:///lake/2026-01-01-10:00/a.csv"


@each_case("path", ["file:///lake/2026-01-01-10:00/a[1].csv", "s3a://b/a*:b.csv"])
def test_pattern_signs_beside_a_colon_are_refused_as_hadoop_opens_no_such_file(path):
    with pytest.raises(InvalidName, match="has ':' and a character of patterns"):
        escaped(path)
