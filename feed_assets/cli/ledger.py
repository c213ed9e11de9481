"""`feed-assets ledger`: the global state store."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.location import DEFAULT_MODULE, Module, load, open_instance

if TYPE_CHECKING:
    from feed_assets.core.feeds import Partition
    from feed_assets.runs.rebuild import Assumed, Rebuilt

app = typer.Typer(help="The global state store.", no_args_is_help=True)

Trust = Annotated[
    bool, typer.Option("--trust", help="Take the newest inputs older than an update as what it was built from.")
]
Read = Annotated[bool, typer.Option("--read", help="Read the newest updates with Spark: records and data versions.")]


@app.command("rebuild")
def rebuild(module: Module = DEFAULT_MODULE, trust: Trust = False, read: Read = False, as_json: AsJson = False) -> None:
    """Put back into the ledger what the blackboard tells of our own feeds, after the ledger was lost.

    What the ledger knows is not changed. What cannot be known is printed; stop the daemon while this runs.
    """
    from feed_assets.runs.rebuild import NOT_KNOWN

    rebuilt = _rebuild(module, trust, read)
    if as_json:
        typer.echo(json.dumps(_values(rebuilt), indent=2))
        return
    for what, lines in _lines(rebuilt).items():
        for line in lines:
            typer.echo(f"{what} {line}")
    typer.echo(f"{len(rebuilt.added)} updates added. Nobody can know:")
    for line in NOT_KNOWN:
        typer.echo(f"  {line}")


def _rebuild(module: str, trust: bool, read: bool) -> "Rebuilt":
    import dagster as dg

    from feed_assets.orchestration.graph import Graph
    from feed_assets.orchestration.rebuild import rebuild_ledger
    from feed_assets.runs.workbench import Workbench
    from feed_assets.settings import settings

    graph = Graph(load(module).resolve_asset_graph())
    with open_instance() as instance, dg.partition_loading_context(dynamic_partitions_store=instance) as loading:
        bench = Workbench.of(settings())
        return rebuild_ledger(graph, bench, loading.effective_dt, rows=read, trust=trust)


def _lines(rebuilt: "Rebuilt") -> dict[str, list[str]]:
    return {
        "added": [f"{seen.update.partition} {seen.update.id}" for seen in rebuilt.added],
        "assumed": [f"{each.partition} {each.update_id}: built from {_inputs(each)}" for each in rebuilt.assumed],
        "built from unknown inputs:": [_line(each) for each in rebuilt.unknown],
        "not read": [_line(each) for each in rebuilt.unread],
        "not valid": [_line(each) for each in rebuilt.invalid],
    }


def _line(each: "tuple[Partition, str, str]") -> str:
    partition, update_id, why = each
    return f"{partition} {update_id}: {why}"


def _inputs(assumed: "Assumed") -> str:
    return ", ".join(f"{pin.partition} {pin.update_id}" for pin in assumed.pins)


def _values(rebuilt: "Rebuilt") -> dict[str, Any]:
    from feed_assets.runs.rebuild import NOT_KNOWN

    added = [
        {**_names(seen.update.partition, seen.update.id), "records": seen.records, "version": seen.version}
        for seen in rebuilt.added
    ]
    assumed = [
        {
            **_names(each.partition, each.update_id),
            "reads": [{"input": pin.partition.path, "update_id": pin.update_id} for pin in each.pins],
        }
        for each in rebuilt.assumed
    ]
    found = {"unknown": rebuilt.unknown, "unread": rebuilt.unread, "invalid": rebuilt.invalid}
    rest = {what: [{**_names(at, id_), "why": why} for at, id_, why in each] for what, each in found.items()}
    return {"added": added, "assumed": assumed, **rest, "not_known": [*NOT_KNOWN]}


def _names(partition: "Partition", update_id: str) -> dict[str, str]:
    return {"feed": str(partition.feed), "partition": partition.key, "update_id": update_id}
