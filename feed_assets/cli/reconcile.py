"""`feed-assets reconcile`: finish updates that have a manifest, sweep parts without one, and print them."""

from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, dynamic_partitions, load_graph, open_instance, open_services
from feed_assets.cli.show import Values, show
from feed_assets.cli.views import DoneView, GoneView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from feed_assets.core.feeds import Partition
    from feed_assets.runs.orphan_sweep import OrphanAction

Unknown = Annotated[
    bool, typer.Option("--unknown", help="Also sweep parts that have no manifest and are unknown to the ledger.")
]


def reconcile(module: Module = None, unknown: Unknown = False, as_json: AsJson = False) -> None:
    """Finish updates of killed runs that have a manifest, sweep orphans older than 24 hours, publish lost events.

    The newest update of every partition is checked. If somebody else has removed it, it is built again. Event sources
    are read again from the beginning, to find files that arrived late under an earlier name. Only feeds of this code
    location are touched. The command may run beside the daemon.
    """
    from feed_assets.runs.verify import verify_all

    done, claims = _reconcile(module, unknown)
    graph = load_graph(module)
    verified = verify_all(open_services(graph), graph.own(), graph.by_feed)
    announced, problems = _heal(module)
    events = tuple(Values.of(table=str(at.feed), partition=at.key, update_id=each) for at, each in announced)
    problems = (*_lines(verified.problems), *problems)
    gone = GoneView.each(verified.gone)
    view = Values.of(claims=claims, done=DoneView.each(done), gone=gone, events=events, problems=problems)
    show(view, as_json, "" if claims or done or announced or gone else "nothing to finish, nothing to sweep")


def _reconcile(module: str | None, unknown: bool) -> "tuple[list[OrphanAction], int]":
    """Finish dead runs, then sweep unclaimed parts, then old claims.

    In this order, no claim remains whose parts were swept.
    """
    from feed_assets.orchestration.ticks.dead_runs import finish_left
    from feed_assets.runs.orphan_sweep import sweep, sweep_unclaimed

    graph = load_graph(module)
    with open_instance() as instance:
        services = open_services()
        done = [done for finished in finish_left(instance, services) for done in finished.done]
    done += sweep_unclaimed(services, graph.own(), unknown=unknown)
    swept = sweep(services, graph.claiming())
    return [*done, *swept.done], swept.claims


def _heal(module: str | None) -> "tuple[list[tuple[Partition, str]], list[str]]":
    """Compare manifests with events and publish missing events. Read event sources again from the beginning."""
    from feed_assets.ledger import announce
    from feed_assets.orchestration.ticks.ingest import ingest, sources_of
    from feed_assets.orchestration.ticks.publishing import publish_events
    from feed_assets.runs.discover import discover_all

    graph = load_graph(module)
    services = open_services(graph)
    foreign = [node.feed for node in graph.foreign()]
    failed = discover_all(services, foreign, graph.appendable()).failed if foreign else {}
    with services.ledger.change() as connection:
        announced = [*announce.heal(connection, graph.by_feed.keys(), services.now())]
    problems = [f"{feed} could not be read: {error}" for feed, error in failed.items()]
    with dynamic_partitions(graph):
        read = [
            ingest(graph, services, each, services.now(), lambda: False, again=True)
            for each in sources_of(graph).values()
        ]
    problems += [line for outcome in read for line in (*_lines(outcome.problems), *_lines(outcome.waits))]
    with open_instance() as instance:
        failed_sinks = publish_events(services, graph, instance, lambda: False, now=services.now(), again=True)
        return announced, [*problems, *_lines(failed_sinks)]


def _lines(problems: "Mapping[str, str]") -> list[str]:
    return [f"{whom}: {problem}" for whom, problem in problems.items()]
