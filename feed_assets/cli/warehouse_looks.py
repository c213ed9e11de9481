"""Checks of `feed-assets doctor` for warehouses: whether each answers, and which tables it has."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feed_assets.settings import Settings


@dataclass(frozen=True)
class WarehouseLooks:
    """The checks for warehouses. Each check returns what it found as text, or raises an error. Nothing is created."""

    settings: "Settings"

    def looks(self) -> tuple[tuple[str, Callable[[], str]], ...]:
        """Return one check for each warehouse of the settings."""
        return tuple(
            (f"warehouse {name}", partial(self._look, name)) for name in self.settings.warehouses.get_secret_value()
        )

    def _look(self, name: str) -> str:
        from feed_assets.warehouse import load_state
        from feed_assets.warehouse.target import engine_at

        place = self.settings.warehouse(name)
        engine = engine_at(place, name)
        if why := engine.absence():
            return why
        with engine.open() as connection:
            tables = load_state.tables(connection) if load_state.exists(connection, engine) else []
        stopped = {each.topic for each in tables if each.problem}
        return f"answers, {len({each.topic for each in tables})} tables, {len(stopped)} of them stopped"
