"""The simulation of scale finds no wrong run, and its oracle finds those of wrong variants of the product."""

import pytest

from benchmarks import scale, scale_arrivals
from benchmarks.scale_graph import ScaleGraph
from feed_assets.core import readiness
from feed_assets.settings import settings


def simulated(monkeypatch: pytest.MonkeyPatch, seed: int) -> scale.Figures:
    """Simulate an hour in which many files are corrected."""
    monkeypatch.setattr(scale_arrivals, "CORRECTED", 0.5)
    monkeypatch.setattr(scale_arrivals, "SENT_AGAIN", 0.3)
    monkeypatch.setattr(scale_arrivals, "LATEST", 40)
    return scale.simulate(ScaleGraph(8), settings().ledger, days=1, hours=1, seed=seed)


def test_simulated_hours_have_no_wrong_run_and_miss_none(home, monkeypatch):
    figures = simulated(monkeypatch, seed=1)
    assert (figures.wrong, figures.missed) == (0, 0)
    assert figures.launches > figures.reruns > 0
    assert figures.backfilled > 0
    assert figures.rows_pruned > 0


def test_the_oracle_of_the_simulation_finds_runs_without_inputs(home, monkeypatch):
    monkeypatch.setattr(readiness, "GATES", tuple(gate for gate in readiness.GATES if gate.__name__ != "_inputs"))
    assert simulated(monkeypatch, seed=1).wrong > 0


def test_the_oracle_of_the_simulation_finds_missing_reruns(home, monkeypatch):
    monkeypatch.setattr(scale.Simulation, "_late_data", lambda _: None)
    assert simulated(monkeypatch, seed=1).missed > 0
