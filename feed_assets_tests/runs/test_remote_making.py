"""Orders and reports of a job that makes rows elsewhere: every part arrives as it was, and nothing else is read."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from feed_assets import checks
from feed_assets.core.errors import FunctionFailed, InvalidName, SparkDied, SparkUnavailable, TargetLost, UpdateChanged
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed, File, Partition, Update
from feed_assets.core.plans import Plan, RunSpec
from feed_assets.core.slices import Slice
from feed_assets.core.spans import Span
from feed_assets.core.windows import Window
from feed_assets.core.write_result import Written
from feed_assets.runs.job_values import decoded, encoded
from feed_assets.runs.maker import Audit, Task
from feed_assets.runs.outcomes import CheckResult
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.remote_making import failure_of, made_of, order_of, task_of

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SHOWN = Partition(Feed.parse("ads/shown/v1.0"), "2026-01-05/men")
OUTPUT = Partition(Feed.parse("ads/report/v1.0"), "2026-01-05", start=NOON, end=NOON.replace(day=6))
UPDATE = Update(SHOWN, "20260105.120000", (File("ads/shown/part-0", 7, "etag", NOON), File("ads/shown/part-1", 0)))
PIECE = Slice(SHOWN, None, "t1", frozenset({Operation.INSERT, Operation.DELETE}), 2, 99, reader=lambda *_, **__: None)
WINDOW = Window(NOON, NOON.replace(hour=13), "hour", "2026-01-05-12:00")
SPAN = Span(Feed.parse("shop/orders"), "region=apac", NOON, NOON.replace(hour=13), (WINDOW,))
NOT_EMPTY = checks.not_empty()
RECIPE = Recipe(
    OUTPUT.feed, (RecipeInput("shown", SHOWN.feed, blackboard="partner"),), lambda shown: shown, (NOT_EMPTY,)
)
BOARDS = {"partner": "the partner's board"}
TASK = Task(
    RECIPE,
    OUTPUT,
    updates={"shown": [UPDATE]},
    slices={"events": [PIECE]},
    run_spec=RunSpec({SHOWN: PIECE}, Plan("incremental", {"deep": [1, {"a": None}]}, {"tag": "x"}), consumes=True),
    uncounted={"shown": [UPDATE]},
    spans={"orders": SPAN, "optional": None},
    baseline=({"rows": 3.5},),
    is_suspect=True,
    boards={"shown": BOARDS["partner"]},
    previous=UPDATE,
    claims=((OUTPUT, "20260105.130000"),),
)


def through_json(value):
    return json.loads(json.dumps(value))


def test_an_order_carries_a_whole_task_and_no_code():
    order = through_json(order_of(TASK, "s3://lake"))
    there = task_of(order, RECIPE, BOARDS)
    assert there == TASK
    assert (there.output.start, there.output.end, there.slices["events"][0].reader) == (OUTPUT.start, OUTPUT.end, None)
    assert isinstance(there.spans["orders"].windows[0], Window)
    assert (order["blackboard"], order["recipe"]) == ("s3://lake", RECIPE.digest)
    with pytest.raises(TargetLost, match=r"other code of ads/report/v1\.0"):
        task_of({**order, "recipe": "0"}, RECIPE, BOARDS)


def test_a_report_carries_what_was_written_counted_and_audited():
    written = Written(UPDATE.files, 3, 7, NOON, None, "digest", ((NOON, 3),), (("k", "string"),), "| k |")
    sample = ({"day": date(2026, 1, 5), "at": NOON, "price": Decimal("1.50"), "raw": b"x", "deep": {"a": [None]}},)
    results = (CheckResult(NOT_EMPTY, passed=False, number=math.inf, sample=sample, rows=3),)
    audit = Audit(results, "| k |", None, {"rows": 3.0}, {})
    report = {"written": encoded({OUTPUT: written}), "counted": encoded([(UPDATE, ((NOON, 3),))])}
    rows = made_of(through_json({**report, "audit": encoded(audit)}), TASK)
    assert rows.write(OUTPUT, "20260105.130000") == written
    assert rows.counted() == [(UPDATE, ((NOON, 3),))]
    (result,) = rows.audit([]).checks
    assert (result.check, result.number, result.blocks) == (NOT_EMPTY, math.inf, True)
    assert result.sample[0] == {**sample[0], "price": "1.50", "raw": "b'x'"}


@pytest.mark.parametrize(
    "value",
    [
        {"type": "Path", "at": "/etc/passwd"},
        {"type": "check", "name": "none"},
        {"type": "Feed", "unknown": 1},
        {"type": "Partition", "feed": None, "key": "../x"},
        {"type": "datetime", "at": "now"},
        {"no": "type"},
    ],
)
def test_nothing_but_the_types_of_a_run_is_read(value):
    with pytest.raises((LookupError, TypeError, ValueError, InvalidName)):
        decoded(value, {})


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError("no"), FunctionFailed, "ValueError: no"),
        (SparkDied("it died"), SparkDied, "it died"),
        (SparkUnavailable("no Java"), TargetLost, "SparkUnavailable: no Java"),
        (UpdateChanged("gone"), UpdateChanged, "gone"),
        (SystemExit(2), FunctionFailed, "SystemExit: 2"),
        (ValueError("password=hunter2hunter2"), FunctionFailed, r"password=\*\*\*"),
    ],
)
def test_an_error_keeps_its_kind_and_no_secret(error, kind, text):
    with pytest.raises(kind, match=text) as caught:
        made_of(through_json(failure_of(error)), TASK)
    assert type(caught.value) is kind
    assert "hunter2" not in str(caught.value)
