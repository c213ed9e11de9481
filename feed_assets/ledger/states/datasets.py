"""The datasets of which windows are kept: how each is judged, and the lock of all its counts."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache

import sqlalchemy as sa
from pydantic import TypeAdapter

from feed_assets.core.feeds import Feed
from feed_assets.core.members import Tracked, batch_date, dated
from feed_assets.core.windows import check_grains, window_of
from feed_assets.ledger import wanted
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import dataset
from feed_assets.settings import settings

_ADAPTER = TypeAdapter(Tracked)


def default() -> Tracked:
    """How a dataset is judged that nobody has declared: by the settings."""
    found = settings()
    return Tracked(check_grains(found.state_grains, ["UTC"]), found.state_ratio)


@lru_cache(maxsize=4096)
def _parsed(declared: str) -> Tracked:
    return _ADAPTER.validate_json(declared)


def _tracked(declared: str | None) -> Tracked:
    return default() if declared is None else _parsed(declared)


def tracked(connection: sa.Connection, names: Iterable[Feed]) -> dict[Feed, Tracked]:
    """How some datasets are judged, those that the ledger has heard of."""
    asked = wanted.rows(connection, ("name",), [[str(name)] for name in names])
    query = sa.select(dataset.c.name, dataset.c.declared).join(asked, wanted.same(dataset, asked))
    return {Feed.parse(name): _tracked(declared) for name, declared in connection.execute(query)}


def lock(connection: sa.Connection, names: Iterable[Feed], now: datetime) -> dict[Feed, Tracked]:
    """How some datasets are judged, their counts locked until the transaction ends; what is new is made.

    Always in order of names, and before the log is locked: so no two transactions wait for each other.
    """
    found: dict[Feed, Tracked] = {}
    for name in sorted(set(names)):
        query = sa.select(dataset.c.declared).where(dataset.c.name == str(name)).with_for_update()
        row = connection.execute(query).first()
        if row is None:
            insert_missing(connection, dataset, [{"name": str(name), "at": now}])
            row = connection.execute(query).one()
        found[name] = _tracked(row.declared)
    return found


def dated_by(known: Tracked | None, new: Tracked, now: datetime) -> Tracked:
    """A declaration with the dates from which on, and until when, its sub-partitions are expected."""
    if known is None:
        return new
    today = batch_date(window_of(new.base, now, new.zone), new.zone)
    return dated(new, known, today)


def differing(connection: sa.Connection, declared: Mapping[Feed, Tracked], now: datetime) -> dict[Feed, Tracked]:
    """Those of some declarations that the ledger has not got as they are now, with their dates."""
    asked = wanted.rows(connection, ("name",), [[str(name)] for name in declared])
    query = sa.select(dataset.c.name, dataset.c.declared).join(asked, wanted.same(dataset, asked))
    known = {Feed.parse(name): text for name, text in connection.execute(query)}
    found: dict[Feed, Tracked] = {}
    for name, new in declared.items():
        text = known.get(name)
        merged = dated_by(_parsed(text) if text else None, new, now)
        if text is None or merged != _parsed(text):
            found[name] = merged
    return found


def put(connection: sa.Connection, name: Feed, declared: Tracked) -> None:
    """Keep a declaration of a dataset that is locked."""
    text = _ADAPTER.dump_json(declared).decode()
    connection.execute(sa.update(dataset).where(dataset.c.name == str(name)).values(declared=text))


def put_schema(connection: sa.Connection, name: Feed, schema: str, version: str) -> None:
    """Keep the schema that the newest report of a dataset names."""
    is_newer = sa.or_(dataset.c.version.is_(None), dataset.c.version <= version)
    mine = (dataset.c.name == str(name)) & is_newer
    connection.execute(sa.update(dataset).where(mine).values(schema=schema, version=version))
