"""Runs that publish nothing: a refused audit, an error, an interrupt."""

import re
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryDirectory

import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from obstore import exceptions
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from feed_assets.core.attempts import needs_a_change
from feed_assets.core.errors import (
    AlreadyRunning,
    BlackboardUnavailable,
    FunctionFailed,
    FunctionWrong,
    InvalidDefinition,
    KafkaUnavailable,
    SparkUnavailable,
    UpdateChanged,
)
from feed_assets.core.feeds import MANIFEST, Partition
from feed_assets.core.source_lines import as_seen_from_here
from feed_assets.feeds.write import invalidate
from feed_assets.ledger import log, runs, updates
from feed_assets.runs import checks
from feed_assets.runs.phases import Published, Refused, Unchanged
from feed_assets.runs.reconcile import reconcile
from feed_assets.runs.services import spark_maker
from feed_assets.settings import Settings
from feed_assets_tests.support.build_lake import CLEAN, DAY, RAW, REJECTS, stepping
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.each_case import each_case

ONE, TWO, BAD = f"1,{DAY} 01:00:00", f"2,{DAY} 02:00:00", f"x,{DAY} 03:00:00"
RAW_DAY, CLEAN_DAY, REJECTS_DAY = Partition(RAW, DAY), Partition(CLEAN, DAY), Partition(REJECTS, DAY)
MAYBE = checks.Check("not_two", "id 2 must not occur", lambda found: found == 0, "count_if(id = 2)")


HERE = as_seen_from_here(__file__)


class Mistake(Exception):
    """Raised by a user's function."""


def test_a_refused_audit_publishes_nothing_and_the_previous_update_is_served(lake):
    lake.drop(ONE)
    first = lake.clean(checks=(MAYBE,)).outputs[-1].id
    lake.drop(ONE, TWO)
    refused = lake.clean(checks=(MAYBE, checks.not_empty()))
    assert isinstance(refused, Refused)
    assert refused.reason == "not_two: id 2 must not occur; found 1"
    assert lake.valid().id == lake.newest().id == first
    assert (lake.states(), lake.states(REJECTS)) == ([updates.PUBLISHED, updates.REFUSED],) * 2
    assert lake.bad_ends() == [(updates.REFUSED, refused.reason)]
    for output in refused.outputs:
        assert lake.services.board.get(f"{output.partition.path}/{output.id}/{MANIFEST}") is None
        assert lake.services.board.files(f"{output.partition.path}/{output.id}") == output.written.files


def test_an_audit_without_rows_names_the_rejects_and_reasons(lake):
    lake.drop("x,2019-11-24 08:00:00", "y,soon", "z,2019-11-24 08:00:00")
    refused = lake.clean(checks=(checks.not_empty(),))
    assert isinstance(refused, Refused)
    words = "3 rejected, most often for 'id: not an int' (3), 'at: not a timestamp' (1)"
    assert refused.reason == f"not_empty: the update must hold at least one row; found 0 rows; {words}"
    assert lake.bad_ends() == [(updates.REFUSED, refused.reason)]


def test_consumers_are_held_from_a_refused_audit_to_the_next_good_one(lake):
    lake.drop(ONE)
    lake.clean(checks=(MAYBE,))
    free = lake.facts_of_top().failed
    lake.drop(ONE, TWO)
    lake.clean(checks=(MAYBE,))
    held = lake.facts_of_top().failed
    lake.drop(ONE)
    lake.clean(checks=(MAYBE,))
    assert (free, held) == ({}, {CLEAN_DAY: "not_two: id 2 must not occur; found 1"})
    assert lake.facts_of_top().failed == {}


def test_rolling_back_a_refused_input_releases_its_consumers(lake):
    lake.drop(ONE)
    lake.clean(checks=(MAYBE,))
    bad = lake.drop(ONE, TWO)
    lake.clean(checks=(MAYBE,))
    before = lake.last_change()
    invalidate(lake.services.board, RAW_DAY, bad.id)
    assert isinstance(lake.clean(checks=(MAYBE,)), Unchanged)
    assert lake.facts_of_top().failed == {}
    with lake.services.ledger.read() as connection:
        since = log.after(connection, before, 10**9, 10, [CLEAN])
    assert {each.kind for each in since} >= {log.UNCHANGED, log.QUALITY}


def test_a_function_that_raises_leaves_a_failed_run_and_nothing_on_the_blackboard(lake):
    def fail(raw):
        raise Mistake("no such column")

    lake.drop(ONE)
    before = lake.objects()
    with pytest.raises(FunctionFailed) as raised:
        lake.clean(transform=fail)
    line = fail.__code__.co_firstlineno + 1
    assert str(raised.value) == f"{HERE}:{line}: Mistake: no such column"
    assert isinstance(raised.value.__cause__, Mistake)
    assert lake.bad_ends() == [(runs.FAILED, f"FunctionFailed: {raised.value}")]
    assert (lake.states(), lake.states(REJECTS)) == ([updates.ABANDONED], [updates.ABANDONED])
    assert (lake.objects(), lake.running()) == (before, [])


def test_a_run_that_fails_after_writing_parts_removes_them(lake):
    def fail(step):
        if step == "audited":
            raise Mistake(step)

    lake.drop(ONE)
    before = lake.objects()
    with pytest.raises(FunctionFailed, match="Mistake"):
        lake.clean(services=stepping(lake, fail))
    assert lake.objects() == before
    assert lake.states() == [updates.ABANDONED]


def test_a_run_whose_csv_file_is_replaced_while_it_is_read_publishes_nothing(lake):
    def replace_file(step):
        if step == "audited":
            lake.services.board.put(update.files[0].key, f"id,at\n{TWO}\n".encode())

    update = lake.drop(ONE)
    with pytest.raises(UpdateChanged, match=r"part-0\.csv has \d+ bytes .* when it was listed"):
        lake.clean(services=stepping(lake, replace_file))
    assert lake.states() == [updates.ABANDONED]
    assert lake.valid() is None


@pytest.mark.parametrize("step", ["manifest of ads/clean/v1.0 written", "published"])
def test_a_failure_after_the_manifest_still_publishes(lake, step):
    def fail(announced):
        if announced == step:
            raise Mistake(step)

    lake.drop(ONE)
    with pytest.raises(FunctionFailed, match="Mistake"):
        lake.clean(services=stepping(lake, fail))
    assert (lake.valid().id, lake.states()) == (lake.newest().id, [updates.PUBLISHED])
    assert (lake.bad_ends(), lake.running()) == ([], [])


def test_a_run_that_fails_during_an_outage_is_settled_by_reconcile(lake):
    reachable = Counting.around(lake.services.board)

    def refuse():
        raise exceptions.GenericError("connection refused")

    def fail(raw):
        reachable.before = dict.fromkeys(("list", "children", "get", "put", "create", "delete"), refuse)
        raise Mistake("no such column")

    lake.drop(ONE)
    before = lake.objects()
    with pytest.raises(FunctionFailed, match="Mistake"):
        lake.clean(transform=fail, services=replace(lake.services, board=reachable.board))
    ended = lake.bad_ends()
    assert ([state for state, _ in ended], lake.states()) == ([runs.FAILED], [updates.CLAIMED])
    reconcile(lake.services)
    assert (lake.states(), lake.bad_ends()) == ([updates.ABANDONED], ended)
    assert (lake.objects(), isinstance(lake.clean(), Published)) == (before, True)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (DagsterExecutionInterruptedError(), "DagsterExecutionInterruptedError: "),
        (BlackboardUnavailable("no answer"), "BlackboardUnavailable: no answer"),
    ],
)
def test_an_interruption_leaves_an_abandoned_run_with_its_reason(lake, error, reason):
    def interrupt(raw):
        raise error

    lake.drop(ONE)
    before = lake.objects()
    with pytest.raises(type(error)):
        lake.clean(transform=interrupt)
    assert (lake.bad_ends(), lake.running()) == ([(updates.ABANDONED, reason)], [])
    assert (lake.objects(), lake.states()) == (before, [updates.ABANDONED])


def test_a_spark_that_cannot_be_reached_is_no_attempt(lake):
    gone = Settings(spark_remote="sc://127.0.0.1:9")
    lake.drop(ONE)
    with pytest.raises(SparkUnavailable):
        lake.clean(services=replace(lake.services, maker=lambda: spark_maker(gone)))
    ((state, reason),) = lake.bad_ends()
    assert (state, lake.states(), lake.running()) == (updates.ABANDONED, [updates.ABANDONED], [])
    assert reason.startswith("SparkUnavailable: nobody listens at FEED_ASSETS_SPARK_REMOTE=sc://127.0.0.1:9")


def test_a_second_run_of_an_output_is_refused_while_the_first_runs(lake):
    refused = []

    def run_again(step):
        with pytest.raises(AlreadyRunning) as error:
            lake.clean()
        refused.append((step, str(error.value)))

    lake.drop(ONE)
    lake.clean(services=stepping(lake, lambda step: step == "audited" and run_again(step)))
    ((_, message),) = refused
    assert "ads/clean/v1.0 2019-11-24 is being built by run" in message
    assert lake.states() == [updates.PUBLISHED]


@each_case(
    ("transform", "says"),
    [
        (lambda raw: None, r"NoneType: expected a DataFrame of pyspark\.sql\. Return one\."),
        (lambda raw: [1], r"list: expected a DataFrame of pyspark\.sql\. Return one\."),
        (lambda raw: raw.select("id", "id", "at"), "2 columns `id`: expected each name once. Rename or drop one."),
        (lambda raw: raw.selectExpr("id", "at", "id AS ID"), "2 columns `id` and `ID`: expected each name once"),
    ],
)
def test_a_function_whose_result_no_dataset_can_hold_is_refused(lake, transform, says):
    lake.drop(ONE)
    with pytest.raises(InvalidDefinition, match=f"ads/clean/v1.0: the function returned {says}"):
        lake.clean(transform=transform)
    assert lake.bad_ends()[0][0] == runs.FAILED


def test_a_service_that_a_python_worker_cannot_reach_is_no_attempt_as_in_the_driver(lake):
    def of_a_worker(raw):
        def refuse(number):
            raise KafkaUnavailable(f"no answer about {number}")

        return raw.select(sf.udf(refuse, "int")("id").alias("id"), "at")

    lake.drop(ONE)
    with pytest.raises(KafkaUnavailable):
        lake.clean(transform=of_a_worker)
    assert lake.bad_ends() == [(updates.ABANDONED, "KafkaUnavailable: no answer about 1")]


def of_a_missing_column(raw):
    return raw.select("ids")


def of_a_value(raw):
    return raw.select(sf.lit("x").cast("int").alias("id"), "at")


def of_a_worker(raw):
    def refuse(number):
        raise Mistake(f"no {number}")

    return raw.select(sf.udf(refuse, "int")("id").alias("id"), "at")


def of_a_name(raw):
    return missing_name  # noqa: F821 (that is the mistake)


def of_a_service(raw):
    with suppress(ConnectionError):
        answer = not_reached()
    return raw.where(answer)


def not_reached():
    raise ConnectionError


def of_another_table(raw):
    return raw.join(raw.sparkSession.table("not_there_now"), "id")


def of_a_folder_without_files(raw):
    with TemporaryDirectory() as folder:
        return raw.join(raw.sparkSession.read.parquet(folder), "id")


def of_a_database_that_is_down(raw):
    raise AnalysisException("[FAILED_JDBC.CONNECTION] Failed JDBC jdbc:derby: Couldn't connect to the database")


def of_a_metastore_that_is_down(raw):
    raise AnalysisException("org.apache.hadoop.hive.ql.metadata.HiveException: Unable to instantiate SessionHive")


def refuse_any(number):
    raise Mistake(f"no {number}")


@each_case(
    ("changes", "kind", "says"),
    [
        ({"transform": of_a_missing_column}, FunctionWrong, "+1: AnalysisException: [UNRESOLVED_COLUMN"),
        ({"transform": of_a_value}, FunctionWrong, "+1: NumberFormatException: [CAST_INVALID_INPUT]"),
        ({"transform": of_a_worker}, FunctionFailed, "+2: Mistake: no 1"),
        ({"transform": of_a_name}, FunctionWrong, "+1: NameError: name 'missing_name' is not defined"),
        ({"transform": of_a_service}, FunctionFailed, "+3: UnboundLocalError: "),
        ({"transform": of_a_folder_without_files}, FunctionFailed, "+2: AnalysisException: [UNABLE_TO_INFER_SCHEMA]"),
        ({"transform": of_a_database_that_is_down}, FunctionFailed, "+1: AnalysisException: [FAILED_JDBC.CONNECTION]"),
        ({"transform": of_a_metastore_that_is_down}, FunctionFailed, "+1: AnalysisException: org.apache.hadoop.hive"),
        ({"transform": of_another_table}, FunctionFailed, "+1: AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]"),
        (
            {"checks": (replace(MAYBE, passes=refuse_any),)},
            FunctionFailed,
            '+1, check "not_two": Mistake: no 0.0',
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_is_wrong_where_no_other_run_can_end_well(lake, changes, kind, says):
    lake.drop(ONE)
    begins = (changes.get("transform") or refuse_any).__code__.co_firstlineno
    after, what = re.match(r"\+(\d)(.*)", says).groups()
    with pytest.raises(FunctionFailed) as raised:
        lake.clean(**changes)
    assert type(raised.value) is kind
    assert str(raised.value).startswith(f"{HERE}:{begins + int(after)}{what}")
    state, reason = lake.bad_ends()[-1]
    assert (state, needs_a_change(reason)) == (runs.FAILED, kind is FunctionWrong)
