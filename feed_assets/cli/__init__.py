"""The command line. Each command imports what it needs only when it runs, so that `--help` answers at once."""

import atexit
import gc
import os
import sys
from contextlib import nullcontext
from typing import Annotated

import typer

from feed_assets.cli import (
    connector,
    events,
    feed,
    kafka,
    late,
    ledger,
    receive,
    replicate_command,
    state,
    undelivered,
    upkeep,
    warehouse,
)
from feed_assets.cli.build import build
from feed_assets.cli.compact_command import compact
from feed_assets.cli.completion import completion, prepare
from feed_assets.cli.demo import demo
from feed_assets.cli.doctor import doctor
from feed_assets.cli.explain import explain
from feed_assets.cli.exporter import metrics
from feed_assets.cli.infer import infer
from feed_assets.cli.init import init
from feed_assets.cli.publish import publish
from feed_assets.cli.ready_check import ready
from feed_assets.cli.reconcile import reconcile
from feed_assets.cli.retire import retire
from feed_assets.cli.run import run
from feed_assets.cli.show import json_alone
from feed_assets.cli.status import status
from feed_assets.cli.traces import Verbose, errors_in_a_line
from feed_assets.cli.ui import ui
from feed_assets.cli.uses import uses
from feed_assets.cli.web_server import web

__all__ = ["app", "collect_rarely", "errors_in_a_line", "main"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,  # Otherwise its options would be in every `--help`. Use the command `completion`.
    rich_markup_mode=None,  # rich alone would take half of the time of `--help`
    context_settings={"max_content_width": 120},
)
for command in (infer, publish, upkeep.prune, compact, upkeep.revalidate, retire, uses):
    feed.app.command()(command)
app.add_typer(connector.app, name="connector")
app.add_typer(events.app, name="events")
app.add_typer(feed.app, name="feed")
app.add_typer(kafka.app, name="kafka")
app.add_typer(late.app, name="late")
app.add_typer(ledger.app, name="ledger")
app.add_typer(receive.app, name="receive")
app.add_typer(replicate_command.app, name="replicate")
app.add_typer(state.app, name="state")
app.add_typer(undelivered.app, name="subscriptions")
app.add_typer(warehouse.app, name="warehouse")
for command in (build, completion, demo, doctor, explain, init, metrics, ready, reconcile, run, status, ui, web):
    app.command()(command)


def _say_version(value: bool) -> None:
    if value:
        import feed_assets

        typer.echo(f"feed-assets {feed_assets.__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def every(version: Version = False, verbose: Verbose = False) -> None:
    """Partitioned assets over File Feeds."""


def _end_quickly() -> None:
    """Skip Python's garbage collection at exit.

    Its scan of all loaded objects takes a third of a short command's time. Also close stderr. Otherwise DuckDB would
    print there which objects it has not freed yet.
    """
    gc.freeze()
    if "duckdb" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def collect_rarely() -> None:
    """Let Python's garbage collector run rarely.

    It scans all of Dagster, which takes a seventh of the CPU time of `run`.
    """
    gc.set_threshold(50_000, 20, 20)


def main() -> None:
    """Run a command."""
    collect_rarely()
    atexit.register(_end_quickly)
    prepare()
    with errors_in_a_line(), json_alone() if "--json" in sys.argv else nullcontext():
        app()
