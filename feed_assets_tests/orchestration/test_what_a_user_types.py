"""Acceptance test of the public surface: files as a user writes them, in a project as `dg` makes it."""

from textwrap import dedent

import dagster as dg
import pytest

from feed_assets import Input, checks, feed_asset, foreign_feed, with_automation
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import DAYS, opened, raw_feed, sums_of

PYTHON = dedent(
    '''
    from datetime import timedelta

    import dagster as dg
    from pyspark.sql import DataFrame

    from feed_assets import Late, checks, feed_asset, foreign_feed

    days = dg.DailyPartitionsDefinition("2019-11-24")
    shown = foreign_feed("ads/shown/v1.0", partitions_def=days, schema="impression_id string, shown_at timestamp, item_id int")
    clicked = foreign_feed("ads/clicked/v1.0", partitions_def=days, schema="impression_id string, clicked_at timestamp")


    @feed_asset(
        "ads/effectiveness/v1.0",
        partitions_def=days,
        inputs={"shown": shown, "clicked": clicked},
        checks=[checks.not_empty(), checks.unique("item_id"), checks.within("ctr", 0, 1)],
        late=Late(growth=0.05, max_age=timedelta(days=2)),
        owners=["team:ads"],
    )
    def effectiveness(shown: DataFrame, clicked: DataFrame) -> DataFrame:
        """Click-through rate of each item on a day."""
        clicks = clicked.selectExpr("impression_id", "1 AS click")
        joined = shown.join(clicks, "impression_id", "left")
        return joined.groupBy("item_id").agg({"click": "count", "*": "count"}).selectExpr(
            "item_id", "`count(click)` / `count(1)` AS ctr"
        )
    '''  # noqa: E501
)
YAML = dedent(
    """
    type: feed_assets.ForeignFeedsComponent
    attributes:
      start_date: "2019-11-24"
      format: csv
      feeds:
        - {feed: ads/shown/v1.0, schema: "impression_id string, shown_at timestamp, item_id int"}
    """
)
COUNTED = dedent(
    f"""
    type: feed_assets.FeedAssetComponent
    attributes:
      feed: ads/counted/v1.0
      function: {__name__}.counted
      partitions: {{start: 2019-11-24}}
      inputs:
        shown: {{asset: ads/shown, at: feeds}}
      checks: [{{check: unique, arguments: [item_id]}}]
    """
)
MOST = dedent(
    f"""
    type: feed_assets.FeedAssetComponent
    attributes:
      feed: ads/most/v1.0
      function: {__name__}.most
      partitions: {{start: 2019-11-24}}
      inputs:
        counted: {{asset: ads/counted, at: counted}}
    """
)
SHOWN = "impression_id,shown_at,item_id\n1,2019-11-24 10:00:00,7\n2,2019-11-24 11:00:00,7\n3,2019-11-24 12:00:00,8\n"
CLICKED = "impression_id,clicked_at\n2,2019-11-24 11:00:05\n"


def keys(definitions: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"effectiveness.py": PYTHON}, id="Python alone"),
        pytest.param({"ads/effectiveness.py": PYTHON, "ads/feeds/defs.yaml": YAML}, id="Python and YAML"),
    ],
)
def test_the_python_file_loads_runs_and_publishes(project, files, spark):
    world = opened.enter_context(Harness(project(files)))
    world.drop("ads/shown/v1.0", "2019-11-24", SHOWN)
    world.drop("ads/clicked/v1.0", "2019-11-24", CLICKED)
    (run,) = world.run_until_idle()
    assert (run.assets, run.succeeded) == (("ads/effectiveness", "ads/effectiveness_rejects"), True)
    preview = world.reported("ads/effectiveness", "2019-11-24")[0].metadata["preview"]
    assert sorted(preview.splitlines()[2:]) == ["| 7 | 0.5 |", "| 8 | 0.0 |"]
    assert world.checks("ads/effectiveness", "2019-11-24") == {
        "not_empty": True,
        "unique_item_id": True,
        "within_ctr": True,
    }


def test_the_yaml_file_alone_declares_the_feed(project):
    world = opened.enter_context(Harness(project({"defs.yaml": YAML})))
    assert keys(world.definitions) == {"ads/shown"}
    world.drop("ads/shown/v1.0", "2019-11-24", SHOWN)
    world.run_until_idle()
    assert len(world.reported("ads/shown", "2019-11-24")) == 1


def counted(shown):
    """Count how often each item was shown."""
    return shown.groupBy("item_id").count()


def most(counted):
    """Return items that were shown more than once."""
    return counted.where("count > 1")


def test_a_project_of_yaml_and_functions_runs_and_publishes(project, spark):
    files = {"feeds/defs.yaml": YAML, "counted/defs.yaml": COUNTED, "most/defs.yaml": MOST}
    world = opened.enter_context(Harness(project(files)))
    world.drop("ads/shown/v1.0", "2019-11-24", SHOWN)
    runs = world.run_until_idle()
    assert [(run.assets, run.succeeded) for run in runs] == [
        (("ads/counted", "ads/counted_rejects"), True),
        (("ads/most",), True),
    ]
    assert world.checks("ads/counted", "2019-11-24") == {"unique_item_id": True}
    preview = world.reported("ads/most", "2019-11-24")[0].metadata["preview"]
    assert preview.splitlines()[2:] == ["| 7 | 2 |"]


def test_a_feed_declared_twice_alike_is_one_asset(project):
    definitions = project({"ads/effectiveness.py": PYTHON, "ads/feeds/defs.yaml": YAML})
    assert keys(definitions) == {"ads/shown", "ads/clicked", "ads/effectiveness", "ads/effectiveness_rejects"}


def test_a_feed_declared_again_with_another_schema_is_refused(project):
    other = YAML.replace("item_id int", "item_id long")
    with pytest.raises(InvalidDefinition, match=r"ads/shown is declared twice, and differs in schema: schema is '"):
        project({"ads/effectiveness.py": PYTHON, "ads/feeds/defs.yaml": other})


@pytest.mark.parametrize("attribute", ["format: xml", "schema: 7"])
def test_an_impossible_yaml_attribute_is_refused(project, attribute):
    with pytest.raises(Exception, match="Error while loading component"):
        project({"defs.yaml": YAML.replace("format: csv", attribute)})


def test_the_code_version_is_by_default_a_digest_of_the_functions_source():
    def one(raw):
        return raw

    def other(raw):
        return raw.where("n > 0")

    versions = [declared(function).code_versions_by_key for function in (one, one, other)]
    assert versions[0] == versions[1] != versions[2]
    assert set(declared(one, code_version="7").code_versions_by_key.values()) == {"7"}


@pytest.mark.parametrize(("tagged", "count"), [(True, 2), (False, 1)])
def test_a_dataset_has_rejects_if_it_gets_tagged_records_of_any_format(tagged, count):
    parquet = foreign_feed("t/raw/v1.0", partitions_def=DAYS, schema="n int", format="parquet")
    dataset = declared(lambda raw: raw, inputs={"raw": Input(parquet, tagged=tagged)})
    assert len(dataset.keys) == count


def test_definitions_keep_their_executor_or_get_the_in_process_one():
    theirs = with_automation(dg.Definitions(executor=dg.multiprocess_executor))
    assert (theirs.executor, with_automation(dg.Definitions()).executor) == (
        dg.multiprocess_executor,
        dg.in_process_executor,
    )


# Impossible declarations are refused when they are made

RAW = raw_feed()


def declared(function, feed="t/out/v1.0", inputs=None, **options):
    return feed_asset(feed, partitions_def=DAYS, inputs=inputs or {"raw": RAW}, **options)(function)


def test_a_parameter_that_is_no_input_is_refused():
    def function(row): ...

    with pytest.raises(InvalidDefinition, match=r"takes row, its inputs are raw: expected one"):
        declared(function)


def test_an_input_without_a_parameter_is_refused():
    def function(raw): ...

    with pytest.raises(InvalidDefinition, match="its inputs are other, raw: expected one"):
        declared(function, inputs={"raw": RAW, "other": raw_feed("t/other/v1.0")})


def test_parameters_without_names_are_refused():
    def function(*raw): ...

    with pytest.raises(InvalidDefinition):
        declared(function)


def test_a_function_may_have_a_partition_parameter():
    def function(raw, partition): ...

    assert declared(function).keys == {dg.AssetKey(["t", "out"]), dg.AssetKey(["t", "out_rejects"])}


def test_a_dataset_without_a_version_is_refused():
    def function(raw): ...

    with pytest.raises(InvalidName, match=r"t/out has no version: expected one, such as 't/out/v1\.0'"):
        declared(function, feed="t/out")


@pytest.mark.parametrize("feed", ["", "t//out/v1.0", "t/../v1.0", "v1.0"])
def test_a_name_that_is_no_feed_is_refused(feed):
    def function(raw): ...

    with pytest.raises(InvalidName):
        declared(function, feed=feed)


def test_the_same_check_twice_is_refused():
    def function(raw): ...

    with pytest.raises(InvalidDefinition, match="has the check not_empty twice"):
        declared(function, checks=[checks.not_empty(), checks.not_empty()])


@pytest.mark.parametrize("name", ["inputs", "stale", "rejects", "on_time"])
def test_a_check_with_a_built_in_name_is_refused(name):
    def function(raw): ...

    check = checks.Check(name, "it is", lambda found: found > 0, "count(1)")
    with pytest.raises(InvalidDefinition, match=f"has a check {name}: expected another name"):
        declared(function, checks=[check])


def test_the_same_input_twice_is_refused():
    def function(raw, again): ...

    with pytest.raises(InvalidDefinition, match=r"has the input t/raw/v1\.0 twice"):
        declared(function, inputs={"raw": RAW, "again": Input(RAW)})


def test_a_foreign_feed_needs_no_version():
    assert foreign_feed("t/old", schema="k string").key == dg.AssetKey(["t", "old"])


def test_a_dataset_can_be_the_input_of_another_dataset():
    def function(raw): ...

    dataset = sums_of(RAW)
    (spec,) = declared(function, inputs={"raw": dataset}).specs
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["t", "sums"])]
