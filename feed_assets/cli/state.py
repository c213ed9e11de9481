"""`feed-assets state`: report counts to the state store, and show which windows are complete, since when, why not."""

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

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="Its name: web/foo, or ads/shown/v1.0.")]
Partitions = Annotated[
    list[str],
    typer.Argument(
        metavar="PARTITION...", help="Partitions, ranges FIRST...LAST, all of a year, month or day: 2024, 2024-02."
    ),
]
Window = Annotated[str, typer.Argument(metavar="WINDOW", help="hour@2026-01-01-15:00, or …/region=apac below it.")]
Why = Annotated[str, typer.Option("--why", help="The reason, which the log keeps.")]
Who = Annotated[str | None, typer.Option("--who", help="Who says so; by default the user.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=LAST_VERSION, help="So many at most.")]

WINDOWS_OF_A_KEY = 20
"""The most windows of one key, of several sub-partitions or grains, in which `state waive` searches for problems."""

REASONS_SHOWN = 20
"""The most rejected lines of which `state report` prints the reason; all of them are in the ledger."""


@app.command()
def report(
    file: Annotated[typer.FileBinaryRead, typer.Argument(metavar="FILE", help="Lines of JSON; '-' for the input.")],
    as_json: AsJson = False,
) -> None:
    """Report counts and quality: each line a part, a source, what a check found or a backfill (docs/state.md).

    To report the same again is harmless. Lines that are no reports are kept with their reasons, the others recorded,
    and the exit code is 1.
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
    dataset: Annotated[str | None, typer.Option("--dataset", help="One dataset's; by default of all.")] = None,
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """List changes of windows' states in order: the first ones after --since, else the newest.

    To follow them, repeat the command with the last number as --since.
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
    """Show how far a dataset is complete; for a window or partition, whether it is, and what it waits for."""
    from feed_assets.ledger.states import state_views
    from feed_assets.ledger.states.parts import parts as parts_of

    name = Feed.parse(dataset)
    if parts and partition is None:
        raise InvalidName("--parts is of a window: expected one, such as hour@2026-01-01-15:00.")
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
    """Make partitions final: no run makes them again, no late data count, no report changes them. Logged.

    For a dataset these are partitions, for a state table windows, with all that lies in them. Partitions that others
    write with a cadence are not expected any more. They still arrive if their owner writes them after all.
    """
    from feed_assets.ledger import closures

    _close(closures.close, dataset, partitions, why, who, module, as_json)


@app.command(name="open")
def reopen(
    dataset: Dataset,
    partitions: Partitions,
    why: Why,
    who: Who = None,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Open closed partitions again. Logged.

    For a dataset, what arrived in between counts from then on. Reports on a window were rejected: send them again.
    """
    from feed_assets.core.windows import address_of
    from feed_assets.ledger import closures
    from feed_assets.ledger.states.window_queries import open_again

    def opened(ledger: "Ledger", named: "list[Partition]", why: str, by: str, now: datetime) -> int:
        changed = closures.reopen(ledger, named, why, by, now)
        open_again(ledger, [at for each in named if (at := address_of(each))], by, now)
        return changed

    _close(opened, dataset, partitions, why, who, module, as_json)


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
    say(done, as_json, "" if changed else "they are as they were")


def who_says(why: str, by: str | None) -> str:
    """Return who says it, by default the user. Raise InvalidName for more than one line of either."""
    by = by if by is not None else getuser()
    check_line("--why", why, REASON_BYTES)
    check_line("--who", by, NAME_BYTES)
    return by


def _named(dataset: Feed, typed: list[str], module: str | None) -> list[Partition]:
    """Return the partitions that somebody typed; for a state table, their windows."""
    if all("@" in each for each in typed):
        return _windows(dataset, typed)
    from feed_assets.orchestration.decide.overlapping_windows import window_partition
    from feed_assets.orchestration.decide.typed_keys import keys_of, within
    from feed_assets.orchestration.declare.declarations import Dataset, StateTable

    graph = load_graph(module)
    node = graph.node(dataset)
    if not isinstance(node.declaration, Dataset | StateTable) and not node.expects_partitions:
        raise InvalidName(
            f"{dataset} is written by others, whom nothing here can stop: expected a dataset, a state table, or a feed "
            "whose partitions are expected by a cadence. Close what is made of it."
        )
    with dynamic_partitions(graph):
        keys = keys_of(node, within(node, typed), datetime.now(UTC))
    is_table = isinstance(node.declaration, StateTable)
    return [window_partition(node, key) if is_table else Partition(dataset, key) for key in keys]


def _windows(dataset: Feed, typed: list[str]) -> list[Partition]:
    """Return the windows that somebody typed, of a dataset whose windows are known by reports or a declaration."""
    from feed_assets.ledger import subscriptions, update_counts
    from feed_assets.ledger.states import window_policies, window_queries

    addresses = [_window(dataset, each) for each in typed]
    with ledger_of_settings(makes=False).read() as connection:
        tracked = window_policies.tracked(connection, [dataset]).get(dataset)
        counted = subscriptions.positions(connection, [update_counts.COUNTER])
    if tracked is None:
        raise InvalidName(f"nothing is known of {dataset}: expected a dataset that was reported or declared.")
    if tracked.is_ours or (update_counts.COUNTER, str(dataset)) in counted:
        raise InvalidName(
            f"{dataset} is no state table, its windows are what its partitions hold: expected partitions, such as "
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
    """Take a window as complete that never will be, as it is. Logged, with who and why."""
    from feed_assets.ledger.states import window_queries

    who = who_says(why, who)
    address = _window(Feed.parse(dataset), window)
    changed = window_queries.accept(ledger_of_settings(), address, why, who, datetime.now(UTC))
    done = Values.of(dataset=dataset, window=window, changed=changed)
    say(done, as_json, "" if changed else "its state is what it was")


@app.command()
def backfill(
    dataset: Dataset,
    window: Window,
    why: Why,
    who: Who = None,
    done: Annotated[bool, typer.Option("--done", help="It was made again: its checks have to run.")] = False,
    failed: Annotated[bool, typer.Option("--failed", help="It is not made again after all.")] = False,
    as_json: AsJson = False,
) -> None:
    """Record that who fills a window makes it again: at first, then with --done or --failed. Logged, with who, why.

    A run by hand of one of our own datasets records it itself.
    """
    from feed_assets.ledger.states import backfills

    who = who_says(why, who)
    address = _window(Feed.parse(dataset), window)
    if done and failed:
        raise InvalidName("--done and --failed are given: expected one of them, or none when it begins.")
    move = backfills.finish if done else backfills.give_up if failed else backfills.begin
    moved = move(ledger_of_settings(), address, why, who, datetime.now(UTC))
    outcome = Values.of(dataset=dataset, window=window, changed=bool(moved.transitions))
    say(outcome, as_json, "" if moved.transitions else "its state is what it was")


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
    """Let the consumers of a partition or window continue in spite of what is wrong with it now. Logged.

    No state changes: another problem blocks again.
    """
    from feed_assets.ledger import waivers

    who = who_says(why, who)
    ledger, at = ledger_of_settings(), Partition(Feed.parse(dataset), partition)
    with ledger.read() as connection:
        problems = _problems(connection, at)
    if len(problems) > 1:
        named = ", ".join(sorted(each.key for each in problems))
        raise InvalidName(f"{at} is no partition with a problem, and the key of several windows: did you mean {named}?")
    if not problems:
        raise InvalidName(
            f"{at} has no problem that consumers wait for the end of: expected a partition of which a check has "
            "failed, or a window such as hour@2026-01-01-15:00 that is invalid or has an issue. `feed-assets explain` "
            "names it."
        )
    ((at, problem),) = problems.items()
    waivers.waive(ledger, at, problem, why, who, datetime.now(UTC))
    say(Values.of(dataset=dataset, partition=at.key, waived=problem), as_json)


def _problems(connection: "sa.Connection", at: Partition) -> dict[Partition, str]:
    """Return the problem of a partition; if it has none, those of the windows that have its key, as `show` takes it."""
    from feed_assets.ledger.fact_queries import problem_of
    from feed_assets.ledger.states import state_views

    if problem := problem_of(connection, at):
        return {at: problem}
    windows = [each for each in state_views.partitions(connection, at.feed, at.key, WINDOWS_OF_A_KEY) if each.grain]
    named = [WindowAddress(at.feed, each.sub_partition, each.grain, each.partition).partition for each in windows]
    return {each: problem for each in named if (problem := problem_of(connection, each))}


def _window(dataset: Feed, typed: str) -> WindowAddress:
    """Return the window that somebody typed. Raise InvalidName if it is none."""
    from feed_assets.core.windows import address_of

    if address := address_of(Partition(dataset, typed)):
        return address
    raise InvalidName(f"{typed!r} is no window: expected hour@2026-01-01-15:00, or day@2026-01-01/region=apac.")
