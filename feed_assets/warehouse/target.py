"""A warehouse into which tables are loaded."""

from dataclasses import dataclass
from functools import cached_property

from feed_assets.core.warehouses import Warehouse
from feed_assets.warehouse.engines import Engine, engine_of


@dataclass(frozen=True)
class Target:
    """A warehouse of the settings, and its name there."""

    name: str
    warehouse: Warehouse

    @cached_property
    def engine(self) -> Engine:
        """Return the engine for its kind of warehouse."""
        return engine_of(self.warehouse.url.get_secret_value(), self.warehouse.iam_role, self.name)
