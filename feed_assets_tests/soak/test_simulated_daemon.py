"""A process that takes ticks for simulated days holds as much at the end as it did at the beginning."""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from socket import create_server
from tempfile import NamedTemporaryFile
from threading import Event, Thread

import dagster as dg
import psutil
import pytest
import sqlalchemy as sa

from benchmarks.scale import Simulation
from benchmarks.scale_graph import ScaleGraph
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.old_rows import prune_log
from feed_assets.ledger.tables import change, due, update
from feed_assets.settings import settings
from feed_assets_tests.soak.process_use import Use, growing, slope, use_of
from feed_assets_tests.support.progress import print_progress

DAYS = 2
MEMORY = 200_000
"""Bytes that an hour may add. The simulation's own records of it, which are kept to the end, are a third of them."""


Rows = dict[str, int]


def simulated(
    url: str, folder: Path, hours: int, after: Callable[[], object] = lambda: None
) -> tuple[list[Use], list[Rows]]:
    """Simulate hours with daily retention. Return what the process uses and the ledger's rows, after each hour."""
    ledger, scale = open_ledger(url), ScaleGraph(8)
    scale.fill(ledger, DAYS * 24)
    samples, rows = list[Use](), list[Rows]()
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        simulation = Simulation(scale, ledger, instance, DAYS * 24, hours)

        def after_hour() -> None:
            after()
            prune_log(ledger, simulation.now + timedelta(seconds=1), days=1, report_days=None, apply=True)
            samples.append(use_of([psutil.Process()], [Path(tempfile.gettempdir())]))
            rows.append(_rows(ledger))

        simulation.run(after_hour)
    assert (simulation.model.wrong, simulation.model.missed()) == ([], [])
    print_progress(f"{hours} hours: {samples[0]} to {samples[-1]}, rows {rows[0]} to {rows[-1]}")
    return samples, rows


def _rows(ledger: Ledger) -> Rows:
    with ledger.read() as connection:
        return {
            table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in (change, due, update)
        }


def _growing_rows(rows: list[Rows]) -> list[str]:
    """Return what grows faster than the updates, of which each hour has new ones."""
    new = slope([each[update.name] for each in rows])
    return [
        f"{name} grows by {grown:.1f} rows an hour, with {new:.1f} new updates"
        for name in (change.name, due.name)
        if (grown := slope([each[name] for each in rows])) > new / 10
    ]


@pytest.fixture
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for temporary files that no other process uses."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_what_ticks_leave_behind_is_found(home, own_temporary, tmp_path):
    kept, over = list[object](), Event()
    with ExitStack() as leaks:
        leaks.callback(over.set)

        def leak() -> None:
            kept.append(bytearray(b"x") * (40 << 20))  # Of a smaller one, malloc may reuse what earlier tests freed.
            leaks.enter_context(Path("/dev/null").open("rb"))
            leaks.enter_context(create_server(("127.0.0.1", 0)))
            leaks.enter_context(NamedTemporaryFile())
            Thread(target=over.wait, daemon=True).start()

        samples, _ = simulated(settings().ledger, tmp_path, 4, leak)
    found = growing(samples, MEMORY)
    assert [each.split()[0] for each in found] == ["memory", "descriptors", "threads", "connections", "files"]


@pytest.mark.soak
def test_360_hours_of_a_daemon_leave_nothing_behind(home, own_temporary, tmp_path, postgresql):
    samples, rows = simulated(postgresql.database(), tmp_path, 360)
    assert growing(samples, MEMORY) + _growing_rows(rows[len(rows) // 3 :]) == []
