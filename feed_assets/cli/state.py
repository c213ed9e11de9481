"""`feed-assets state`: report counts to the ledger, and show which windows are complete and since when."""

from datetime import UTC, datetime
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli import views
from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, dynamic_partitions, ledger_of_settings, load_graph
from feed_assets.cli.show import Values
from feed_assets.cli.show import show as say
from feed_assets.core.errors import InvalidName, InvalidReport
from feed_assets.core.events import LAST_VERSION, check_marker, parse_marker
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.limits import NAME_BYTES, REASON_BYTES, check_line
from feed_assets.core.windows import WindowAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

    from feed_assets.ledger.database import Ledger

app = typer.Typer(help="The state store: which windows of a dataset are complete.", no_args_is_help=True)

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's name: web/foo, or ads/shown/v1.0.")]
Partitions = Annotated[
    list[str],
    typer.Argument(
        metavar="PARTITION...", help="Partitions, ranges FIRST...LAST, or a whole year, month or day: 2024, 2024-02."
    ),
]
Window = Annotated[
    str, typer.Argument(metavar="WINDOW", help="hour@2026-01-01-15:00, or hour@2026-01-01-15:00/region=apac.")
]
Why = Annotated[str, typer.Option("--why", help="The reason, which the log keeps.")]
Who = Annotated[str | None, typer.Option("--who", help="Who gives the reason; by default the user.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=LAST_VERSION, help="List this many at most.")]

WINDOWS_OF_A_KEY = 20
"""The most windows that `state waive` searches for problems: windows of any sub-partition and grain with one key."""

REASONS_SHOWN = 20
"""The most rejected lines whose reason `state report` prints; the ledger has all of them."""


@app.command()
def report(
    file: Annotated[typer.FileBinaryRead, typer.Argument(metavar="FILE", help="Lines of JSON; '-' for stdin.")],
    as_json: AsJson = False,
) -> None:
    """Report counts and quality. Each line is a part, a source, a check's result or a backfill (docs/state.md).

    Repeating a report is harmless. Invalid lines are kept with their reasons, and the exit code is then 1. All other
    lines are recorded.
    """
    from feed_assets.sources.report_reader import lines_of, record

    total, reasons = views.ReportedView(), list[views.RejectedView]()
    for outcome in record(ledger_of_settings(), lines_of(file)):
        total = total.plus(outcome)
        reasons += views.RejectedView.each(outcome.rejected[: REASONS_SHOWN - len(reasons)])
    total = total.model_copy(update={"reasons": tuple(reasons)})
    say(total, as_json)
    if total.rejected:
        raise InvalidReport(
            f"{total.rejected} rejected, the first because {reasons[0].reason} All of them, with their reasons: "
            "`feed-assets events ls --rejected`. Correct them, and report them again."
        )


@app.command()
def transitions(
    since: Annotated[
        str | None, typer.Option("--since", metavar="N|TIME", help="After this number, or from this moment on.")
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="Only this dataset; by default all.")] = None,
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """List changes of windows' states in order: the first changes after --since, or by default the newest ones.

    To follow the changes, repeat the command with the last number as --since.
    """
    from feed_assets.ledger.states import state_views

    with ledger_of_settings(makes=False).read() as connection:
        position = parse_marker(since) if since else None
        if position is not None:
            check_marker(position)
        rows = state_views.transitions(connection, position, Feed.parse(dataset) if dataset else None, limit)
    say(views.TransitionView.each(rows), as_json)


@app.command()
def show(
    dataset: Dataset,
    partition: Annotated[
        str | None, typer.Argument(metavar="[PARTITION]", help="2026-01-01-15:00, hour@2026-01-01-15:00/region=apac.")
    ] = None,
    parts: Annotated[
        bool, typer.Option("--parts", help="List the parts of the window, and which files or offsets are missing.")
    ] = False,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show how far a dataset is complete. For a window or partition, show its state and what it waits for."""
    from feed_assets.ledger.states import state_views
    from feed_assets.ledger.states.parts import parts as parts_of

    name = Feed.parse(dataset)
    if parts and partition is None:
        raise InvalidName("--parts needs a window: expected one, such as hour@2026-01-01-15:00.")
    with ledger_of_settings(makes=False).read() as connection:
        if partition is not None and parts:
            return say(views.WindowPartsView.each(parts_of(connection, name, partition, limit)), as_json)
        if partition is not None:
            return say(views.WindowStateView.each(state_views.explained(connection, name, partition, limit)), as_json)
        return say(views.DatasetStateView.model_validate(state_views.summary(connection, name, limit)), as_json)


@app.command()
def close(
    dataset: Dataset,
    partitions: Partitions,
    why: Why,
    who: Who = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Make partitions final: runs do not build them again, late data do not count, and reports change nothing.

    A state table has windows instead: closing one also closes all smaller windows in it. If another team writes the
    partitions with a cadence, they are no longer expected, but still accepted. The command is logged.
    """
    from feed_assets.ledger import closures

    _close(closures.close, dataset, partitions, why=why, by=who, module=module, as_json=as_json)


@app.command(name="open")
def reopen(
    dataset: Dataset,
    partitions: Partitions,
    why: Why,
    who: Who = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Open closed partitions again. The command is logged.

    For a dataset, data that arrived meanwhile count from now on. Reports on a closed window were rejected: repeat them.
    """
    from feed_assets.core.windows import address_of
    from feed_assets.ledger import closures
    from feed_assets.ledger.states.window_queries import open_again

    def opened(ledger: "Ledger", named: "list[Partition]", why: str, by: str, now: datetime) -> int:
        changed = closures.reopen(ledger, named, why, by, now)
        open_again(ledger, [at for each in named if (at := address_of(each))], by, now)
        return changed

    _close(opened, dataset, partitions, why=why, by=who, module=module, as_json=as_json)


def _close(
    change: "Callable[[Ledger, list[Partition], str, str, datetime], int]",
    dataset: str,
    typed: list[str],
    why: str,
    by: str | None,
    module: str | None,
    as_json: bool,
) -> None:
    by = who_says(why, by)
    partitions = _named(Feed.parse(dataset), typed, module)
    changed = change(ledger_of_settings(), partitions, why, by, datetime.now(UTC))
    done = Values.of(dataset=dataset, partitions=len(partitions), changed=changed)
    say(done, as_json, "" if changed else "nothing changed")


def who_says(why: str, by: str | None) -> str:
    """Return who gives the reason, by default the user. Raise InvalidName if `why` or `by` has several lines."""
    by = by if by is not None else getuser()
    check_line("--why", why, REASON_BYTES)
    check_line("--who", by, NAME_BYTES)
    return by


def _named(dataset: Feed, typed: list[str], module: str | None) -> list[Partition]:
    """Return the partitions that the user typed. For a state table, return their windows."""
    if all("@" in each for each in typed):
        return _windows(dataset, typed)
    from feed_assets.orchestration.decide.overlapping_windows import window_partition
    from feed_assets.orchestration.decide.typed_keys import keys_of, within
    from feed_assets.orchestration.declare.declarations import Dataset, StateTable

    graph = load_graph(module)
    node = graph.node(dataset)
    if not isinstance(node.declaration, Dataset | StateTable) and not node.expects_partitions:
        raise InvalidName(
            f"{dataset} is written by another team, which this command cannot stop: expected a dataset, a state "
            "table, or a feed whose partitions are expected by a cadence. Close the datasets that read it."
        )
    with dynamic_partitions(graph):
        keys = keys_of(node, within(node, typed), datetime.now(UTC))
    is_table = isinstance(node.declaration, StateTable)
    return [window_partition(node, key) if is_table else Partition(dataset, key) for key in keys]


def _windows(dataset: Feed, typed: list[str]) -> list[Partition]:
    """Return the windows that the user typed. The windows of the dataset must have been reported or declared."""
    from feed_assets.ledger import subscriptions, update_counts
    from feed_assets.ledger.states import window_policies, window_queries

    addresses = [_window(dataset, each) for each in typed]
    with ledger_of_settings(makes=False).read() as connection:
        tracked = window_policies.tracked(connection, [dataset]).get(dataset)
        counted = subscriptions.positions(connection, [update_counts.COUNTER])
    if tracked is None:
        raise InvalidName(f"{dataset} is unknown: expected a dataset that was reported or declared.")
    if tracked.is_ours or (update_counts.COUNTER, str(dataset)) in counted:
        raise InvalidName(
            f"{dataset} is not a state table, and its windows follow its partitions: expected partitions, such as "
            "2026-01-01."
        )
    return [window_queries.placed(tracked, each).partition for each in addresses]


@app.command()
def accept(
    dataset: Dataset,
    window: Window,
    why: Why,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Count a window that will never be complete as complete. The log keeps who accepted it, and why."""
    from feed_assets.ledger.states import window_queries

    who = who_says(why, who)
    address = _window(Feed.parse(dataset), window)
    changed = window_queries.accept(ledger_of_settings(), address, why, who, datetime.now(UTC))
    done = Values.of(dataset=dataset, window=window, changed=changed)
    say(done, as_json, "" if changed else "nothing changed")


@app.command()
def backfill(
    dataset: Dataset,
    window: Window,
    why: Why,
    who: Who = None,
    done: Annotated[bool, typer.Option("--done", help="The window was refilled: its checks have to run.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="The window is not refilled after all.")] = False,
    as_json: AsJson = False,
) -> None:
    """Record a backfill: once when a window's owner begins to refill it, then with --done or --failed.

    You need not do this for our own datasets: a run by hand records its backfill. The command is logged.
    """
    from feed_assets.ledger.states import backfills

    who = who_says(why, who)
    address = _window(Feed.parse(dataset), window)
    if done and failed:
        raise InvalidName("--done and --failed are given: expected one of them, or none when the backfill begins.")
    move = backfills.finish if done else backfills.give_up if failed else backfills.begin
    moved = move(ledger_of_settings(), address, why, who, datetime.now(UTC))
    outcome = Values.of(dataset=dataset, window=window, changed=bool(moved.transitions))
    say(outcome, as_json, "" if moved.transitions else "nothing changed")


@app.command()
def waive(
    dataset: Dataset,
    partition: Annotated[
        str, typer.Argument(metavar="PARTITION", help="2026-01-01-15:00, hour@2026-01-01-15:00/region=apac.")
    ],
    why: Why,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """Let the consumers of a partition or window continue in spite of its present problem.

    The state does not change, and another problem blocks the consumers again. The command is logged.
    """
    from feed_assets.ledger import waivers

    who = who_says(why, who)
    ledger, at = ledger_of_settings(), Partition(Feed.parse(dataset), partition)
    with ledger.read() as connection:
        problems = _problems(connection, at)
    if len(problems) > 1:
        named = ", ".join(sorted(each.key for each in problems))
        raise InvalidName(f"{at} is a key of several windows, not a partition with a problem: did you mean {named}?")
    if not problems:
        raise InvalidName(
            f"{at} has no problem that stops its consumers: expected a partition with a failed check, or a window such "
            "as hour@2026-01-01-15:00 that is invalid or has an issue. `feed-assets explain` "
            "names the problem."
        )
    ((at, problem),) = problems.items()
    waivers.waive(ledger, at, problem, why=why, by=who, now=datetime.now(UTC))
    say(Values.of(dataset=dataset, partition=at.key, waived=problem), as_json)


def _problems(connection: "sa.Connection", at: Partition) -> dict[Partition, str]:
    """Return the problem of a partition. If it has none, return the problems of the windows with its key."""
    from feed_assets.ledger.fact_queries import problem_of
    from feed_assets.ledger.states import state_views

    if problem := problem_of(connection, at):
        return {at: problem}
    windows = [each for each in state_views.partitions(connection, at.feed, at.key, WINDOWS_OF_A_KEY) if each.grain]
    named = [WindowAddress(at.feed, each.sub_partition, each.grain, each.partition).partition for each in windows]
    return {each: problem for each in named if (problem := problem_of(connection, each))}


def _window(dataset: Feed, typed: str) -> WindowAddress:
    """Return the window that the user typed. Raise InvalidName if it is not a window."""
    from feed_assets.core.windows import address_of

    if address := address_of(Partition(dataset, typed)):
        return address
    raise InvalidName(f"{typed!r} is not a window: expected hour@2026-01-01-15:00, or day@2026-01-01/region=apac.")
