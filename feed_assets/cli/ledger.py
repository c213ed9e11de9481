"""`feed-assets ledger`: the global state store."""

from typing import Annotated

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.loaded_location import Module, ledger_of_settings, load_graph, open_instance, open_services
from feed_assets.cli.show import Values, show
from feed_assets.cli.terminal import echo
from feed_assets.cli.views import PrunedLedgerView, RebuiltView

app = typer.Typer(help="The ledger, the global state store.", no_args_is_help=True)

Trust = Annotated[
    bool, typer.Option("--trust", help="Assume that each update was built from the newest inputs older than it.")
]
Read = Annotated[
    bool, typer.Option("--read", help="Read the newest updates with Spark, to restore record counts and data versions.")
]


@app.command("upgrade")
def upgrade(as_json: AsJson = False) -> None:
    """Make the ledger's tables, or bring them up to date, and print their version.

    Every other command does this, too, unless its database role lacks the right. Then the database's owner has to run
    this command.
    """
    from feed_assets.ledger.database import schema_of
    from feed_assets.settings import settings

    ledger_of_settings()
    schema = schema_of(settings().ledger)[0]
    if as_json:
        show(Values.of(schema=schema), as_json)
    else:
        echo(f"the ledger has schema {schema}")


@app.command("prune")
def prune(
    apply: Annotated[bool, typer.Option("--apply", help="Remove them. Without --apply nothing is removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old changes, events, rejects and reports that nothing needs, or print how many would be removed.

    FEED_ASSETS_LOG_DAYS defines what is old, and FEED_ASSETS_STATE_REPORT_DAYS for reports. The sensor `orphans` does
    the same once a day. Rows stay if a subscriber has not read them, a propagation needs them or `events stats` uses
    them.
    """
    from datetime import UTC, datetime

    from feed_assets.ledger.old_rows import prune_log
    from feed_assets.settings import settings

    ledger, now = ledger_of_settings(makes=False), datetime.now(UTC)
    pruned = prune_log(ledger, now, settings().log_days, settings().state_report_days, apply=apply)
    held = f"; changes stay for a subscriber: {pruned.held_by}" if pruned.held_by else ""
    done = f"{pruned.total} rows removed" if apply else f"{pruned.total} rows would be removed: add --apply"
    show(PrunedLedgerView.model_validate(pruned), as_json, f"{done}{held}")


@app.command("rebuild")
def rebuild(module: Module = None, trust: Trust = False, read: Read = False, as_json: AsJson = False) -> None:
    """Restore a lost ledger from our own feeds on the blackboard.

    Rows that the ledger still has do not change. What cannot be restored is printed. Stop the daemon while this runs.
    """
    import dagster as dg

    from feed_assets.orchestration.rebuild_location import rebuild_ledger
    from feed_assets.runs.rebuild import NOT_KNOWN

    graph = load_graph(module)
    with open_instance() as instance, dg.partition_loading_context(dynamic_partitions_store=instance) as loading:
        rebuilt = rebuild_ledger(graph, open_services(graph), loading.effective_dt, rows=read, trust=trust)
    show(RebuiltView.model_validate(rebuilt).model_copy(update={"not_known": NOT_KNOWN}), as_json)
