"""Random reports, checks, backfills, waivers, closures, lost ticks and kills: each wait is what an oracle expects.

The oracle knows the reports and the dependencies, and nothing of the ledger.
"""

import json
import random
import signal
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from feed_assets import report_state
from feed_assets.cli import app
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import Slots
from feed_assets.core.message_words import first_line
from feed_assets.core.readiness import State
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, updates, waivers
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.fact_queries import problem_of
from feed_assets.ledger.tables import run as table
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.status_grid import nodes_shown, status_of
from feed_assets.settings import settings
from feed_assets_tests.orchestration import campaign_world
from feed_assets_tests.orchestration.campaign_oracle import HOURS, Hour, Oracle, key
from feed_assets_tests.orchestration.campaign_world import (
    NOW,
    in_a_home,
    report_and_die,
    run_and_die,
    tick_and_die,
    world,
)
from feed_assets_tests.support.sum_projects import later, opened

MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
FOO = Feed.parse("web/foo")
KILLED_WITHIN = (20, 100, 500)
"""Highest change of a tick at which its process is killed: a first run begins after a dozen, and makes a hundred."""
KILLED_AFTER = (1, 5, 15)
"""Changes of a run, counted from its function's call, at which it is killed. Before the first nothing is written."""


class Campaign:
    """Random acts. With a `forker`, processes that report or tick are killed on the way and started again."""

    def __init__(self, seed, forker=None):
        self.random, self.forker, self.kills, self.done = random.Random(seed), forker, 0, []  # noqa: S311
        self.tested = opened.enter_context((in_a_home if forker else world)(lambda: NOW))
        self.oracle = Oracle({at: Hour() for at in HOURS})
        self.version = 0
        starts = [MIDNIGHT + timedelta(minutes=20 * n) for n in range(72)]
        said = [{"start": start, "records": 100} for start in starts]
        self.say({"kind": "source", "tier": "kafka", "windows": said})
        self.say(
            {"kind": "part", "part": "rest", "windows": [each for each in said if not 14 <= each["start"].hour < 17]}
        )
        for at in HOURS:
            self.oracle.hours[at].is_complete = False
        self.oracle.note()

    def say(self, *lines):
        """Report; a process that was killed in between reports again."""
        told = [{"dataset": "web/foo", **line} for line in lines]
        if self.forker and self.random.random() < 0.4:
            self.kill(report_and_die, self.random.randint(1, 20), told)
        return report_state(told, "ada")

    def kill(self, target, number, *arguments):
        code = self.forker.run(target, number, *arguments)
        assert code in (0, -signal.SIGKILL), (self.done, target, number)
        self.kills += bool(code)
        self.done.append((target.__name__, number, code))

    def line(self, kind, at, **more):
        return {"kind": kind, "grain": "hour", "start": MIDNIGHT + timedelta(hours=at), **more}

    def count(self, at, hour):
        """Write the hour again: one time in four one of its windows is missing or lacks a record."""
        self.version += 1
        starts = [MIDNIGHT + timedelta(hours=at, minutes=20 * n) for n in range(3)]
        hour.is_complete, hour.version = self.random.random() < 0.75, self.version
        hour.last = None if hour.is_complete else self.random.choice([None, 99])
        counts = [{"start": start, "records": 100} for start in starts[: 3 if hour.is_complete else 2]]
        counts += [{"start": starts[2], "records": hour.last}] if hour.last else []
        outcome = self.say({"kind": "part", "part": f"{at}", "windows": counts, "version": self.version})
        assert outcome.accepted or outcome.known

    def check(self, at, hour):
        name, state = self.random.choice(["bots", "nulls"]), self.random.choice(["failed", "passed", "passed"])
        outcome = self.say(self.line("quality", at, check=name, state=state, reason=f"{name} {state}"))
        assert outcome.accepted or outcome.known
        if state == "failed" != hour.checks.get(name):
            hour.waived = None
        hour.checks[name] = state

    def begin(self, at, hour):
        is_refused = not hour.is_there and hour.made_again != "backfilling"
        outcome = self.say(self.line("backfill", at, state="started", reason="bots"))
        assert bool(outcome.rejected) == is_refused
        if not is_refused:
            hour.made_again = "backfilling"

    def finish(self, at, hour):
        outcome = self.say(self.line("backfill", at, state="done", reason="bots"))
        if hour.made_again == "backfilling":
            hour.made_again = "backfilled"
            hour.checks |= dict.fromkeys(hour.has("failed"), "stale")
            assert outcome.accepted or outcome.known
        elif hour.made_again is None:
            assert outcome.rejected

    def give_up(self, at, hour):
        self.say(self.line("backfill", at, state="failed", reason="no disk"))
        if hour.made_again == "backfilling":
            hour.made_again = None

    def waive(self, at, hour):
        """Waive the current problem of the hour."""
        address = WindowAddress(FOO, "", "hour", key(at))
        ledger = open_ledger(settings().ledger)
        with ledger.read() as connection:
            problem = problem_of(connection, address.partition)
        if problem:
            waivers.waive(ledger, address.partition, problem, "known, INC-1", "ada", NOW)
            hour.waived = hour.problem

    def close(self, at, hour):
        """Close the hour's output, or open it again."""
        ledger, partition = open_ledger(settings().ledger), Partition(Feed.parse("web/preagg/v1.0"), key(at))
        is_closed = at in self.oracle.closed
        move = closures.reopen if is_closed else closures.close
        assert move(ledger, [partition], "2026 is final", "ada", NOW) == 1
        (self.oracle.closed.discard if is_closed else self.oracle.closed.add)(at)

    def lose(self, at, hour):
        """Tick without starting the requested runs, as if the daemon were killed in between."""
        self.tested.ask()
        later(self.tested, timedelta(hours=2))

    def step(self):
        uncounted = [at for at, hour in self.oracle.hours.items() if self.forker and not hour.version]
        at = self.random.choice(uncounted or HOURS)
        name = self.random.choice(
            ["count", "count", "check", "check", "begin", "finish", "finish", "give_up", "waive", "close", "lose"]
        )
        if uncounted:
            name = "count"  # Otherwise few runs begin that could be killed.
        self.done.append((name, at))
        getattr(self, name)(at, self.oracle.hours[at])
        self.oracle.note()
        if self.forker:
            self.kill_what_ticks(name)

    def kill_what_ticks(self, name):
        """Kill a run if one may begin, else sometimes a tick."""
        if name == "count":
            self.kill(run_and_die, self.random.choice(KILLED_AFTER), self.tested.now())
        elif self.random.random() < 0.5:
            self.kill(tick_and_die, self.random.randint(1, self.random.choice(KILLED_WITHIN)), self.tested.now())

    def verdicts(self, outputs):
        graph = Graph(self.tested.definitions.resolve_asset_graph())
        wanted = [Partition(Feed.parse(f"web/{name}/v1.0"), each) for name, each in outputs]
        now = self.tested.now()
        with dg.partition_loading_context(now), open_ledger(settings().ledger).read() as connection:
            return dict(zip(outputs, verdicts(graph, connection, wanted, now), strict=True))

    def cells(self):
        """Return the state on the status page of each partition of the day."""
        graph, slots = Graph(self.tested.definitions.resolve_asset_graph()), Slots.of(date(2026, 1, 2), 1)
        now = self.tested.now()
        with dg.partition_loading_context(now), open_ledger(settings().ledger).read() as connection:
            shown = status_of(graph, connection, nodes_shown(graph), slots, now).rows
        return {(str(one.partition.feed), one.partition.key): one.state for row in shown for one in row.shown}

    def compare(self):
        """Assert that every verdict has the true state, and names the true hours and no others."""
        later(self.tested, timedelta(hours=1))
        assert all(run.succeeded for run in self.tested.run_until_idle())
        expected = self.expected = self.oracle.settle()
        cells = self.cells()
        for at in HOURS:
            assert cells["web/foo", key(at)] in self.oracle.cell_of_hour(at), f"{self.done} {at} {cells}"
        for output, (state, _) in expected.items():
            found = cells[f"web/{output[0]}/v1.0", output[1]]
            assert found in self.oracle.cell(output, state), f"{self.done} {output} {state} {found}"
        found = self.verdicts([*expected])
        for output, (state, hours) in expected.items():
            verdict = found[output]
            assert verdict.state is state, f"{self.done} {output} {state} {hours} {verdict}"
            if state is State.WAITS_FOR_QUALITY:
                named = {at for at in HOURS if key(at) in verdict.reason}
                assert named <= set(hours) or output[0] == "daily", (self.done, output, verdict.reason, hours)
                assert named & set(hours), (self.done, output, verdict.reason, hours)

    def compare_words(self):
        """Assert the same for the words of the commands `explain` and `status`."""
        shown = on_status_page()
        told = {name: explained(name) for name in {output[0] for output in self.expected}}
        for at in HOURS:
            assert shown["web/foo", key(at)]["state"] in self.oracle.cell_of_hour(at), (self.done, at, shown)
        for (name, partition), (state, hours) in self.expected.items():
            said, cell = told[name][partition], shown[f"web/{name}/v1.0", partition]
            about = name, said["reason"], cell, self.oracle.hours, self.done
            assert said["state"] == state, about
            assert cell["state"] in self.oracle.cell((name, partition), state), about
            if state not in (State.CURRENT, State.CLOSED):  # These two states are on no list.
                assert cell["verdict"] == said["state"], about
                assert without_counts(first_line(cell["why"])) in (
                    without_counts(said["reason"]),
                    without_counts(said["issue"]),
                ), about
            words = self.oracle.words((name, partition), state, hours)
            whole = said["reason"] + cell["why"]  # `explain` has one line for each, cut if it is long.
            assert [each for each in words if not any(one in whole for one in each)] == [], about


def without_counts(said):
    """Return the statement about an hour without its counts: they decide nothing, and the page has older ones."""
    return said and said.partition(": 20min ")[0]


def explained(name):
    """Return the result of `explain` for each partition of a dataset, by key."""
    keys = "2026-01-02" if name == "daily" else f"{key(HOURS[0])}...{key(HOURS[-1])}"
    command = ["explain", f"web/{name}/v1.0", keys, "-m", campaign_world.__name__, "--json"]
    found = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)
    return {each["partition"]: each for each in (found if isinstance(found, list) else [found])}


def on_status_page():
    """Return the result of `status` for each partition of the day, by dataset and key."""
    command = ["status", "-m", campaign_world.__name__, "--day", "2026-01-02", "--days", "1", "--json"]
    found = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)
    return {(row["dataset"], each["partition"]): each for row in found["datasets"] for each in row["partitions"]}


def run(seed, steps, forker=None):
    campaign = Campaign(seed, forker)
    campaign.tested.run_until_idle()
    for _ in range(steps):
        campaign.step()
        campaign.compare()
    campaign.compare_words()
    return campaign


@pytest.mark.parametrize("seed", range(3))
def test_random_reports_leave_each_partition_waiting_for_what_it_lacks(seed):
    run(seed, 20)


@pytest.mark.parametrize("seed", [200, 202])
def test_kills_do_not_change_what_partitions_wait_for(forker, seed):
    assert run(seed, 8, forker).kills > 2
    assert {updates.ABANDONED, updates.PUBLISHED} == (ended := states_of_runs()), ended


def states_of_runs():
    with open_ledger(settings().ledger).read() as connection:
        return {*connection.execute(sa.select(table.c.state)).scalars()}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_long_random_reports_leave_each_partition_waiting_for_what_it_lacks(seed):
    run(seed, 50)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(300, 320))
def test_kills_in_long_histories_do_not_change_what_partitions_wait_for(forker, seed):
    run(seed, 50, forker)
