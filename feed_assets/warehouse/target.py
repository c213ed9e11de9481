"""A warehouse into which tables are loaded."""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.warehouses import Warehouse
from feed_assets.warehouse.engines import Engine


@dataclass(frozen=True)
class Target:
    """A warehouse in the settings, and its name in the settings."""

    name: str
    warehouse: Warehouse

    @cached_property
    def engine(self) -> Engine:
        """Return the engine for the kind of warehouse at the URL."""
        return engine_of(self.warehouse.url.get_secret_value(), self.warehouse.iam_role, self.name)


_EXTRAS = {
    "redshift": ("redshift", "redshift_connector"),
    "postgresql": ("postgres", "psycopg"),
}
"""The extra for a URL's scheme, and a package that it installs. DuckDB needs none."""


def engine_of(url: str, iam_role: str = "", name: str = "") -> Engine:
    """Return the engine for a URL of the warehouse `name`. Raise InvalidSetting if its extra is not installed."""
    scheme = url.partition(":")[0].partition("+")[0]
    extra, package = _EXTRAS.get(scheme, (None, ""))
    if extra and find_spec(package) is None:
        raise InvalidSetting(
            f"the warehouse {name or scheme} needs more packages: `pip install 'feed-assets[{extra}]'`."
        )
    if scheme == "duckdb":
        from feed_assets.warehouse.duck import DuckDB

        return DuckDB(url)
    if scheme == "redshift":
        from feed_assets.warehouse.redshift import Redshift

        return Redshift(url, iam_role)
    from feed_assets.warehouse.postgresql import PostgreSQL

    return PostgreSQL(url)
