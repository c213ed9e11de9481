"""A warehouse into which tables are loaded."""

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec

from pydantic import SecretStr

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
        return engine_at(self.warehouse, self.name)


_EXTRAS = {
    "redshift": ("redshift", "redshift_connector"),
    "snowflake": ("snowflake", "snowflake.connector"),
    "postgresql": ("postgres", "psycopg"),
}
"""The extra for a URL's scheme, and a package that it installs. DuckDB needs none."""


def engine_at(warehouse: Warehouse, name: str) -> Engine:
    """Return the engine for the warehouse `name` of the settings. Raise InvalidSetting."""
    key = warehouse.private_key
    return engine_of(warehouse.url.get_secret_value(), warehouse.iam_role, name, private_key=key)


def engine_of(url: str, iam_role: str = "", name: str = "", *, private_key: SecretStr | None = None) -> Engine:
    """Return the engine for a URL of the warehouse `name`. Raise InvalidSetting if its extra is not installed."""
    scheme = url.partition(":")[0].partition("+")[0]
    extra, package = _EXTRAS.get(scheme, (None, ""))
    if extra and not _is_installed(package):
        raise InvalidSetting(
            f"the warehouse {name or scheme} needs more packages: `pip install 'feed-assets[{extra}]'`."
        )
    if scheme == "duckdb":
        from feed_assets.warehouse.duck import DuckDB

        return DuckDB(url)
    if scheme == "redshift":
        from feed_assets.warehouse.redshift import Redshift

        return Redshift(url, iam_role)
    if scheme == "snowflake":
        from feed_assets.warehouse.snowflake import Snowflake

        return Snowflake(url, private_key)
    from feed_assets.warehouse.postgresql import PostgreSQL

    return PostgreSQL(url)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # The parent of a package in a namespace is not installed.
        return False
