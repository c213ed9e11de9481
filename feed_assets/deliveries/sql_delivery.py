"""Delivery to a warehouse: a materialized view is refreshed, or a statement is run."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.base import PGDialect

from feed_assets.core.delivery_targets import RefreshView, Statement
from feed_assets.core.errors import (
    DeliveryFailed,
    DeliveryRefused,
    DeliveryTargetDown,
    InvalidSetting,
    LoadFailed,
    TableBusy,
    WarehouseUnavailable,
)
from feed_assets.core.sql_text import literal, quoted
from feed_assets.core.time_limits import ended_after
from feed_assets.settings import settings
from feed_assets.warehouse.engines import Connection
from feed_assets.warehouse.target import Target

GRACE_SECONDS = 10.0
"""Seconds after the server's time limit until this process breaks a connection without an answer."""

_CAN_BE_CONCURRENT = (
    "SELECT c.relispopulated AND EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique "
    "AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL) FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'm' AND n.nspname = {} AND c.relname = {}"
)
"""A query that tells if PostgreSQL can refresh a view concurrently. No row means that there is no such view."""


def refresh(target: RefreshView) -> None:
    """Refresh a materialized view, concurrently if PostgreSQL can. Raise DeliveryFailed."""
    with _connected(target.warehouse, target.seconds) as (connection, is_redshift):
        schema, _, view = target.view.partition(".")
        concurrently = "" if is_redshift else _concurrently(connection, schema, view)
        connection.execute(f"REFRESH MATERIALIZED VIEW {concurrently}{quoted(schema)}.{quoted(view)}")


def _concurrently(connection: Connection, schema: str, view: str) -> str:
    rows = connection.execute(_CAN_BE_CONCURRENT.format(literal(schema), literal(view)))
    if not rows:
        raise DeliveryRefused(f"there is no materialized view {schema}.{view}: make it, or correct the declaration.")
    return "CONCURRENTLY " if rows[0][0] else ""


def run(target: Statement, event: Mapping[str, Any]) -> None:
    """Run a statement with the parameters of an event. Raise DeliveryFailed."""
    statement, names = bound(target.sql)
    values = parameters(event)
    with _connected(target.warehouse, target.seconds) as (connection, _):
        connection.execute(statement, [values.get(each) for each in names])


def bound(sql: str) -> tuple[str, list[str]]:
    """Return a statement in the drivers' form, with `%s` for each parameter, and the parameters' names in order.

    `::` is a cast. As in SQLAlchemy, `\\:` is a colon that begins no parameter.
    """
    compiled = sa.text(sql.replace("::", r"\:\:")).compile(dialect=PGDialect(paramstyle="format"))
    return str(compiled), list(compiled.positiontup or ())


def parameters(event: Mapping[str, Any]) -> dict[str, object]:
    """Return the parameters of statements for an event."""
    data: Mapping[str, Any] = event["data"]
    window: Mapping[str, str] = data["window"] or {}
    times = {name: datetime.fromisoformat(window[name]) if window else None for name in ("start", "end")}
    own = {name: data[name] for name in ("dataset", "transition", "partition")}
    return {**data["dimensions"], **own, **times, "grain": data.get("grain")}


@contextmanager
def _connected(name: str, seconds: float) -> Generator[tuple[Connection, bool]]:
    """Yield a connection whose statements end after `seconds`, and whether it is Redshift.

    The server ends a statement. If the server is dead, this process breaks the connection `GRACE_SECONDS` later.
    """
    warehouse = settings().warehouse(name)
    scheme = warehouse.url.get_secret_value().partition(":")[0]
    if other := {"duckdb": "DuckDB", "snowflake": "Snowflake"}.get(scheme):
        raise InvalidSetting(f"the warehouse {name} is {other}: expected PostgreSQL or Redshift for a subscription.")
    try:
        with Target(name, warehouse).engine.open() as connection, ended_after(seconds + GRACE_SECONDS, connection.shut):
            connection.execute(f"SET statement_timeout = {int(seconds * 1000)}")
            yield connection, scheme == "redshift"
    except TableBusy as error:  # A lock, or the time limit: other statements may still work.
        if "statement timeout" in str(error):
            raise DeliveryFailed(
                f"{name}: the statement took longer than {seconds:g} s: make it quicker, or raise `seconds`."
            ) from error
        raise DeliveryFailed(f"{name}: {error}") from error
    except WarehouseUnavailable as error:
        raise DeliveryTargetDown(f"{name}: {error}") from error
    except LoadFailed as error:
        raise DeliveryRefused(f"{name}: {error}") from error
