"""`feed-assets reconcile`: finish what has a manifest, sweep what has none, and say so."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.location import DEFAULT_MODULE, Module, load, open_instance

if TYPE_CHECKING:
    from feed_assets.runs.litter import Done

Unknown = Annotated[
    bool, typer.Option("--unknown", help="Also sweep parts without a manifest that the ledger does not know.")
]


def reconcile(module: Module = DEFAULT_MODULE, unknown: Unknown = False, as_json: AsJson = False) -> None:
    """Finish what killed runs left with a manifest, and sweep litter older than 24 hours: as the sensors do, all of it.

    Only the feeds of this code location's datasets are touched. It may run beside the daemon.
    """
    done, claims = _reconcile(module, unknown)
    if as_json:
        typer.echo(json.dumps({"done": [_values(each) for each in done], "claims": claims}, indent=2))
        return
    for each in done:
        typer.echo(str(each))
    typer.echo(f"{claims} old claims removed" if claims or done else "nothing to finish, nothing to sweep")


def _reconcile(module: str, unknown: bool) -> "tuple[list[Done], int]":
    """Unclaimed parts before claims: the claim of what `--unknown` sweeps goes in the same call."""
    from feed_assets.orchestration.graph import Graph
    from feed_assets.orchestration.left_runs import settle_left
    from feed_assets.runs.litter import settled, sweep, sweep_unclaimed
    from feed_assets.runs.workbench import Workbench
    from feed_assets.settings import settings

    feeds = Graph(load(module).resolve_asset_graph()).own()
    with open_instance() as instance:
        bench = Workbench.of(settings())
        done = [*settled(settle_left(instance, bench))]
    done += sweep_unclaimed(bench, feeds, unknown=unknown)
    swept = sweep(bench, feeds)
    return [*done, *swept.done], swept.claims


def _values(done: "Done") -> dict[str, str]:
    return {
        "what": done.what,
        "feed": str(done.partition.feed),
        "partition": done.partition.key,
        "update_id": done.update_id,
        "why": done.why,
    }
