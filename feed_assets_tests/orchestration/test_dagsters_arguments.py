"""Arguments of Dagster's own decorators: accepted by ours, or refused with a cure."""

from inspect import signature

import dagster as dg
import pytest

from feed_assets import Input, Late, feed_asset, foreign_feed
from feed_assets.core.errors import InvalidDefinition
from feed_assets.orchestration.declare.presentation import INSTEAD, INSTEAD_OF_FOREIGN
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.harness_queries import verdict_of
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    given,
    harness,
    inputs_of,
    outcomes,
    raw_feed,
    rows,
    sums_of,
)

SETTLED = "t/settled/v1.0"
BUILT = [("sums", DAY, True)]
SHOWN = {"group_name": "finance", "tags": {"tier": "gold"}, "kinds": {"python"}, "metadata": {"runbook": "wiki/7"}}


@dg.asset(partitions_def=DAYS)
def plain(): ...


def sums(name=SUMS, **options):
    @feed_asset(name, **{"inputs": {"raw": raw_feed()}, "partitions_def": DAYS, **options})
    def sums(raw):
        """Sum numbers."""
        return raw

    return sums


def foreign(**options):
    return foreign_feed(RAW, schema="k string", **options)


def attributes(spec: dg.AssetSpec) -> dict:
    tags = {name: value for name, value in spec.tags.items() if not name.startswith("dagster/kind/")}
    metadata = {name: value for name, value in spec.metadata.items() if not name.startswith("feed_assets/")}
    return {"group_name": spec.group_name, "tags": tags, "kinds": spec.kinds, "metadata": metadata}


def test_assets_keep_declared_group_tags_kinds_metadata_and_description():
    rejects, main = sums(**SHOWN, description="Told otherwise.").specs
    assert (attributes(main), main.description) == (SHOWN, "Told otherwise.")
    of_rejects = {"group_name": "finance", "tags": {"tier": "gold"}, "kinds": {"pyspark", "parquet"}, "metadata": {}}
    assert attributes(rejects) == of_rejects
    assert "rejected" in rejects.description
    assert attributes(foreign(**SHOWN)) == SHOWN


@each_case(
    ("declare", "options", "expected"),
    [
        (
            foreign,
            {"key_prefix": ["sales"]},
            r"no parameter key_prefix: the asset key is the name of the feed or table\. Write",
        ),
        (foreign, {"deps": [raw_feed()]}, "no parameter deps: no run here makes a foreign feed"),
        (sums, {"key_prefix": "sales"}, r"no parameter key_prefix: .* as in 'sales/orders/v1\.0'"),
        (sums, {"retry_policy": dg.RetryPolicy()}, "no parameter retry_policy: a failed run is requested again"),
        (foreign, {"op_tags": {}}, r"no parameter op_tags: no run here makes a foreign feed\. Remove the argument\."),
        (foreign, {"code_version": "1"}, "no parameter code_version: no run here makes a foreign feed"),
        (foreign, {"partition_mapping": 1}, r"partition_mapping: Input\(feed, mapping=…\) among the inputs"),
        (sums, {"partition_mapping": 1}, r"no parameter partition_mapping: Input\(feed, mapping=…\) among the inputs"),
        (lambda **more: Input(raw_feed(), **more), {"partition_mapping": 1}, "partition_mapping: mapping= says which"),
        (
            sums,
            {"op_tags": {"a": "b"}},
            "no parameter op_tags: pool= limits how many runs of the dataset are active at once",
        ),
        (sums, {"resource_defs": {}}, "no parameter resource_defs: the function gets only DataFrames"),
        (sums, {"hooks": set()}, "no parameter hooks: alerts report failures"),
        (sums, {"automation_condition": dg.AutomationCondition.eager()}, "the sensors of with_automation"),
        (
            sums,
            {"metadata": {"feed_assets/status": "x"}},
            "metadata 'feed_assets/status': expected names outside of feed_assets/",
        ),
        (sums, {"kinds": {"a", "b", "c", "d"}}, "kinds is .*, expected a set of up to 3 kinds"),
        (sums, {"group_name": "my group"}, "group_name is 'my group' .*, expected letters, digits and '_'"),
        (foreign, {"tags": {"a b": "c"}}, r"t/raw/v1\.0: .*Found invalid tag keys: .*a b"),
        (sums, {"deps": ["t/settled"]}, r"deps\[0\] is 't/settled' \(str\), expected"),
        (sums, {"deps": [dg.AssetKey("orders")]}, r"deps\[0\] is AssetKey\(\['orders'\]\) \(AssetKey\), expected"),
        (sums, {"deps": [dg.AssetSpec("orders")]}, r"orders is no feed: .* foreign_feed\(\) or event_table\(\)"),
        (sums, {"deps": [plain]}, "plain is no feed asset: .* Declare what it writes with foreign_feed"),
        (
            sums,
            {"deps": [Input(raw_feed(SETTLED), tagged=True)]},
            r"deps\[0\] is tagged, but `deps` are not read",
        ),
        (sums, {"deps": [Input(raw_feed(SETTLED), optional=True)]}, r"deps\[0\] is optional, .* or remove optional"),
        (sums, {"deps": [raw_feed()]}, r"has the input t/raw/v1\.0 twice"),
    ],
)
def test_an_argument_that_cannot_be_taken_is_refused_in_one_line_with_the_cure(declare, options, expected):
    with pytest.raises(InvalidDefinition, match=expected) as refused:
        declare(**options)
    assert "\n" not in str(refused.value)


def test_every_argument_of_dagsters_assets_is_accepted_or_has_a_cure():
    dagsters = {*signature(dg.asset).parameters, *signature(dg.AssetSpec).parameters} - {"compute_fn", "kwargs"}
    for ours, cures in ((feed_asset, INSTEAD), (foreign_feed, INSTEAD_OF_FOREIGN)):
        assert dagsters - {*signature(ours).parameters} <= {*cures}
        assert {*cures} & {*signature(ours).parameters} == set()


def test_a_dep_is_waited_for_and_pinned_but_not_passed_to_the_function():
    read: list[set[str]] = []

    def give(task):
        read.append({*task.updates})
        return given(task)

    raw, settled = raw_feed(), raw_feed(SETTLED)
    made = harness(raw, settled, sums(inputs={"raw": raw}, deps=[settled]), give=give)
    made.drop(RAW, DAY, rows(1))
    made.drop(SETTLED, NEXT_DAY, rows(1))
    assert made.run_until_idle() == []
    first = made.drop(SETTLED, DAY, rows(7))
    assert [run.partition for run in made.run_until_idle()] == [DAY]
    assert inputs_of(made.reported("t/sums")[-1])[f"{SETTLED}/{DAY}"] == first
    assert (read, made.rows("t/sums/v1.0", DAY)) == ([{"raw"}], [{"k": "a", "n": 1}])


def test_a_changed_dep_rebuilds_by_its_late_policy_and_an_absent_one_is_waited_for():
    raw, settled = raw_feed(), raw_feed(SETTLED)
    tested = harness(raw, settled, sums(inputs={"raw": raw}, deps=[Input(settled, late=Late("100%"))]))
    tested.drop(RAW, DAY, rows(1))
    first = tested.drop(SETTLED, DAY, rows(7))
    assert outcomes(tested.run_until_idle()) == BUILT
    small = tested.drop(SETTLED, DAY, rows(7, 8))
    assert (outcomes(tested.run_until_idle()), verdict_of(tested)[0]) == ([], "skips late data")
    large = tested.drop(SETTLED, DAY, rows(*range(10, 20)))
    assert outcomes(tested.run_until_idle()) == BUILT
    assert inputs_of(tested.reported("t/sums")[0])[f"{SETTLED}/{DAY}"] == large
    for gone in (large, small):
        tested.invalidate(SETTLED, DAY, gone)
    assert outcomes(tested.run_until_idle()) == BUILT
    assert inputs_of(tested.reported("t/sums")[0])[f"{SETTLED}/{DAY}"] == first
    served = tested.newest(SUMS, DAY)
    tested.invalidate(SETTLED, DAY, first)
    tested.drop(RAW, DAY, rows(2))
    waits = f"no valid update of {SETTLED} {DAY}; {served}, which was built before, is still served"
    assert (outcomes(tested.run_until_idle()), verdict_of(tested)) == ([], ("waits for input", waits))


def test_a_dep_whose_checks_fail_is_waited_for_and_builds_nothing():
    raw, unchecked = raw_feed(), raw_feed("t/unchecked/v1.0")
    dep, built = sums_of(unchecked), [("picked", DAY, True)]
    tested = harness(raw, unchecked, dep, sums(PICKED, inputs={"raw": raw}, deps=[dep]))
    tested.drop(RAW, DAY, rows(1))
    for number, ran in ((101, [("sums", DAY, False)]), (1, [*BUILT, *built]), (102, [("sums", DAY, False)])):
        tested.drop("t/unchecked/v1.0", DAY, rows(number))
        assert outcomes(tested.run_until_idle()) == ran
    assert verdict_of(tested, PICKED)[0] == "current"
    tested.drop(RAW, DAY, rows(2))
    assert (outcomes(tested.run_until_idle()), verdict_of(tested, PICKED)[0]) == ([], "waits for quality")
