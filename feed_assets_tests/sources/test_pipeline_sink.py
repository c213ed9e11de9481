"""Versions of pipelines in a database and in a folder."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import SinkUnavailable, SourceUnavailable
from feed_assets.core.pipelines import PipelineTable
from feed_assets.sources.lineage_table import read_lineage, read_lineage_file
from feed_assets.sources.pipeline_sink import FilePipelines, SqlPipelines, pipelines_beside
from feed_assets.sources.sinks import open_sink
from feed_assets_tests.support.counted_blackboards import Counting

NOON, SECOND = datetime(2024, 1, 1, 12, tzinfo=UTC), timedelta(seconds=1)
ONE = [PipelineTable("raw", "raw", "", "a"), PipelineTable("raw", "a/v1.0", "1", "a")]
TWO = [*ONE, PipelineTable("raw", "b/v1.0", "1", "a")]

ROW = {"pipeline": "raw", "table_name": "forged", "code_version": "", "code_location": "a"}
TIMES = ["9999-12-31T23:59:59.999999Z", "x", "2020-01-01T00:00:00"]
FORGED = [*(json.dumps({"published_at": at, **ROW}) for at in TIMES), "no line of ours"]


def read(board):
    return read_lineage_file(board, "events_pipelines/newest.jsonl", "pipeline", "table_name")["raw"]


def names_in(board):
    return [file.key.removeprefix("events_pipelines/") for file in board.files("events_pipelines")]


def test_versions_are_in_force_one_after_the_other_whatever_the_clock_says(board):
    pipelines = FilePipelines(board, "events_pipelines")
    published = [
        pipelines.publish(ours, at) for ours, at in [(ONE, NOON), (ONE, NOON), (TWO, NOON - SECOND), (ONE, NOON)]
    ]
    assert published == [True, False, True, True]
    assert names_in(board) == [f"2024-01-01T12:00:00.00000{each}Z.jsonl" for each in range(3)] + ["newest.jsonl"]
    assert read(board) == {"raw", "a/v1.0"}
    for forged in FORGED:  # Each once stayed for ever, as the newest version.
        board.put("events_pipelines/newest.jsonl", forged.encode())
        assert pipelines.publish(ONE, NOON), forged
        assert read(board) == {"raw", "a/v1.0"}


def test_a_kill_between_two_pipeline_files_keeps_the_previous_version(local_board):
    FilePipelines(local_board, "events_pipelines").publish(ONE, NOON)

    def die():
        if puts.pop():
            raise KeyboardInterrupt

    puts = [True, False]
    dying = Counting.around(local_board, {"put": die}).board
    with pytest.raises(KeyboardInterrupt):
        FilePipelines(dying, "events_pipelines").publish(TWO, NOON + SECOND)
    assert read(local_board) == {"raw", "a/v1.0"}
    assert FilePipelines(local_board, "events_pipelines").publish(TWO, NOON + 2 * SECOND)
    assert read(local_board) == {"raw", "a/v1.0", "b/v1.0"}


def test_a_reader_sees_a_version_of_a_table_as_a_whole_and_the_log_has_all(url):
    pipelines = SqlPipelines(url, "events_pipelines")
    for ours, at in [(ONE, NOON), (TWO, NOON - SECOND), (TWO, NOON), (ONE, NOON + SECOND)]:
        pipelines.publish(ours, at)
    assert read_lineage(url, "events_pipelines", "pipeline", "table_name")["raw"] == {"raw", "a/v1.0"}
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT published_at, count(*) FROM events_pipelines_log GROUP BY 1 ORDER BY 1"
        )
        assert [count for _, count in rows] == [2, 3, 2]
    for at in TIMES[:2]:  # The view shows these rows, as they are greater than ours.
        with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
            connection.execute(sa.insert(pipelines._log), {"published_at": at, **ROW})
        with pytest.raises(SinkUnavailable, match=f"events_pipelines_log has rows of somebody else: .*{at}.*. Delete"):
            pipelines.publish(ONE, NOON)


def test_pipelines_are_in_the_schema_of_their_events(postgresql_url):
    with sa.create_engine(postgresql_url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA IF EXISTS ours CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA ours")
    beside = pipelines_beside(open_sink(f"{postgresql_url}#ours.events", None))
    assert [beside.publish(ONE, NOON), beside.publish(ONE, NOON)] == [True, False]
    found = read_lineage(postgresql_url, "events_pipelines", "pipeline", "table_name", "ours")
    assert found == {"raw": {"raw", "a/v1.0"}}


@pytest.mark.parametrize("line", [b"\xff", b"[1]", b'{"pipeline": "a"}', b'{"pipeline": "a", "table_name": 1}'])
def test_an_invalid_pipeline_line_is_reported_with_its_number(local_board, line):
    good = json.dumps({"pipeline": "a", "table_name": "a"}).encode()
    local_board.put("lineage.jsonl", good + b"\n" + line + b"\n")
    with pytest.raises(
        SourceUnavailable, match=r"lineage.jsonl line 2: found .*, expected a JSON object with the texts"
    ):
        read_lineage_file(local_board, "lineage.jsonl", "pipeline", "table_name")


def test_a_missing_lineage_file_is_reported(local_board):
    with pytest.raises(SourceUnavailable, match=r"has no file lineage\.jsonl: correct its name"):
        read_lineage_file(local_board, "lineage.jsonl", "pipeline", "table_name")


def test_a_role_that_may_only_connect_keeps_no_version_from_being_published(postgresql_url):
    pipelines = SqlPipelines(postgresql_url, "events_pipelines")
    assert pipelines.publish(ONE, NOON)
    engine = sa.create_engine(postgresql_url, poolclass=sa.NullPool)
    with engine.connect() as stranger:
        stranger.execute(sa.text("SELECT pg_advisory_lock(hashtext('events_pipelines'))"))
        assert pipelines.publish(TWO, NOON + SECOND)
