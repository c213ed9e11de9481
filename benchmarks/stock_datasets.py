"""The graph of `benchmarks/dataset_worlds.py` in stock Dagster: assets with the condition `eager()`."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import sqlalchemy as sa

from benchmarks.dataset_worlds import CHANGED, CHANGES, EVERY_DAY, FOREIGN, KEYS


def definitions(count: int) -> dg.Definitions:
    """Return five external assets, datasets made from them, and as many datasets made from those."""
    raws = [dg.AssetSpec(["b", f"raw{each}"], partitions_def=EVERY_DAY) for each in range(FOREIGN)]
    firsts = [_asset(f"clean{each:04d}", raws[each % FOREIGN].key) for each in range(count // 2)]
    seconds = [_asset(f"made{each:04d}", first.key) for each, first in enumerate(firsts)]
    return dg.Definitions(assets=[*raws, *firsts, *seconds])


def _asset(name: str, above: dg.AssetKey) -> dg.AssetsDefinition:
    eager = dg.AutomationCondition.eager()

    @dg.asset(key=["b", name], deps=[above], partitions_def=EVERY_DAY, automation_condition=eager)
    def made() -> None:
        """Stand for an asset that never runs."""

    return made


@dataclass
class Stock:
    """An instance on which every day of each asset is materialized."""

    count: int
    definitions: dg.Definitions = field(init=False)
    instance: dg.DagsterInstance = field(init=False)
    cursor: Any = None

    def open(self, stack: ExitStack) -> "Stock":
        """Materialize the first day of each asset, copy it for the other days, and evaluate once."""
        folder = stack.enter_context(TemporaryDirectory())
        self.definitions = definitions(self.count)
        self.instance = stack.enter_context(dg.DagsterInstance.local_temp(folder))
        for key in self.definitions.resolve_asset_graph().get_all_asset_keys():
            self.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=KEYS[-1]))
        _copy(Path(folder))
        self.idle()
        return self

    def idle(self) -> None:
        """Evaluate when there are no changes; raise if anything is requested."""
        if asked := self._evaluate():
            raise RuntimeError(f"{self.count} stock assets: {asked} are requested, expected none.")

    def change(self) -> None:
        """Report 1,000 materializations of 500 assets, after an evaluation that clears earlier requests."""
        self.idle()
        for number in range(CHANGES // len(CHANGED)):
            for day in CHANGED:
                event = dg.AssetMaterialization(["b", f"clean{number:04d}"], partition=day)
                self.instance.report_runless_asset_event(event)

    def decide(self) -> None:
        """Evaluate the changes; `eager()` requests the newest day only."""
        if (asked := self._evaluate()) != CHANGES // len(CHANGED):
            raise RuntimeError(f"{self.count} stock assets: {asked} are requested, expected {CHANGES // len(CHANGED)}.")

    def _evaluate(self) -> int:
        found = dg.evaluate_automation_conditions(self.definitions, self.instance, cursor=self.cursor)
        self.cursor = found.cursor
        return found.total_requested


def _copy(folder: Path) -> None:
    """Copy the stored materialization of one day of each asset for the days before it."""
    engine = sa.create_engine(f"sqlite:///{folder / 'history' / 'runs' / 'index.db'}")
    with engine.begin() as connection:
        names = ["run_id", "dagster_event_type", "timestamp", "step_key", "asset_key", "event", "partition"]
        log = sa.table("event_logs", *map(sa.column, names))
        for day in KEYS[:-1]:
            renamed = sa.func.replace(log.c.event, KEYS[-1], day), sa.literal(day)
            copied = sa.select(*[*log.c][:-2], *renamed).where(log.c.partition == KEYS[-1])
            connection.execute(sa.insert(log).from_select(names, copied))
    engine.dispose()
