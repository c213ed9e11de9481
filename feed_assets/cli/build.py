"""`feed-assets build`: build partitions by hand, also those that wait for a person."""

import getpass
import socket
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import AliasPath, Field

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, load, open_instance, open_services
from feed_assets.cli.progress import progress
from feed_assets.cli.run import STARTING_SPARK, quietly
from feed_assets.cli.run_output import RanView, Teller, UnfinishedView
from feed_assets.cli.show import Counted, View, show
from feed_assets.cli.stopping import stopping
from feed_assets.cli.traces import Verbose
from feed_assets.cli.verdicts import PinView
from feed_assets.cli.views import Text
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.history import Order

if TYPE_CHECKING:
    import dagster as dg

    from feed_assets.orchestration.by_hand import Chosen, Planned
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.runner import Runner
    from feed_assets.runs.services import Services

Given = Annotated[str | None, typer.Argument(metavar="[FEED]", help="A dataset: ads/shown/v1.0.")]
Keys = Annotated[
    list[str] | None, typer.Argument(metavar="[PARTITION]...", help="Partition keys, and ranges: FIRST...LAST.")
]
Failed = Annotated[
    bool, typer.Option("--failed", help="Partitions whose last run failed; without FEED, of all datasets.")
]
Refused = Annotated[bool, typer.Option("--refused", help="Partitions whose last audit failed.")]
Missing = Annotated[bool, typer.Option("--missing", help="Partitions that exist but have no valid update.")]
InOrder = Annotated[
    Order | None, typer.Option("--order", help="Which history is built first; by default FEED_ASSETS_HISTORY_ORDER.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, and build nothing.")]


class InputView(PinView):
    """An input's update that an output reads, with its data version and its size."""

    bytes: int = Field(validation_alias="size")


class PlannedView(View):
    """A partition of the plan: its state now, what it would be built from, and which partitions are built before it."""

    feed: Text = Field(validation_alias=AliasPath("output", "feed"))
    partition: str = Field(validation_alias=AliasPath("output", "key"))
    state: str = Field(validation_alias=AliasPath("verdict", "state"))
    bytes: int
    reads: Annotated[tuple[InputView, ...], Counted] = Field(validation_alias=AliasPath("verdict", "pins"))
    after: Annotated[tuple[Text, ...], Counted]
    reason: str = Field(validation_alias=AliasPath("verdict", "reason"))


def build(
    feed: Given = None,
    partitions: Keys = None,
    failed: Failed = False,
    refused: Refused = False,
    missing: Missing = False,
    order: InOrder = None,
    dry_run: DryRun = False,
    verbose: Verbose = False,  # noqa: ARG001 (only the option's callback uses it)
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Build partitions by hand, one after the other, inputs first.

    Each partition is built for the time in its own key, not for today. Partitions that wait for a person are built,
    too: those that failed too often, were refused, are paused, or have late data below the threshold. A partition is
    not built if its inputs are missing. New partitions are built before history. A daily limit may apply to history.
    Partitions beyond the limit are not built: repeat the command the next day (UTC). The exit code is 1 if a partition
    was not built.
    """
    import dagster as dg

    from feed_assets.orchestration import by_hand
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.orchestration.runner import Runner
    from feed_assets.orchestration.ticks.dead_runs import finish_left

    definitions = load(module)
    which = [each for each, is_set in zip(by_hand.Chosen, (failed, refused, missing), strict=True) if is_set]
    with open_instance() as instance, dg.partition_loading_context(dynamic_partitions_store=instance):
        graph = Graph(definitions.resolve_asset_graph())
        services = open_services(graph)
        if not dry_run:
            finish_left(instance, services)  # This frees what killed runs hold, such as compute resources.
        outputs = _outputs(graph, services, feed, partitions or [], which)
        chosen = by_hand.plan(graph, services, outputs, order)
        planned = by_hand.with_inputs(chosen) if which else chosen
        if dry_run:
            show(_views(graph, services, planned), as_json, _in_all(planned))
            return
        with stopping() as check, progress(STARTING_SPARK) as doing:
            teller = Teller(doing, check, as_json)
            runner = Runner(definitions, instance, teller.hear, on_step=quietly(doing))
            _build(runner, teller, graph, services, planned)


def _views(graph: "Graph", services: "Services", planned: "list[Planned]") -> tuple[PlannedView, ...]:
    """Return the plan. Its reasons name the compute target on which each run would start now."""
    from feed_assets.orchestration.decide.resource_requests import preview

    places = preview(graph, services.ledger, {each.output: each.bytes for each in planned}, services.now())
    views = zip(PlannedView.each(planned), planned, strict=True)
    return tuple(
        view.model_copy(update={"reason": f"{view.reason}; {place}"}) if (place := places.get(each.output)) else view
        for view, each in views
    )


def _outputs(
    graph: "Graph", services: "Services", feed: str | None, typed: list[str], which: "list[Chosen]"
) -> set[Partition]:
    from feed_assets.orchestration import by_hand
    from feed_assets.orchestration.decide.typed_keys import keys_of

    if feed is None and not which:
        raise InvalidName("nothing is named: expected a FEED, or --failed, --refused or --missing for all datasets.")
    nodes = [graph.dataset_of(Feed.parse(feed))] if feed else graph.datasets()
    if which and not typed:
        return by_hand.choose(graph, services, nodes, which)
    (node,) = nodes
    if which:
        raise InvalidName(f"{node.feed}: partitions are named, and --{which[0]} is given: expected one of the two.")
    if not typed and node.partitions_def is not None:
        raise InvalidName(f"{node.feed} has partitions: expected some of them, a range FIRST...LAST, or --missing.")
    outputs = {Partition(node.feed, key) for key in keys_of(node, typed, services.now())}
    by_hand.look(graph, services, outputs)
    return outputs


def _build(runner: "Runner", teller: Teller, graph: "Graph", services: "Services", planned: "list[Planned]") -> None:
    from feed_assets.orchestration import by_hand

    failed = 0

    def run(request: "dg.RunRequest") -> bool:
        nonlocal failed
        result = runner.execute(request)
        failed += not result.success
        return result.success

    runner.expect(len(planned))
    unbuilt = by_hand.build(graph, services, planned, f"{getpass.getuser()}@{socket.gethostname()}", run)
    for output, why in unbuilt.items():
        teller.say(f"LEFT    {output}: {why}")
    built_count = len(planned) - len(unbuilt) - failed
    teller.say(f"{built_count} of {len(planned)} partitions are built" if planned else "nothing to build")
    if teller.as_json:
        show(RanView(runs=tuple(teller.runs), left=UnfinishedView.of(unbuilt)), as_json=True)
    raise typer.Exit(1 if failed or unbuilt else 0)


def _in_all(planned: "list[Planned]") -> str:
    many = f"{len(planned)} partition{'s' * (len(planned) != 1)}"
    return f"{many} to build, {sum(each.bytes for each in planned):,} bytes to read"
