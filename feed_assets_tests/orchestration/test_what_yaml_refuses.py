"""Declarations know their YAML or Python file, and errors in YAML name it."""

from textwrap import dedent

import dagster as dg
import pytest

from feed_assets.core.source_lines import declaring
from feed_assets.orchestration.declare.declarations import declaration_of
from feed_assets.orchestration.execute.yaml_models import object_at
from feed_assets_tests.orchestration.yaml_files import FILES, HERE, REPORT, chained_asset, chained_yaml

PYTHON = """
import dagster as dg
from feed_assets import foreign_feed

@dg.definitions
def defs():
    return dg.Definitions(assets=[foreign_feed("t/other", schema="id int")])
"""
PROFILES = dedent(
    """
    type: feed_assets.StateTablesComponent
    attributes:
      start: "2026-01-01"
      tables:
        - table: web/foo
          rows: feed_assets_tests.support.sum_projects:nothing
          profile: {measures: {rows: count(1)}, baseline: 7 same weekdays, off_by: 3}
          deep_checks:
            - {check: not_null, arguments: [id], severity: WARN}
            - {check: few, aggregate: count(1), within: [1, 9]}
    """
)


def refused(project, given, other):
    """Replace `given` by `other` in the report's YAML, and return the error."""
    assert given in REPORT
    with pytest.raises(Exception, match=r"Error while (building definitions|loading component)") as error:
        project(FILES | {"reports/defs.yaml": REPORT.replace(given, other)})
    return str(error.value.__cause__)


@pytest.mark.parametrize(
    ("given", "other", "words"),
    [
        ("at: dims", "at: dim", "shop/dim at 'dim': expected a folder or file of defs/: dims, reports, tables."),
        (
            "asset: shop/dim",
            "asset: shop/dims",
            "shop/dims at 'dims': no asset there has this key: expected one of shop/dim, shop/settled.",
        ),
        ("asset: shop/dim, at: dims", "asset: shop/dim", "asset: 'shop/dim': invalid format"),
        (
            "asset: shop/dim, at: dims",
            f"asset: {HERE}.DIMS",
            "expected what @feed_asset, foreign_feed or another one gives",
        ),
        (
            "at: dims",
            "at: reports",
            "its inputs lead back to itself, reports[0] -> reports[0]: expected `at` with other folders",
        ),
        ("mapping: within", "mapping: withn", "it is 'withn' (str), expected 'within', 'batch_date'"),
        (
            "mapping: batch_date",
            "mapping: all, only: {a: b}",
            "expected `mapping` to be one of within, batch_date, day_to_date",
        ),
        ("PT30M", "soon", "attributes.wait.delay"),
        ("P2D", "-P2D", "a time of 0 or more"),
        ("deadline: PT6H", "deadlin: PT6H", "attributes.wait.deadlin"),
        ("warn: PT5H", "warn: PT7H", "expected a deadline later than `warn`"),
        ("event_time: at\n  chart", "chart", "has `completeness` and no `event_time`"),
        (f"{HERE}.report", f"{HERE}.reports", "function: "),
        (f"{HERE}.report", f"{HERE}.chart", "expected one parameter for each input"),
        ('start: "2026-01-01", every: day', "start: 2026-1", "attributes.partitions.start"),
        ("pool: web", "retry_policy: web", "there is no such key: a failed run is requested again automatically"),
        ("every: day", "every: dya", "grain 'dya': expected minutes that divide an hour"),
        ("tz: Europe/Berlin}\n", "tz: Europe/Bärlin}\n", "time zone 'Europe/Bärlin': expected an IANA name"),
        ("every: day", "every: day, keys: {a: [b], c: [d]}", "partitions have the dimensions ['time', 'a', 'c']"),
    ],
)
def test_an_impossible_dataset_in_yaml_is_refused_with_its_file(project, given, other, words):
    said_of_it = refused(project, given, other)
    assert words in said_of_it
    assert "reports/defs.yaml" in said_of_it


def test_a_wait_in_yaml_without_partitions_of_time_is_refused(project):
    wait = "wait: {deadline: PT6H}, inputs: {raw: {asset: shop/dim, at: dims}}"
    with pytest.raises(Exception, match="Error while building definitions") as error:
        chained_asset(project, wait)
    assert str(error.value.__cause__).endswith("Add one, or remove `wait`.")
    assert (
        "chain/defs.yaml: t/chained/v1.0 has no time partitions, but `wait` counts from the end of a partition"
        in str(error.value.__cause__)
    )


def test_two_folders_that_read_each_other_are_refused(project):
    one, other = (chained_yaml(f"inputs: {{raw: {{asset: t/x, at: {at}}}}}") for at in ("other", "one"))
    with pytest.raises(Exception, match="Error while building definitions") as error:
        project({"one/defs.yaml": one, "other/defs.yaml": other})
    assert "one[0] -> other[0] -> one[0]" in str(error.value.__cause__)


def test_every_declaration_knows_its_yaml_or_python_file(project):
    read = chained_yaml("inputs: {raw: {asset: t/other, at: other.py}}")
    graph = project(FILES | {"chain/defs.yaml": read, "other.py": PYTHON}).resolve_asset_graph()
    keys = ("web/report", "shop/dim", "web/foo", "t/chained", "t/other")
    declared = [declaration_of(graph.get(dg.AssetKey.from_user_string(key))) for key in keys]
    places = ["/".join(each.declared_at.split("/")[-2:]) for each in declared]
    assert places == [f"{folder}/defs.yaml" for folder in ("reports", "dims", "tables", "chain")] + ["defs/other.py:7"]


def test_a_feed_of_a_module_that_yaml_names_knows_its_line(tmp_path, monkeypatch):
    text = 'from feed_assets import foreign_feed\nraw = foreign_feed("t/raw", schema="k int")'
    (tmp_path / "acme_feeds.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with declaring("defs.yaml"):
        raw = object_at("asset", "acme_feeds.raw")
    assert declaration_of(raw).declared_at.endswith("acme_feeds.py:2")


def test_a_profile_in_yaml_makes_a_monitor_of_the_table(project):
    graph = project({"defs.yaml": PROFILES}).resolve_asset_graph()
    assert {key.to_user_string() for key in graph.get_all_asset_keys()} == {"web/foo", "web/foo_profile"}
    assert {key.name for key in graph.asset_check_keys} == {"profile", "not_null_id", "few", "stale"}


@pytest.mark.parametrize(
    ("given", "other", "words"),
    [
        ("sum_projects:nothing", "sum_projects:nobody", "expected a function, such as my_project.tables.rows"),
        (
            "check: not_null",
            "check: not_nul",
            "expected one of not_empty, not_null, unique, within, references, accounted",
        ),
        ("within: [1, 9]", "within: [1]", "expected two numbers"),
        (
            "profile: {measures: {rows: count(1)}, baseline: 7 same weekdays, off_by: 3}",
            "",
            "`deep_checks`, but no `profile`",
        ),
    ],
)
def test_an_impossible_profile_in_yaml_is_refused(project, given, other, words):
    with pytest.raises(Exception, match="Error while building definitions") as refused:
        project({"defs.yaml": PROFILES.replace(given, other)})
    assert words in str(refused.value.__cause__)
