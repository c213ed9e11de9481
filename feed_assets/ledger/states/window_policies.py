"""Window policies of datasets in the ledger, and the lock of each dataset's counts."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import lru_cache

import sqlalchemy as sa
from pydantic import TypeAdapter

from feed_assets.core.feeds import Feed
from feed_assets.core.sub_partitions import Tracked, dated
from feed_assets.core.windows import check_grains
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import dataset
from feed_assets.settings import settings

_ADAPTER = TypeAdapter(Tracked)


def default() -> Tracked:
    """Return the window policy of an undeclared dataset, from the settings."""
    configured = settings()
    return Tracked(check_grains(configured.state_grains, ["UTC"]), configured.state_ratio, is_default=True)


@lru_cache(maxsize=4096)
def _parsed(declared: str) -> Tracked:
    return _ADAPTER.validate_json(declared)


def _text(declared: Tracked) -> str:
    return _ADAPTER.dump_json(declared).decode()


def tracked(connection: sa.Connection, names: Iterable[Feed]) -> dict[Feed, Tracked]:
    """Return the policies of the datasets that the ledger knows."""
    key_table = key_tables.rows(connection, ("name",), [[str(name)] for name in names])
    query = sa.select(dataset.c.name, dataset.c.declared).join(key_table, key_tables.same_keys(dataset, key_table))
    return {Feed.parse(name): _parsed(declared) for name, declared in connection.execute(query)}


def lock(connection: sa.Connection, names: Iterable[Feed], now: datetime) -> dict[Feed, Tracked]:
    """Lock the counts of datasets until the transaction ends. Create unknown datasets. Return the policies.

    Locks are taken in order of names, and before the lock of the log, to avoid deadlocks.
    """
    policies: dict[Feed, Tracked] = {}
    for name in sorted(set(names)):
        query = sa.select(dataset.c.declared).where(dataset.c.name == str(name)).with_for_update()
        row = connection.execute(query).first()
        if row is None:
            # Store the current settings, because counts made with them would be wrong with other settings.
            insert_missing(connection, dataset, [{"name": str(name), "declared": _text(default()), "at": now}])
            row = connection.execute(query).one()
        policies[name] = _parsed(row.declared)
    return policies


def differing(connection: sa.Connection, declared: Mapping[Feed, Tracked]) -> set[Feed]:
    """Return the datasets whose declaration differs from the ledger's, apart from the dates that the ledger added."""
    stored = tracked(connection, declared)
    return {
        name for name, new in declared.items() if name not in stored or _dated_later(new, stored[name]) != stored[name]
    }


def _dated_later(new: Tracked, stored: Tracked | None) -> Tracked:
    """Return a declaration in which sub-partitions that joined or left have a placeholder in place of their date."""
    return new if stored is None else dated(new, stored, (), lambda _path, _life: date.max)


def put(connection: sa.Connection, name: Feed, declared: Tracked) -> None:
    """Store the declaration of a dataset's windows. The dataset must be locked."""
    connection.execute(sa.update(dataset).where(dataset.c.name == str(name)).values(declared=_text(declared)))


def put_reported(connection: sa.Connection, name: Feed) -> bool:
    """Record in the ledger that a dataset's producer reports counts. Return True if that was not recorded before.

    So nobody has to search all reports for one by the producer.
    """
    is_unreported = (dataset.c.name == str(name)) & dataset.c.reported.is_(None)
    return bool(connection.execute(sa.update(dataset).where(is_unreported).values(reported=True)).rowcount)


def put_schema(connection: sa.Connection, name: Feed, schema: str, version: str) -> None:
    """Store the schema that a dataset's newest report names."""
    is_newer = sa.or_(dataset.c.version.is_(None), dataset.c.version <= version)
    condition = (dataset.c.name == str(name)) & is_newer
    connection.execute(sa.update(dataset).where(condition).values(schema=schema, version=version))
