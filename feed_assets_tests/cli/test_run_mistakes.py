"""`run` on a project with mistakes in functions and checks that appear only while they run."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.settings import settings
from feed_assets_tests.cli.sample_runs import invoke

pytestmark = pytest.mark.usefixtures("home", "spark")

HEAD = """
import dagster as dg
from pyspark.sql import functions as sf
from feed_assets import checks, feed_asset, foreign_feed, with_automation

sold = foreign_feed("shop/sold/v1.0", schema="item string, pieces int")
wrong = foreign_feed("shop/wrong/v1.0", schema="item string, price double")

def measured(audited):
    raise RuntimeError("measure went wrong")

def judged(found):
    return {}["limit"]
"""

DATASET = """
@feed_asset("shop/{name}/v1.0", inputs={{"rows": {read}}}, checks=[{check}])
def {name}(rows):
    {body}
"""

SUM = 'checks.Check("few", "few rows", passes=bool, aggregate="summ(pieces)")'
JUDGED = 'checks.Check("odd", "odd rows", passes=judged, aggregate="count(1)")'
MEASURED = 'checks.Check("own", "own rows", passes=bool, measure=measured)'
UDF = 'return rows.withColumn("n", sf.udf(lambda item: int(item), "int")("item"))'

MAKE_ONE = "Return `rows.sparkSession.createDataFrame(…)` of it."

IN_FUNCTIONS = [
    ("forgets", "rows.where('pieces > 0')", '"shop/forgets', "the function returned NoneType: expected a DataFrame of"),
    ("misspells", 'return rows.select("piecs")', "piecs", "name `piecs` cannot be resolved. Did you mean one of the"),
    ("divides", "return rows.limit(1 / 0)", "1 / 0", "ZeroDivisionError: division by zero"),
    ("casts", 'return rows.selectExpr("int(item)")', '"shop/casts', "The value 'lemon' of the type \"STRING\" cannot"),
    (
        "collects",
        "return rows.toPandas()",
        '"shop/collects',
        "pandas: expected a DataFrame of pyspark.sql. " + MAKE_ONE,
    ),
    ("calls", UDF, "sf.udf", "ValueError: invalid literal for int() with base 10: 'lemon'"),
]
"""Name, function body, text of the named line, and words of the message."""

IN_CHECKS = [
    ("sums", SUM, '"shop/sums', "the check 'few' is 'summ(pieces)', which cannot be computed from its rows: "),
    (
        "misses",
        'checks.not_null("itm")',
        '"shop/misses',
        "the check 'not_null_itm' is 'count_if(`itm` IS NULL)'",
    ),
    ("judges", JUDGED, '{}["limit"]', ", check \"odd\": KeyError: 'limit'"),
    ("measures", MEASURED, "raise RuntimeError", ', check "own": RuntimeError: measure went wrong'),
]
"""Name, check, text of the named line, and words of the message."""

OF_A_HEADER = "p.csv is not as declared: its header is item,cost: expected item,price. Correct the declaration, or "

NAMES = [name for name, *_ in IN_FUNCTIONS + IN_CHECKS] + ["reads"]


def module_of_mistakes() -> str:
    datasets = [DATASET.format(name=name, read="sold", check="", body=body) for name, body, *_ in IN_FUNCTIONS]
    for name, check, *_ in IN_CHECKS:
        datasets.append(DATASET.format(name=name, read="sold", check=check, body="return rows"))
    datasets.append(DATASET.format(name="reads", read="wrong", check="", body="return rows"))
    definitions = f"dg.Definitions([sold, wrong, {', '.join(NAMES)}])"
    return f"{HEAD}{''.join(datasets)}\ndefs = with_automation({definitions})\n"


def test_each_mistake_is_one_line_with_its_place_and_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    module = tmp_path / "shop_mistakes.py"
    module.write_text(module_of_mistakes())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FEED_ASSETS_MAX_ATTEMPTS", "1")
    settings.cache_clear()
    for name, file in [("sold", b"item,pieces\nlemon,1\n"), ("wrong", b"item,cost\nlemon,1\n")]:
        partition = Partition(Feed.parse(f"shop/{name}/v1.0"), "")
        publish(open_board(settings()), partition, {"p.csv": file}, datetime.now(UTC))
    result = invoke("run", "--until-idle", "-m", "shop_mistakes")
    printed = result.stdout.splitlines()
    failures = {line.split()[1].strip(",:"): line for line in printed if line.startswith("FAILED")}
    assert (result.exit_code, capfd.readouterr()) == (3, ("", ""))
    assert sorted(failures) == sorted(f"shop/{name}" for name in NAMES)
    assert len(printed) == len(NAMES) + 9, "no frames: a line for each, and the end of the run"
    assert OF_A_HEADER in failures["shop/reads"]
    code = module.read_text().splitlines()
    for name, _, within, words in IN_FUNCTIONS + IN_CHECKS:
        with subtests.test(name):
            (number,) = [number for number, line in enumerate(code, 1) if within in line]
            assert f": {module}:{number}" in failures[f"shop/{name}"]
            assert words in failures[f"shop/{name}"]
