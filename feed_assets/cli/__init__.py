"""The command line. What a command needs is imported when it runs: `--help` answers at once."""

import sys

import typer

from feed_assets.cli import events, feed, ledger, retention
from feed_assets.cli.build import build
from feed_assets.cli.demo import demo
from feed_assets.cli.doctor import doctor
from feed_assets.cli.explain import explain
from feed_assets.cli.publish import publish
from feed_assets.cli.reconcile import reconcile
from feed_assets.cli.run import run
from feed_assets.cli.ui import ui
from feed_assets.core.errors import FeedAssetsError, ServiceUnavailable

app = typer.Typer(
    help="Partitioned assets over File Feeds.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,  # rich alone would take half of the time of `--help`
    context_settings={"max_content_width": 120},
)
for command in (publish, retention.prune, retention.revalidate):
    feed.app.command()(command)
app.add_typer(events.app, name="events")
app.add_typer(feed.app, name="feed")
app.add_typer(ledger.app, name="ledger")
for command in (build, demo, doctor, explain, reconcile, run, ui):
    app.command()(command)


def main() -> None:
    """Run a command; an error that we know is one line on stderr and exit code 1, or 4 if a service is not there."""
    try:
        app()
    except (FeedAssetsError, OSError) as error:
        typer.echo(f"feed-assets: {error}", err=True)
        sys.exit(4 if isinstance(error, ServiceUnavailable) else 1)
