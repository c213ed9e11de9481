"""Deliveries by chance: refusals, outages, kills and a second process. Each change arrives, in order for each lane."""

import shutil
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from feed_assets.core.delivery_targets import RefreshView, Subscription, Webhook
from feed_assets.core.errors import DeliveryFailed, DeliveryRefused, DeliveryTargetDown
from feed_assets.core.feeds import Feed, Partition
from feed_assets.deliveries import outbox, positions, sender
from feed_assets.ledger import log
from feed_assets.ledger.database import open_ledger

SUMS = Feed.parse("t/sums/v1.0")
HOOK, VIEW = Webhook("env:URL", "env:SECRET"), RefreshView("reports.by_day", "main")
LANES = ("a", "b", "c")


class Killed(BaseException):
    """The end of a process, which no handler of errors sees."""


# A webhook's turn lasts 65 s or more. A process that stops for longer may be late: a change then arrives once more.
class World:
    """A target, and processes that deliver to it and die by chance."""

    def __init__(self, ledger, target, chance):
        self.ledger, self.chance, self.now = ledger, chance, datetime(2026, 1, 1, tzinfo=UTC)
        self.subscription = Subscription("cache", SUMS, ("published",), target)
        self.accepted, self.published, self.went_back = [], defaultdict(list), []
        self.calm = False
        self.beside = False

    def publish(self):
        lane = self.chance.choice(LANES)
        change = log.Change(Partition(SUMS, lane), log.UPDATE, "20260101.000000", self.now, after=log.PUBLISHED)
        with self.ledger.change() as connection:
            self.published[lane].append(log.append(connection, [change]))

    def run(self):
        """Fill the outbox and deliver, as one process that may be killed."""
        try:
            sender.fill(self.ledger, self.subscription, self.describe, self.now, lambda: False)
            sender.deliver(self.ledger, self.subscription, lambda: self.now, lambda: False)
        except Killed:
            self.now += timedelta(seconds=self.chance.choice([1, 60, 2000]))

    def describe(self, change):
        self.may_die()
        self.may_stop([0])
        return {"lane": change.partition.key, "n": change.sequence}

    def may_die(self):
        if not self.calm and self.chance.random() < 0.05:
            raise Killed

    def send(self, _target, group, _now):
        self.may_die()
        if not self.calm and self.chance.random() < 0.4:
            raise self.chance.choice([DeliveryRefused, DeliveryTargetDown, DeliveryFailed])("no")
        one_lane = self.subscription.target.one_lane
        events = self.served(group[-1].sequence) if one_lane else [each.event for each in group]
        numbers = [each["n"] for each in events]
        began = self.now
        self.may_stop([1, 50, 2000])
        before = [number for lane, number in self.accepted if one_lane or group[0].lane == lane]
        if numbers[-1] < max(before, default=0) and self.now - began < timedelta(seconds=65):
            self.went_back.append(numbers)
        self.accepted += [(each["lane"], each["n"]) for each in events]
        self.may_die()

    def served(self, upto):
        """Return the events that one refresh of a view serves."""
        with self.ledger.read() as connection:
            waiting = outbox.waiting(connection, "cache")
        return [each.event for each in waiting if each.sequence <= upto]

    def may_stop(self, seconds):
        """Stop this process for a while. Another one delivers meanwhile, if it gets the turn."""
        if not self.calm and not self.beside and self.chance.random() < 0.1:
            self.beside = True
            self.now += timedelta(seconds=self.chance.choice(seconds))
            self.run()
            self.beside = False

    def act(self):
        step = self.chance.random()
        if step < 0.5:
            self.publish()
        elif step < 0.9:
            self.run()
        else:
            self.now += timedelta(minutes=self.chance.choice([1, 10]))
        if self.chance.random() < 0.05:
            with self.ledger.write() as connection:
                outbox.retry(connection, outbox.dead(connection), self.now)

    def finish(self):
        """Let everything be delivered."""
        self.calm = True
        self.now += timedelta(hours=1)
        with self.ledger.write() as connection:
            outbox.retry(connection, outbox.dead(connection), self.now)
        for _ in range(3):
            self.now += timedelta(hours=1)
            self.run()

    def first_arrivals(self):
        arrived = defaultdict(list)
        for lane, number in dict.fromkeys(self.accepted):
            arrived[lane].append(number)
        return dict(arrived)


def stop_before_each_turn(world, monkeypatch):
    """Let a process stop between the read of the outbox and its turn."""
    heads = sender._heads

    def stopping(*arguments):
        for head in heads(*arguments):
            world.may_stop([0, 1, 2000])
            yield head

    monkeypatch.setattr(sender, "_heads", stopping)


def played(ledger, target, seed, monkeypatch):
    world = World(ledger, target, Random(seed))  # noqa: S311
    monkeypatch.setattr(sender, "_send", world.send)
    stop_before_each_turn(world, monkeypatch)
    world.calm = True
    world.run()
    world.calm = False
    for _ in range(120):
        world.act()
    world.finish()
    return world


@pytest.mark.parametrize("target", [HOOK, VIEW], ids=["webhook", "view"])
@pytest.mark.parametrize("seed", range(8))
def test_each_change_is_delivered_in_order_for_each_partition_through_failures_and_kills(
    ledger, target, seed, monkeypatch
):
    world = played(ledger, target, seed, monkeypatch)
    assert world.first_arrivals() == dict(world.published)
    assert world.went_back == []
    with ledger.read() as connection:
        assert outbox.problem(connection, "cache") is None
        assert [(each.waiting, each.dead) for each in outbox.backlogs(connection)] == [(0, 0)]


def lost_by_a_kill(monkeypatch):
    """Remove a change before the target has accepted it."""
    take = sender._Turn.take

    def removing(self, head, now):
        group = take(self, head, now)
        with self._ledger.write() as connection:
            outbox.remove(connection, group or [])
        return group

    monkeypatch.setattr(sender._Turn, "take", removing)


def passed_over(monkeypatch):
    """Go on behind a change that failed."""

    def every(connection, name, now, **_):
        return [each for each in outbox.waiting(connection, name) if each.due <= now and not each.is_dead]

    monkeypatch.setattr(outbox, "heads", every)
    not_read_again(monkeypatch)


def not_read_again(monkeypatch):
    """Deliver what was read before the turn was taken."""
    monkeypatch.setattr(outbox, "first", lambda _, name, lane: Same())


class Same:
    """A delivery that is equal to each other one."""

    def __eq__(self, other):
        return True

    __hash__ = None


def without_a_turn(monkeypatch):
    """Let two processes deliver at the same time."""
    monkeypatch.setattr(outbox, "take_turn", lambda *_: True)


def added_again(monkeypatch):
    """Move the position from wherever it is, so that a slow process adds changes again."""
    advance = positions.advance

    def always(*arguments):
        return advance(*arguments) or True

    monkeypatch.setattr(positions, "advance", always)


@pytest.mark.parametrize("wrong", [lost_by_a_kill, passed_over, without_a_turn, added_again, not_read_again])
def test_the_oracle_catches_a_wrong_way_to_deliver(empty_ledger, tmp_path, wrong, monkeypatch):
    wrong(monkeypatch)
    for seed in range(40):
        file = shutil.copyfile(empty_ledger, tmp_path / f"{seed}.db")
        ledger = open_ledger(f"sqlite:///{file}")
        world = played(ledger, HOOK, seed, monkeypatch)
        ledger.engine.dispose()
        if world.went_back or world.first_arrivals() != dict(world.published):
            return
    pytest.fail("no seed has shown it")
