"""Lineage of updates, read level by level, with one statement of each kind for a level."""

from collections.abc import Iterable

import sqlalchemy as sa

from feed_assets.core.consistency import Lineage
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import key_tables, updates
from feed_assets.ledger.tables import consumed, update

NOTHING = Lineage()
"""The empty lineage, before the ledger is read."""

_Key = tuple[Partition, str]


def extend(connection: sa.Connection, lineage: Lineage, pins: Iterable[Pin]) -> Lineage:
    """Return `lineage` extended by the ancestors of the pins. Follow only inputs with the same partition key.

    For each ancestor, also follow the newest update of its partition, because both may have the same rows.
    """
    built, newest = dict(lineage.built_from), dict(lineage.newest)
    level = set(pins)
    while level:
        unknown = {pin.partition for pin in level} - newest.keys()
        newest |= {partition: row.pin for partition, row in updates.newest(connection, unknown).items()}
        level |= {newest[pin.partition] for pin in level if pin.partition in newest}
        new = {(pin.partition, pin.update_id) for pin in level} - built.keys()
        pins_by_update = made_of(connection, new)
        built |= pins_by_update
        level = {pin for pins in pins_by_update.values() for pin in pins}
    return Lineage(built, newest)


def made_of(connection: sa.Connection, wanted_updates: Iterable[_Key]) -> dict[_Key, tuple[Pin, ...]]:
    """Return for each update the pins of those inputs that have the same partition key.

    The value is () for an update without such inputs.
    """
    pins_by_update: dict[_Key, list[Pin]] = {key: [] for key in wanted_updates}
    if not pins_by_update:
        return {}
    key_table = key_tables.updates(connection, pins_by_update)
    condition = (
        key_tables.same_keys(consumed, key_table)
        & consumed.c.is_input
        & (consumed.c.input_partition == consumed.c.partition)
    )
    for row in connection.execute(sa.select(consumed).join(key_table, condition)):
        pins_by_update[Partition(Feed.parse(row.feed), row.partition), row.id].append(updates.pin_of(row))
    return {key: tuple(sorted(pins)) for key, pins in pins_by_update.items()}


def valid(connection: sa.Connection, wanted_updates: Iterable[_Key]) -> dict[_Key, Pin]:
    """Return pins of those wanted updates that are still published, by update."""
    keys = {*wanted_updates}
    if not keys:
        return {}
    key_table = key_tables.updates(connection, keys)
    query = sa.select(*updates.COLUMNS).join(key_table, key_tables.same_keys(update, key_table))
    rows = map(updates.row_of, connection.execute(query.where(update.c.state == updates.PUBLISHED)).mappings())
    return {(row.partition, row.id): row.pin for row in rows}
