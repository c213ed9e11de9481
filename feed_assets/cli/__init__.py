"""The command line. What a command needs is imported when it runs: `--help` answers at once."""

import atexit
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

import typer

from feed_assets.cli import connector, events, feed, kafka, late, ledger, receive, retention, state, warehouse
from feed_assets.cli.build import build
from feed_assets.cli.demo import demo
from feed_assets.cli.doctor import doctor
from feed_assets.cli.explain import explain
from feed_assets.cli.init import init
from feed_assets.cli.publish import publish
from feed_assets.cli.reconcile import reconcile
from feed_assets.cli.run import run
from feed_assets.cli.status import status
from feed_assets.cli.ui import ui
from feed_assets.core.errors import FeedAssetsError, ServiceUnavailable
from feed_assets.core.secrets import shown

app = typer.Typer(
    help="Partitioned assets over File Feeds.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # rich alone would take half of the time of `--help`
    context_settings={"max_content_width": 120},
)
for command in (publish, retention.prune, retention.compact, retention.revalidate):
    feed.app.command()(command)
app.add_typer(connector.app, name="connector")
app.add_typer(events.app, name="events")
app.add_typer(feed.app, name="feed")
app.add_typer(kafka.app, name="kafka")
app.add_typer(late.app, name="late")
app.add_typer(ledger.app, name="ledger")
app.add_typer(receive.app, name="receive")
app.add_typer(state.app, name="state")
app.add_typer(warehouse.app, name="warehouse")
for command in (build, demo, doctor, explain, init, reconcile, run, status, ui):
    app.command()(command)


_LIBRARIES = ("alembic", "pydantic", "pydantic_core", "sqlalchemy")
"""Whose errors are about data or a database, not about our code; by name, as most commands load none of them."""


def main() -> None:
    """Run a command."""
    atexit.register(gc.freeze)  # The last collection would go through all that was loaded: a third of a short command.
    with errors_in_a_line():
        app()


@contextmanager
def errors_in_a_line() -> Generator[None]:
    """End the process by an error that we know: one line on stderr and exit code 1, or 4 if a service is not there."""
    try:
        yield
    except Exception as error:
        if not _is_known(error):
            raise
        typer.echo(f"feed-assets: {_said(error)}", err=True)
        sys.exit(4 if isinstance(error, ServiceUnavailable) else 1)


def _is_known(error: Exception) -> bool:
    return isinstance(error, FeedAssetsError | OSError) or type(error).__module__.partition(".")[0] in _LIBRARIES


def _said(error: Exception) -> str:
    """An error in its own words, if it is ours or the system's; a library's has several lines, and maybe a secret."""
    if isinstance(error, FeedAssetsError | OSError):
        return str(error)
    return f"{type(error).__name__}: {shown(' '.join(str(error).split()))}"
