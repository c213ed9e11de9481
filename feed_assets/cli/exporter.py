"""`feed-assets metrics`: figures of this installation in Prometheus' text format, printed once or served."""

from importlib.util import find_spec
from typing import Annotated

import typer

from feed_assets.cli.terminal import echo
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import InvalidSetting


def metrics(
    port: Annotated[
        int | None,
        typer.Option(help="Serve /metrics at this port until Ctrl-C, instead of printing it once; 0: a free one."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = LOOPBACK,
) -> None:
    """Print the figures of ledger, daemon, connector and loaders for Prometheus, or serve them. Nothing is made."""
    if find_spec("prometheus_client") is None:
        raise InvalidSetting("metrics need one more package: `pip install 'feed-assets[receiver]'`.")
    from feed_assets.cli.metrics_server import serve, text_of_metrics

    if port is None:
        echo(text_of_metrics(), nl=False)
    else:
        serve(host, port)
