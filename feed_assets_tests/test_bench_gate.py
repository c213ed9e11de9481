"""The gate of the benchmarks: what fails it, what is stored, and the page that shows it. Nothing is measured here."""

from datetime import date

import pytest
from pydantic import ValidationError

from benchmarks import gate, history
from benchmarks.catalogue import BENCHMARKS
from feed_assets_tests.support.each_case import each_case

ROW = gate.Row(version="v1", commit="12345678", date=date(2026, 11, 30), cpus=2, ratios=dict.fromkeys(gate.CASES, 2.0))


class Measured:
    """Stand-in for a measurement: medians of one case in order, and 2.0 of all others."""

    def __init__(self, *medians, case="late"):
        self.case, self.medians = case, [*medians]

    def __call__(self, case):
        return self.medians.pop(0) if case == self.case else 2.0


@each_case(
    ("factors", "status"),
    [([1.4], 0), ([1.5], 0), ([1.6, 1.6, 1.6], 1), ([1.6, 1.6, 1.4], 0), ([9, 1.51, 9], 1), ([0.2], 0)],
)
def test_a_case_fails_the_gate_if_the_best_of_three_medians_is_above_the_bound(factors, status, tmp_path, capsys):
    (stored := tmp_path / "ratios.json").write_bytes(gate.ROWS.dump_json([ROW]))
    measure = Measured(*(2.0 * factor for factor in factors))
    assert gate.gate(measure, stored) == status
    assert measure.medians == []
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(gate.CASES) == 11
    assert [line.split()[0] for line in lines if "REGRESSION" in line] == ["late"] * status
    assert lines[3].split()[:4] == ["late", f"{2 * min(factors):.2f}", "2.00", "3.00"]


@each_case(
    ("changes", "message"),
    [
        ({"late": None}, r"late \(missing\)"),
        ({"typo": 2.0}, r"typo \(unknown\)"),
        ({"late": None, "typo": 2.0}, r"late \(missing\), typo \(unknown\)"),
    ],
)
def test_a_stored_ratio_for_each_case_of_the_gate_and_no_other(changes, message):
    ratios = {case: ratio for case, ratio in (ROW.ratios | changes).items() if ratio is not None}
    with pytest.raises(ValueError, match=message):
        [*gate.check([ROW, ROW.model_copy(update={"ratios": ratios})], Measured(2.0))]
    with pytest.raises(ValueError, match="no stored ratios"):
        [*gate.check([], Measured(2.0))]


@each_case("ratio", [0, -1, "nan", "inf", None])
def test_a_ratio_that_is_none_is_refused(ratio, tmp_path):
    (stored := tmp_path / "ratios.json").write_bytes(gate.ROWS.dump_json([ROW]).replace(b"2.0", f'"{ratio}"'.encode()))
    with pytest.raises(ValidationError):
        gate.read(stored)


def test_the_stored_ratios_are_of_ten_cases_that_the_benchmarks_have():
    assert len(gate.CASES) == 10
    assert gate.CASES.keys() <= {benchmark.name for benchmark in BENCHMARKS}
    assert gate.stored_ratios(gate.read()).keys() == gate.CASES.keys()


def test_a_row_replaces_that_of_its_version_and_is_the_newest():
    other = ROW.model_copy(update={"version": "v2"})
    again = ROW.model_copy(update={"cpus": 4})
    assert gate.added([ROW, other], again) == [other, again]


def test_measured_ratios_are_medians_of_three(capsys):
    row = gate.measured(Measured(1.0, 9.0, 3.0))
    assert row.ratios == dict.fromkeys(gate.CASES, 2.0) | {"late": 3.0}
    assert row.version
    assert len(row.commit) == 8


def test_page_and_chart_are_those_of_the_stored_rows():
    rows = gate.read()
    text = history.PAGE.read_text("utf-8")
    assert history.page(text, rows) == text, "run `.venv/bin/python -m benchmarks.history`"
    assert history.chart(rows) == history.CHART.read_text("utf-8"), "run `.venv/bin/python -m benchmarks.history`"
    for row in rows[-history.NEWEST :]:
        assert f"| {row.version} " in text
    assert all(f"| `{case}` | {ratio:.2f} |" in history.table([rows[-1]]) for case, ratio in rows[-1].ratios.items())


def test_a_version_that_did_not_measure_a_case_leaves_a_gap():
    ratios = {case: ratio for case, ratio in ROW.ratios.items() if case != "late"}
    older = ROW.model_copy(update={"version": "v0", "ratios": ratios})
    assert "| `late` |  | 2.00 |" in history.table([older, ROW])
    assert history.chart([older, ROW]).count('class="bar"') == 19
    assert history.chart([ROW] * 20).count('class="bar"') == 10 * history.NEWEST
    with pytest.raises(ValueError, match="no generated part"):
        history.page("# Performance history\n", [ROW])
