"""`feed-assets explain`: the sensor's verdict, in words."""

from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli import update_notes
from feed_assets.cli.feed import AsJson, PartitionKey
from feed_assets.cli.loaded_location import Module, dynamic_partitions, load_graph, open_instance, open_services
from feed_assets.cli.show import Values, show
from feed_assets.cli.verdicts import (
    CameBackView,
    GroupView,
    LastRunView,
    LateView,
    OverviewView,
    UnreadView,
    VerdictView,
    WaitingView,
)
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.isolation import failing_alone
from feed_assets.core.message_words import first_line, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from feed_assets.core.readiness import Need, Verdict
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.decide.nodes import Node
    from feed_assets.orchestration.ticks.ingest import Unread
    from feed_assets.runs.services import Services

AnyFeed = Annotated[str | None, typer.Argument(metavar="[FEED]", help="A dataset; by default everything that waits.")]

GROUPS = 50
"""The most lines that `explain` prints without a dataset. Each line is one dataset in one state."""

DIED = "died; the next tick records its end"
"""The state of a run whose process has ended without reporting an end."""

READERS = 10
"""The most readers of an old version that are listed."""

LATE = 3
"""The number of newest decisions about a partition's late data that are shown."""

DECISIONS = 1000
"""The most partitions that one call decides. For further partitions, the last verdict is shown."""


def explain(feed: AnyFeed = None, partition: PartitionKey = "", module: Module = None, as_json: AsJson = False) -> None:
    """Show whether a partition is built or ready, or what it waits for. The sensor would decide the same now.

    Without a partition, show how many partitions are in each state, and the first few partitions of each state. Holes
    and partitions without any data count, too. Without a dataset, show everything that waits. Event sources are read
    first, as in the next tick. If a source cannot be read, the reason is shown, and the time of its last read.
    """
    graph = load_graph(module)
    services = open_services(graph, makes=False)
    with dynamic_partitions(graph):
        _explain(graph, services, feed, partition, as_json=as_json)


def _explain(graph: "Graph", services: "Services", feed: str | None, partition: str, *, as_json: bool) -> None:
    from feed_assets.orchestration.decide.typed_keys import keys_of
    from feed_assets.orchestration.ticks.ingest import ingest_for

    if feed is None:
        return _explain_all(graph, services, as_json)
    node = graph.dataset_of(Feed.parse(feed))
    unread = UnreadView.each(ingest_for(graph, services, [node], services.now()))
    if not partition and node.partitions_def is not None:
        return show(_overview(graph, services, node, unread), as_json)
    outputs = [Partition(node.feed, key) for key in keys_of(node, [partition], services.now())]
    notes = [*map(_caveat, unread), *_undeclared(graph, services, [node]), *_versions(graph, services, node)]
    views = [_with_notes(services, _decided(graph, services, node, output), unread, notes) for output in outputs]
    return show(views if len(views) > 1 else views[0], as_json)


def _explain_all(graph: "Graph", services: "Services", as_json: bool) -> None:
    """Show everything that waits, over all datasets of the code location."""
    from feed_assets.ledger import due_counts

    unread_notes = caught_up(graph, services, graph.datasets())
    with services.ledger.read() as connection:
        groups = [each for each in due_counts.by_state(connection) if each.feed in graph.by_feed]
    views = [WaitingView(feed=str(each.feed), **GroupView.of(each).model_dump()) for each in groups[:GROUPS]]
    notes = [f"and {len(groups) - GROUPS} more"] if len(groups) > GROUPS else [] if groups else ["nothing waits"]
    show(views, as_json, "\n".join([*notes, *unread_notes]))


def caught_up(graph: "Graph", services: "Services", nodes: "Sequence[Node]") -> list[str]:
    """Do what the next ticks of these datasets would do, but request no runs.

    Return notes on what is still not up to date.
    """
    from feed_assets.orchestration.ticks.ingest import ingest_for

    unread = ingest_for(graph, services, nodes, services.now())
    _decide_some(graph, services, nodes)
    return [*map(_caveat, unread), *_undeclared(graph, services, nodes)]


def _undeclared(graph: "Graph", services: "Services", nodes: "Sequence[Node]") -> list[str]:
    """Return notes on datasets whose declaration has changed, if the ledger still has the old declaration."""
    from feed_assets.ledger.states import window_policies

    names = {parent.feed for node in nodes for parent in [node, *graph.parents(node)]}
    declared = {feed: tracked for feed, tracked in graph.tracked().items() if feed in names}
    with services.ledger.read() as connection:
        differing = window_policies.differing(connection, declared)
    note = "has a changed declaration that the ledger lacks: `feed-assets run`, or the daemon's next tick, records it"
    return [f"but {name} {note}" for name in sorted(differing)]


def _versions(graph: "Graph", services: "Services", node: "Node") -> list[str]:
    """Return notes on newer versions of a dataset and of its inputs.

    If the dataset has a newer version, also list who still reads the version of `node`.
    """
    from feed_assets.ledger.closures import still_reading
    from feed_assets.orchestration.decide.alert_owner import readers_of

    newer = [
        f"it reads {above.feed}, but {graph.newer[above.feed]} exists"
        for above in graph.parents(node)
        if above.feed in graph.newer
    ]
    if node.feed in graph.newer:
        with services.ledger.read() as connection:
            readers = still_reading(connection, *readers_of(graph, node, services.now()))
        reader_note = f"is still read by {shortened([*map(str, readers)], READERS)}" if readers else "is no longer read"
        newer.append(f"{graph.newer[node.feed]} is newer, and {node.feed} {reader_note}")
    return newer


def _overview(graph: "Graph", services: "Services", node: "Node", unread: tuple[UnreadView, ...]) -> OverviewView:
    """Return a dataset's partitions, counted by state. Its newest updates are verified on the blackboard first."""
    from feed_assets.ledger import pauses
    from feed_assets.orchestration.decide.overview import overview
    from feed_assets.runs.verify import verify_newest

    verify_newest(services, node.feed, graph.by_feed)
    _decide_some(graph, services, [node])
    with services.ledger.read() as connection:
        paused = pauses.paused(connection, [node.feed]).get(node.feed)
        groups = tuple(map(GroupView.of, overview(connection, node)))
    versions = tuple(_versions(graph, services, node))
    return OverviewView(feed=str(node.feed), paused=paused, versions=versions, partitions=groups, unread=unread)


def _decide_some(graph: "Graph", services: "Services", nodes: "Sequence[Node]") -> None:
    """Decide as the next ticks would, but request no runs. Partitions beyond DECISIONS keep their last verdict."""
    from feed_assets.core.readiness import State
    from feed_assets.ledger import resource_queue
    from feed_assets.orchestration.decide import home_choice
    from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to
    from feed_assets.orchestration.decide.resource_requests import targets

    fan_out_to(graph, nodes, services.ledger, services.now(), lambda: False)
    decided = decide_due(graph, nodes, services.ledger, now=services.now(), limit=DECISIONS, out_of_time=lambda: False)
    ready = {
        item.partition: (item, each) for item, each in decided.verdicts if each.state in (State.BUILD, State.REBUILD)
    }
    items = {output: item for output, (item, _) in ready.items()}
    home_choice.placed(graph, services.ledger, items, {at: each for at, (_, each) in ready.items()}, services.now())
    if targets():
        resource_queue.note_waiting(services.ledger, services.now())


def _with_notes(
    services: "Services", view: VerdictView, unread: tuple[UnreadView, ...], caveats: "Sequence[str]"
) -> VerdictView:
    """Return the verdict with notes in its reason: a pause, an issue, an event source that could not be read."""
    from feed_assets.ledger import pauses

    feed = Feed.parse(view.feed)
    with services.ledger.read() as connection:
        paused = pauses.paused(connection, [feed]).get(feed)
    additions = [paused] if paused and paused not in view.reason else []
    if view.issue and view.issue not in view.reason:
        additions.append(f"with issue: {first_line(view.issue)}")
    reason = "; ".join([first_line(view.reason), *additions, *caveats])
    return view.model_copy(update={"unread": unread, "reason": reason, "last_run": _last_run(view, reason)})


def _last_run(view: VerdictView, reason: str) -> LastRunView | None:
    """Return the view of the output's last run.

    Leave out the reason of its failure if the verdict's reason contains it.
    """
    last = view.last_run
    is_said = last and first_line(last.reason) in reason
    return last.model_copy(update={"reason": None}) if last and is_said else last


def _offending(node: "Node", output: Partition, last: LastRunView | None) -> tuple[Values, ...]:
    """Return the rows that failed checks of the last run, from Dagster. Return () if Dagster's home does not exist."""
    from feed_assets.home import home
    from feed_assets.orchestration.execute.build_events import offending_rows

    if last is None or last.dagster_run is None or not (home() / "dagster.yaml").exists():
        return ()
    with open_instance() as instance:
        return tuple(map(Values, offending_rows(instance, last.dagster_run, node.key_of(output))))


def _queued(graph: "Graph", output: Partition) -> list[str]:
    """Return the output's requested runs in Dagster's queue. Return [] if Dagster's home does not exist."""
    from feed_assets.home import home
    from feed_assets.orchestration.decide.requests import queued

    if not (home() / "dagster.yaml").exists():
        return []
    with open_instance() as instance:
        return queued(graph, instance, output)


def _caveat(unread: "UnreadView | Unread") -> str:
    since = f"could not be read since {unread.as_of:%Y-%m-%d %H:%M} UTC" if unread.as_of else "was never read"
    return f"but {unread.source} {since}: what is new there is unknown ({first_line(unread.why)})"


def _decided(graph: "Graph", services: "Services", node: "Node", output: Partition) -> VerdictView:
    """Return the present verdict, not that of the last tick: read the inputs from the blackboard first."""
    from feed_assets.ledger import batch_sets, due, expected_cursor, updates
    from feed_assets.orchestration.decide.decisions import fan_out_to, verdicts
    from feed_assets.orchestration.decide.output_needs import deadline_said, need_of, waits_for

    problems, needs = dict[str, str](), list["Need"]()
    with failing_alone(problems, output.key):  # A user's mapping may raise, and a lineage table may not answer.
        needs.append(need_of(graph, output))
    if why := problems.get(output.key):
        return VerdictView(feed=str(output.feed), partition=output.key, state=due.UNDECIDED, reason=why)
    left_out = _left_out(services, needs)
    fan_out_to(graph, [node], services.ledger, services.now(), lambda: False)
    with services.ledger.read() as connection:
        (verdict,) = verdicts(graph, connection, [output], services.now())
        newest, gone = batch_sets.newest(connection, [output]).get(output), updates.gone(connection, output)
        fields = _ledger_facts(connection, output)
        late = expected_cursor.late(connection, [output])
        notes = [*update_notes.compaction(connection, output, newest), *update_notes.copies(connection, newest)]
    notes += [f"its update {gone.id} is no longer valid: {gone.reason}"] if gone else []
    notes += _queued(graph, output) if "requested" in fields else []
    notes += [by] if newest is None and (by := deadline_said(node, output, services.now())) else []
    notes += late.values() if newest is None else []
    fields |= {"went_without": newest.went_without if newest else (), "deadline": waits_for(node, output).deadline}
    fields |= {"left_out": left_out, "reason": "; ".join([verdict.reason, *notes])}
    fields |= _held(graph, services, verdict)
    view = VerdictView.model_validate(verdict).model_copy(update=fields)
    return view.model_copy(update={"offending": _offending(node, output, view.last_run)})


def _held(graph: "Graph", services: "Services", verdict: "Verdict") -> dict[str, object]:
    """Return changed fields of a verdict if a ready partition waits for a place, resources, or history's limit."""
    from feed_assets.core.readiness import State
    from feed_assets.ledger import due, history_budget
    from feed_assets.orchestration.decide.home_choice import home_of_run

    now, output = services.now(), verdict.output
    with services.ledger.read() as connection:
        listed = [each for each in due.listed(connection, output.feed) if each.partition == output]
        spent = history_budget.spent(connection, now)
    is_ready = verdict.state in (State.BUILD, State.REBUILD)
    if is_ready and (why := home_of_run(graph, services.ledger, [output], {}, now).why):
        return {"state": State.WAITS_FOR_INPUT.value, "reason": f"{why}; {verdict.reason}"}
    if is_ready and (waiting := [each for each in listed if each.state == State.WAITS_FOR_RESOURCES]):
        return {"state": State.WAITS_FOR_RESOURCES.value, "reason": f"{waiting[0].reason}; {verdict.reason}"}
    waits = [each.look_at for each in listed if each.state == State.WAITS_FOR_TIME]
    until = [at for at in waits if at and at > now]
    if not until or verdict.state not in (State.BUILD, State.REBUILD):
        return {}
    time_note = f"until {until[0]:%Y-%m-%d %H:%M} UTC, because {listed[0].reason}"
    return {"state": State.WAITS_FOR_TIME.value, "reason": "; ".join([time_note, str(spent), verdict.reason])}


def _left_out(services: "Services", needs: "Sequence[Need]") -> tuple[Values, ...]:
    """Return the parts of inputs that a run would not read, according to the blackboard's present content."""
    from feed_assets.runs.sync import sync_needs

    return tuple(
        Values.of(input=f"{reading.partition.path}/{part.id}", reason=part.reason)
        for reading in sync_needs(services, needs)
        for part in reading.left_out
    )


def _ledger_facts(connection: "Connection", output: Partition) -> dict[str, object]:
    """Return further facts about a partition from the ledger, as fields of its verdict."""
    from feed_assets.ledger import due, inbox, late_decisions, quality, runs
    from feed_assets.runs.services import is_dead

    last = runs.last(connection, output)
    died = {"state": DIED} if last and last.state == runs.RUNNING and is_dead(last.process) else {}
    requested = [each for each in due.listed(connection, output.feed) if each.partition == output and each.requested]
    return {
        "issue": quality.failed(connection, [output]).get(output),
        "came_back": tuple(map(CameBackView.model_validate, inbox.came_back(connection, output))),
        "late": LateView.each(late_decisions.decisions(connection, LATE, output.feed, output.key)),
        "last_run": LastRunView.model_validate(last).model_copy(update=died) if last else None,
        **({"requested": requested[0].requested, "next_request": requested[0].look_at} if requested else {}),
    }
