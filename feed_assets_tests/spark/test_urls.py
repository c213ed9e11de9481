import pytest

from feed_assets.core.errors import InvalidName
from feed_assets.spark.urls import spark_path
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


def test_what_only_this_process_sees_has_no_path():
    with pytest.raises(InvalidName, match=r"memory://.*use a file:// URL"):
        spark_path("memory://", "x")
