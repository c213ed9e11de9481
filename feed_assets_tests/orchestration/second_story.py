"""Hourly foo, its consumers, and reports about hour 15: the world of the article's second story."""

from datetime import UTC, datetime, timedelta

import dagster as dg

from feed_assets import Completeness, DayToDate, Input, feed_asset, report_state, state_table
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import Verdict
from feed_assets.core.reports import INPUTS
from feed_assets.core.windows import WindowAddress, window_at
from feed_assets.ledger import quality
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import window_queries
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness
from feed_assets_tests.support.sum_projects import harness

NOW = datetime(2026, 1, 2, 16, 30, tzinfo=UTC)
FOO = Feed.parse("web/foo")
HOUR, HOURS = "2026-01-02-15:00", dg.HourlyPartitionsDefinition("2026-01-02-14:00")
TENS = dg.TimeWindowPartitionsDefinition(cron_schedule="*/10 * * * *", start="2026-01-02-00:00", fmt="%Y-%m-%d-%H:%M")
MIDNIGHT, BASE = datetime(2026, 1, 2, tzinfo=UTC), timedelta(minutes=5)
BOTS = "41 % of rows are bots"
OF_HOUR = f"hour {HOUR} of web/foo is invalid: bots: {BOTS}"

RUNS: list[str] = []


def reader(name: str, partitions_def, read, **options) -> dg.AssetsDefinition:
    @feed_asset(f"web/{name}/v1.0", partitions_def=partitions_def, inputs={"read": read}, **options)
    def made(read):
        """Read one input."""

    return made


def give(task) -> Given:
    """Return rows that differ from run to run."""
    RUNS.append(task.output.path)
    return Given([{"n": len(RUNS)}])


def world() -> Harness:
    """Build hourly foo with a pre-aggregation and its report, an intra-day reader, and one that ignores quality."""
    RUNS.clear()
    foo = state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))
    preagg = reader("preagg", HOURS, foo)
    return harness(
        foo,
        preagg,
        reader("report", HOURS, preagg),
        reader("intraday", HOURS, Input(foo, mapping=DayToDate())),
        reader("anyhow", HOURS, Input(foo, ignore_quality_issue=True)),
        give=give,
        now=lambda: NOW,
    )


def counted(first: int, last: int, version: int = 0) -> None:
    """Report all records of some hours as ingested and at the source."""
    starts = [MIDNIGHT + each * BASE for each in range(first * 12, last * 12)]
    said = [{"start": start, "records": 100} for start in starts]
    line = {"dataset": "web/foo", "windows": said, "version": version}
    outcome = report_state([{"kind": "source", "tier": "kafka", **line}, {"kind": "part", "part": f"{first}", **line}])
    assert not outcome.rejected


def checked(state: str, reason: str | None = None, version: int = 0) -> None:
    line = {"kind": "quality", "dataset": "web/foo", "grain": "hour", "start": MIDNIGHT + timedelta(hours=15)}
    outcome = report_state([{**line, "check": "bots", "state": state, "reason": reason, "version": version}], "dq")
    assert not outcome.rejected


def backfill(state: str, reason: str = "bots are filtered, INC-4711") -> None:
    line = {"kind": "backfill", "dataset": "web/foo", "grain": "hour", "start": MIDNIGHT + timedelta(hours=15)}
    outcome = report_state([{**line, "state": state, "reason": reason}], "eve")
    assert not outcome.rejected, outcome.rejected


def states() -> dict[str, str]:
    """Return the state of hour 15 and the distinct states of its smaller windows."""
    hour = window_at("hour", HOUR, "UTC")
    inside = {grain: int((hour.end - hour.start) / BASE / size) for grain, size in (("5min", 1), ("10min", 2))}
    wanted = [WindowAddress(FOO, "", "hour", HOUR)]
    for grain, count in inside.items():
        step = (hour.end - hour.start) / count
        keys = [(hour.start + number * step).strftime("%Y-%m-%d-%H:%M") for number in range(count)]
        wanted += [WindowAddress(FOO, "", grain, key) for key in keys]
    with open_ledger(settings().ledger).read() as connection:
        known = window_queries.stored_windows(connection, wanted)
    found: dict[str, set[str]] = {}
    for at in wanted:
        found.setdefault(at.grain, set()).add(str(known[at].state))
    return {grain: " ".join(sorted(each)) for grain, each in found.items()}


def flag(name: str, key: str = HOUR) -> str | None:
    """Return why an output is marked. Return None if it is not."""
    at = Partition(Feed.parse(f"web/{name}/v1.0"), key)
    with open_ledger(settings().ledger).read() as connection:
        found = quality.check_states(connection, [at]).get((at, INPUTS))
    return found.reason if found and found.state == quality.MARKED else None


def verdict(tested: Harness, name: str) -> Verdict:
    graph, output = Graph(tested.definitions.resolve_asset_graph()), Partition(Feed.parse(f"web/{name}/v1.0"), HOUR)
    with dg.partition_loading_context(NOW), open_ledger(settings().ledger).read() as connection:
        (found,) = verdicts(graph, connection, [output], NOW)
    return found


def made(runs) -> list[str]:
    assert all(run.succeeded for run in runs), [run.error for run in runs]
    return sorted(f"{run.assets[0].removeprefix('web/')} {run.partition[-5:-3]}" for run in runs)


def told(tested: Harness, asset: str = "web/foo") -> list[str]:
    """Return the observations of hour 15 in Dagster, oldest first."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(asset), asset_partitions=[HOUR])
    records = tested.instance.fetch_observations(wanted, limit=50).records
    return [str(record.asset_observation.description) for record in reversed(records)]
