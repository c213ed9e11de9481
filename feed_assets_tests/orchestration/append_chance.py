"""Random histories of a dataset of batches: in the end each row of the shop is in it once.

If a batch that was built by hand is invalidated, it is loaded by hand, as the documentation says. If an invalid range
held batches that were pruned, their rows are loaded with the next event.
"""

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets.core.attempts import LONGEST_PAUSE
from feed_assets.core.errors import AlreadyRunning, NotRevalidated
from feed_assets.core.events import Operation
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import event_store, inbox, updates
from feed_assets.runs import reconcile
from feed_assets.runs.sync import sync_one
from feed_assets.settings import settings
from feed_assets_tests.orchestration import append_world as theirs
from feed_assets_tests.orchestration.acts import Acts, run_and_die, tick_and_die
from feed_assets_tests.orchestration.append_world import CONSUMERS, LINES, OUTPUT, Making, every_update, held, world
from feed_assets_tests.orchestration.increment_chance import ledger
from feed_assets_tests.orchestration.increment_world import TABLES
from feed_assets_tests.support.sum_projects import later


class Chance(Acts):
    """Acts on a dataset of batches."""

    deaths = ((run_and_die, 12), (tick_and_die, 120), (theirs.compact_and_die, 25))

    def __init__(self, folder, seed, forker=None):
        super().__init__(folder, seed, forker, world, Making)
        self.by_hands, self.owes_load = set(), False

    def write(self):
        """Write new rows, which nobody ever changes."""
        table, version = self.random.choice(TABLES), self.shop.next()
        self.shop.rows[table] |= {f"{version}{each}": version for each in "ab"[: self.random.randint(1, 2)]}
        self.shop.tell(table, version)

    def late(self):
        """Write a row with a version that was already read past."""
        table, version = self.random.choice(TABLES), self.random.randrange(self.shop.last + 1)
        if version % 3 and version not in self.shop.told[table]:
            self.shop.rows[table][f"{version}late"] = version
            self.shop.tell(table, version)

    def overwrite(self):
        """Replace all rows of a table."""
        table, version = self.random.choice(TABLES), self.shop.next()
        self.shop.rows[table] = {f"{version}all": version}
        self.shop.tell(table, version, Operation.OVERWRITE)

    def by_hand(self):
        """Read a slice again, or before its turn."""
        table = self.random.choice(TABLES)
        if ends := sorted({*self.shop.told[table]}):
            start, end = sorted((self.random.choice([0, *ends]), self.random.choice(ends)))
            piece = {"table": f"shop/{table}", "upto": str(end)} | ({"after": str(start)} if start else {})
            self.noting_by_hand({"ops": {"sales__lines": {"config": {"slices": [piece]}}}})

    def load(self):
        """Load everything by hand."""
        self.noting_by_hand({})

    def noting_by_hand(self, run_config):
        before = {*every_update(updates.PUBLISHED, updates.INVALIDATED)}
        self.run(run_config)
        self.by_hands |= {*every_update(updates.PUBLISHED, updates.INVALIDATED)} - before

    def run(self, run_config, tags=None):
        job = self.world.definitions.resolve_implicit_global_asset_job_def()
        chosen = [dg.AssetKey(["sales", "lines"])]
        job.execute_in_process(
            instance=self.world.instance, run_config=run_config, tags=tags, raise_on_error=False, asset_selection=chosen
        )

    def take_back(self, only=None):
        """Invalidate a random update of a batch, as `feed-assets feed invalidate` does."""
        valid = every_update()
        if found := only or (self.random.choice([valid[-1], *valid]) if valid else None):
            batch, update_id = found
            self.owes_load |= found in self.by_hands
            self.world.invalidate(str(LINES), batch, update_id)
            sync_one(open_board(settings()), ledger(), OUTPUT.batch(batch), update_id, datetime.now(UTC))

    def give_back(self):
        if invalid := every_update(updates.INVALIDATED):
            batch, update_id = self.random.choice(invalid)
            with suppress(NotRevalidated, AlreadyRunning):  # Its rows may be read again, or were already.
                self.world.revalidate(str(LINES), batch, update_id)

    def compact(self):
        """Compact the batches: the rows stay, and no event is published."""
        reconcile.reconcile(theirs.services(), output=OUTPUT)  # Publishes the events that a killed run owes.
        before, told = held(), self.told()
        theirs.put_together()
        assert held() == before, self.done
        assert self.told() == told, self.done

    def prune(self):
        before = held()
        theirs.prune_all()
        assert held() == before, self.done

    def told(self):
        """Return the number of our events about the batches."""
        with ledger().read() as connection:
            return len(event_store.newest(connection, 1000, LINES))


def settle(chance):
    """Run everything until nothing is left to do and no reader gets a wrong row."""
    for _ in range(30):
        later(chance.world, LONGEST_PAUSE + timedelta(hours=2))
        chance.world.run_until_idle()
        if chance.owes_load:
            chance.load()
            chance.owes_load = False
        elif bad := spoiled():
            for each in bad:
                chance.take_back(each)
        else:
            return
    pytest.fail(f"it never comes to rest: {chance.done}")


def spoiled():
    """Return the valid updates with a wrong row, even those that no reader gets."""
    found = []
    for batch, update_id in every_update():
        with ledger().read() as connection:
            made = updates.recorded(connection, OUTPUT.batch(batch), update_id)
        if any(row["by"] == "bad" for row in theirs.rows_in([made])):
            found.append((batch, update_id))
    return found


def judge(chance):
    """Assert that readers and consumers get each row of the shop once, and that nothing is left to consume."""
    settle(chance)
    chance.write()
    settle(chance)
    about = chance.done, chance.making.told
    keys = sorted(chance.shop.all())
    assert [row["key"] for row in held()] == keys, about
    for name in CONSUMERS:
        assert [row["key"] for row in theirs.consumed(name)] == keys, (name, *about)
    with ledger().read() as connection:
        assert not inbox.waiting(connection, [OUTPUT]), about
    assert chance.world.run_until_idle() == [], about


ACTS = [
    *("write", "write", "write", "late", "overwrite"),
    *("tick", "tick", "tick", "tick", "spoil", "during", "again", "by_hand", "load", "kill"),
    *("take_back", "give_back", "compact", "compact", "prune"),
]


def play(folder, seed, acts=ACTS, steps=16, **how):
    chance = Chance(folder, seed, **how)
    for _ in range(steps):
        chance.act(*acts)
    judge(chance)
    return chance
