"""Late updates at random moments under the real daemon, with and without kills: none lost, none built twice."""

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

import pytest

from feed_assets.settings import settings
from feed_assets.spark.session import conf
from feed_assets_tests.soak import oracle
from feed_assets_tests.soak.daemon_steps import PROJECT, VICTIMS, drop, judge_until_idle
from feed_assets_tests.soak.operations import Operations, running
from feed_assets_tests.soak.project import EDGE, KEY, KEYS, RIGHT_ONE, VARIANT
from feed_assets_tests.support.progress import print_progress
from feed_assets_tests.support.servers import connect_server

PAUSE = 2
"""Mean seconds between two updates."""


@pytest.fixture
def under_fire(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that soaks the project with so many updates and kills, and returns the oracle's objections."""

    def soak(variant: str, updates: int, kills: int, keys: int = len(KEYS), rounds: int = 1) -> list[str]:
        seed = int(os.environ.get("SOAK_SEED") or SystemRandom().randrange(10**6))
        print_progress(f"SOAK_SEED={seed} variant={variant} updates={updates} kills={kills}")
        monkeypatch.setenv(VARIANT, variant)
        monkeypatch.setenv("PYTHONWARNINGS", "ignore")
        settings.cache_clear()
        with connect_server(tmp_path, conf(settings()), os.environ) as url:
            monkeypatch.setenv("FEED_ASSETS_SPARK_REMOTE", url)
            settings.cache_clear()
            with running(home, PROJECT) as operations:
                return drop_and_kill(operations, Random(seed), Plan(updates, kills, KEYS[:keys], rounds))  # noqa: S311

    return soak


@dataclass(frozen=True)
class Plan:
    """Late updates and kills of each round, the partitions, and the highest number of rounds."""

    updates: int
    kills: int
    keys: tuple[str, ...]
    rounds: int


def drop_and_kill(operations: Operations, random: Random, plan: Plan) -> list[str]:
    """Build first, then run rounds of late updates.

    Return the oracle's objections after the first round that has any.
    """
    expected = {key: drop(key, number) for number, key in enumerate(plan.keys)}
    if plan.kills:  # The worker of a first build: its request must be repeated under another key.
        operations.kill("worker", random)
    if found := judge_until_idle(partial(oracle.judge, expected)):
        return found
    for first in range(100, 100 + plan.rounds * plan.updates, plan.updates):
        if found := one_round(operations, random, plan, expected, first):
            return found
    return []


def one_round(operations: Operations, random: Random, plan: Plan, expected: dict[str, int], first: int) -> list[str]:
    """Drop late updates at random moments, with kills between them. Return the oracle's objections at the end."""
    fatal = {*random.sample(range(plan.updates), max(0, plan.kills - 1))}
    for number in range(plan.updates):
        key = random.choice(plan.keys)
        expected[key] = drop(key, first + number)
        if number in fatal:
            victim = random.choice(VICTIMS)
            print_progress(f"after update {number}: kill {victim}")
            operations.kill(victim, random)
        time.sleep(random.expovariate(1 / PAUSE))
        operations.start()
    return judge_until_idle(partial(oracle.judge, expected))


def test_a_few_late_updates_survive_a_killed_worker(under_fire):
    assert under_fire(RIGHT_ONE, updates=5, kills=1, keys=1) == []


@pytest.mark.soak
def test_two_hundred_late_updates_are_neither_lost_nor_doubled(under_fire):
    assert under_fire(RIGHT_ONE, updates=200, kills=0) == []


@pytest.mark.soak
def test_two_hundred_late_updates_survive_25_kills(under_fire):
    assert under_fire(RIGHT_ONE, updates=200, kills=25) == []


@pytest.mark.soak
def test_the_soak_catches_an_edge_triggered_condition(under_fire):
    found = under_fire(EDGE, updates=8, kills=0, rounds=25)  # A lost update shows only if no other one follows it.
    assert [each for each in found if each.startswith(("lost", "stale"))]


@pytest.mark.soak
def test_the_soak_catches_a_run_key_without_attempt(under_fire):
    found = under_fire(KEY, updates=5, kills=1, keys=1)
    assert [each for each in found if each.startswith(("lost", "stale"))]
