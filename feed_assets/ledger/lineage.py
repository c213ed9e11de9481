"""Lineage of updates, level by level: one statement of each kind for all that are requested."""

from collections.abc import Iterable

import sqlalchemy as sa

from feed_assets.core.consistency import Lineage
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import key_tables, updates
from feed_assets.ledger.tables import consumed, update

NOTHING = Lineage()
"""The lineage before the ledger was read."""

_Key = tuple[Partition, str]


def extend(connection: sa.Connection, known: Lineage, pins: Iterable[Pin]) -> Lineage:
    """Return `known` and all that some pins lead back to by their own partition keys, down to the sources.

    An update with rows of its own is followed, and so is the newest of its partition: its rows may be the same.
    """
    built, newest = dict(known.built_from), dict(known.newest)
    level = set(pins)
    while level:
        unknown = {pin.partition for pin in level} - newest.keys()
        newest |= {partition: row.pin for partition, row in updates.newest(connection, unknown).items()}
        level |= {newest[pin.partition] for pin in level if pin.partition in newest}
        new = {(pin.partition, pin.update_id) for pin in level} - built.keys()
        found = made_of(connection, new)
        built |= found
        level = {pin for pins in found.values() for pin in pins}
    return Lineage(built, newest)


def made_of(connection: sa.Connection, wanted_updates: Iterable[_Key]) -> dict[_Key, tuple[Pin, ...]]:
    """Return what each of some updates read of partitions with its own key; () if it was made of nothing."""
    found: dict[_Key, list[Pin]] = {key: [] for key in wanted_updates}
    if not found:
        return {}
    asked = key_tables.updates(connection, found)
    mine = key_tables.same(consumed, asked) & consumed.c.is_input & (consumed.c.input_partition == consumed.c.partition)
    for row in connection.execute(sa.select(consumed).join(asked, mine)):
        found[Partition(Feed.parse(row.feed), row.partition), row.id].append(updates.pin_of(row))
    return {key: tuple(sorted(pins)) for key, pins in found.items()}


def valid(connection: sa.Connection, wanted_updates: Iterable[_Key]) -> dict[_Key, Pin]:
    """Return those of some updates that are published, as pins."""
    keys = {*wanted_updates}
    if not keys:
        return {}
    asked = key_tables.updates(connection, keys)
    query = sa.select(*updates.COLUMNS).join(asked, key_tables.same(update, asked))
    rows = map(updates.row_of, connection.execute(query.where(update.c.state == updates.PUBLISHED)).mappings())
    return {(row.partition, row.id): row.pin for row in rows}
