"""Random histories of a dataset that adds increments: in the end its table and its lineage are right.

The table is a fold of the shop's rows. The updates that the newest one was added to have read each source table
from its beginning to its last marker, without a gap.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from feed_assets.core.attempts import LONGEST_PAUSE
from feed_assets.core.errors import AlreadyRunning, NotRevalidated
from feed_assets.core.events import Operation
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import inbox, increment_base, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.sync import sync_one
from feed_assets.settings import settings
from feed_assets.testing import rows_of
from feed_assets_tests.orchestration.acts import Acts, run_and_die, tick_and_die
from feed_assets_tests.orchestration.increment_world import NAME, OUTPUT, TABLES, Making, every_update, world
from feed_assets_tests.support.sum_projects import later

KEYS = "abcdef"


class Chance(Acts):
    """Acts on a dataset that adds increments."""

    deaths = ((run_and_die, 12), (tick_and_die, 120))

    def __init__(self, folder, seed, forker=None, **how):
        super().__init__(folder, seed, forker, world, partial(Making, **how))

    def write(self):
        """Give some keys a new row, or delete it."""
        table, version = self.random.choice(TABLES), self.shop.next()
        for key in self.random.sample(KEYS, self.random.randint(1, 2)):
            is_there = key in self.shop.rows[table]
            goes = is_there and self.random.random() < 0.3
            (self.shop.gone if goes else self.shop.rows)[table][key] = version
            if goes:
                self.shop.rows[table].pop(key)
        self.shop.tell(table, version)

    def late(self):
        """Write a row with a version that was already read past, for a key without a newer row."""
        table, key = self.random.choice(TABLES), self.random.choice(KEYS)
        version = self.random.randrange(self.shop.last + 1)
        known = max(some[table].get(key, 0) for some in (self.shop.rows, self.shop.gone))
        if known < version and version % 3 and version not in self.shop.told[table]:
            self.shop.rows[table][key] = version
            self.shop.tell(table, version)

    def overwrite(self):
        """Replace all rows, without events for the deleted ones."""
        table, version = self.random.choice(TABLES), self.shop.next()
        self.shop.rows[table] = dict.fromkeys(self.random.sample(KEYS, 3), version)
        self.shop.overwrites.append(version)
        self.shop.tell(table, version, Operation.OVERWRITE)

    def by_hand(self):
        """Read a slice again, or before its turn."""
        table = self.random.choice(TABLES)
        if ends := sorted({*self.shop.told[table]}):
            start, end = sorted((self.random.choice([0, *ends]), self.random.choice(ends)))
            self.run(
                config(slices=[{"table": f"shop/{table}", "upto": str(end)} | ({"after": str(start)} if start else {})])
            )

    def reload(self):
        self.run(config())

    def run(self, run_config, tags=None):
        job = self.world.definitions.resolve_implicit_global_asset_job_def()
        job.execute_in_process(instance=self.world.instance, run_config=run_config, tags=tags, raise_on_error=False)

    def take_back(self, only=None):
        """Invalidate the newest update or an earlier one, as `feed-assets feed invalidate` does."""
        valid = sorted(every_update(updates.PUBLISHED))
        update_id = only or (self.random.choice([valid[-1], *valid]) if valid else None)
        if update_id:
            self.world.invalidate(NAME, "", update_id)
            sync_one(open_board(settings()), ledger(), OUTPUT, update_id, datetime.now(UTC))

    def give_back(self):
        if invalid := sorted(every_update(updates.INVALIDATED)):
            with suppress(NotRevalidated, AlreadyRunning):  # A later update may have been added to another one.
                self.world.revalidate(NAME, "", self.random.choice(invalid))


def ledger():
    return open_ledger(settings().ledger)


def config(**config):
    return {"ops": {"sales__orders": {"config": config}}} if config else {}


def settle(chance):
    """Run everything until nothing is left to do and no valid update has added a wrong row."""
    for _ in range(20):
        later(chance.world, LONGEST_PAUSE + timedelta(hours=2))
        chance.world.run_until_idle()
        if not (bad := spoiled()):
            return
        chance.take_back(min(bad))
    pytest.fail(f"it never comes to rest: {chance.done}")


def spoiled():
    """Return the valid updates that first contained a wrong row."""
    first, board = {}, open_board(settings())
    for update_id, made in sorted(every_update().items()):
        for row in rows_of(board, made):
            first.setdefault(row["by"], update_id)
    valid = every_update(updates.PUBLISHED)
    return {update_id for by, update_id in first.items() if by.startswith("bad") and update_id in valid}


def judge(chance):
    """Assert that the table is a fold of the shop's rows, read without a gap, and that each event was consumed once."""
    settle(chance)
    valid = every_update(updates.PUBLISHED)
    found = rows_of(open_board(settings()), valid[max(valid)]) if valid else []
    about = chance.done, chance.making.told
    assert {row["key"]: row["version"] for row in found} == chance.shop.all(), about
    assert [row for row in found if row["by"].startswith("bad")] == [], about
    with ledger().read() as connection:
        assert not inbox.waiting(connection, [OUTPUT]), about
        known = {row["input_feed"]: int(row["marker"]) for row in inbox.markers(connection, OUTPUT.feed)}
        pieces = read_by(connection, max(valid)) if valid else []
    last = {f"shop/{table}": max(told) for table, told in chance.shop.told.items() if told}
    assert known == last, about
    assert {table: reach(pieces, table) for table in last} == last, about
    assert chance.world.run_until_idle() == [], about


def read_by(connection, update_id):
    """Return the slices of an update and of all updates that it was added to, as (table, after, up to)."""
    found = []
    while update_id:
        pins = updates.consumed_by(connection, OUTPUT, update_id)
        found += [(str(pin.partition.feed), int(pin.start or -1), int(pin.update_id)) for pin in pins]
        row = updates.find(connection, OUTPUT, update_id)
        assert row.state == updates.PUBLISHED, f"{update_id} is {row.state}"
        before = increment_base.added_to(connection, [(OUTPUT, update_id)]).get(OUTPUT)
        update_id = before and before.update_id
    return found


def reach(pieces, table):
    """Return the marker up to which a table was read without a gap."""
    end = -1
    for _, start, upto in sorted(piece for piece in pieces if piece[0] == table):
        if start <= end:
            end = max(end, upto)
    return end


ACTS = [
    *("write", "write", "write", "late", "overwrite"),
    *("tick", "tick", "tick", "spoil", "during", "again", "by_hand", "reload", "kill"),
    *("take_back", "give_back"),
]


def play(folder, seed, acts=ACTS, steps=16, **how):
    chance = Chance(folder, seed, **how)
    for _ in range(steps):
        chance.act(*acts)
    judge(chance)
    return chance
