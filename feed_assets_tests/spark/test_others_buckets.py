"""Foreign buckets on a real S3 server with permissions: each is read as the user of its blackboard."""

import pytest

from feed_assets.core.errors import BlackboardRefused
from feed_assets.core.feeds import Update
from feed_assets.feeds.opened import open_as_owner, open_board
from feed_assets.settings import Settings
from feed_assets.spark.input_frames import read
from feed_assets_tests.support.servers import S3Server, partner_settings
from feed_assets_tests.support.spark_updates import PARTITION

UPDATE = "20200101.000000"


@pytest.fixture
def given(s3_env: S3Server, s3_url: str, partner_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings whose environment keys may read only a part of our bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "producer")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "producer-secret")
    boards = {
        "partner": partner_settings(s3_env, partner_url),
        "theirs": {**partner_settings(s3_env, partner_url), "profile": None},
    }
    return Settings(blackboard=s3_url, s3_endpoint=s3_env.endpoint, blackboards=boards)


def test_a_blackboard_is_read_with_its_own_profile_and_with_no_other(given):
    board = open_board(given, name="partner")
    open_as_owner(given, "partner").put("theirs/1.csv", b"id\n1\n")
    assert [file.size for file in board.files("theirs")] == [5]
    assert board.page("").names == ("theirs",)
    with pytest.raises(BlackboardRefused, match="the blackboard 'theirs'"):
        open_board(given, name="theirs").files("theirs")


def test_a_missing_aws_profile_is_named(given):
    boards = {"partner": {"url": "s3://partners", "profile": "nobody"}}
    with pytest.raises(BlackboardRefused, match="Put the profile 'nobody' into the files of AWS"):
        open_board(Settings(blackboards=boards), name="partner")


def test_spark_reads_a_foreign_bucket_with_its_profile(spark, given):
    """Use a bucket that does not exist, since the session's keys are the admin's and may read all."""
    board = open_board(given, name="partner")
    key = f"{PARTITION.path}/{UPDATE}/part.csv"
    open_as_owner(given, "partner").put(key, b"id\n1\n")
    update = Update(PARTITION, UPDATE, board.files(PARTITION.path))
    rows = read(spark, board, [update], "csv", "id int").collect()
    assert [(row["id"], row["_file"], row["_reasons"]) for row in rows] == [(1, key, [])]
    with pytest.raises(Exception, match="nobody"):
        spark.read.csv("s3a://strangers/part.csv").collect()
