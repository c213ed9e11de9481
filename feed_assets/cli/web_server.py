"""`feed-assets web`: the web UI of an installation whose daemon and code servers are processes of their own."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from feed_assets.cli.processes import TOKEN, ProcessFailed, stop_once
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import InvalidSetting


def web(
    port: Annotated[int, typer.Option(help="Port of the web UI.")] = 3000,
    host: Annotated[
        str, typer.Option(help="Address to listen at. Browsers must call it 127.0.0.1, as through a tunnel.")
    ] = LOOPBACK,
) -> None:
    """Serve the web UI of the code servers in workspace.yaml until Ctrl-C. Callers need FEED_ASSETS_UI_TOKEN."""
    from feed_assets.cli.loaded_location import prepare
    from feed_assets.home import home

    token, file = token_of_settings(), Path("workspace.yaml")
    if not file.is_file():
        raise ProcessFailed(f"there is no {file.absolute()}: expected one that names the code servers. See deploy/.")
    stop_once()
    prepare(home())
    from feed_assets.cli.web import serve

    with suppress(KeyboardInterrupt), TemporaryDirectory(prefix="feed-assets-") as scratch:
        os.environ[TOKEN] = token
        serve(port, Path(scratch) / file, "", host)


def token_of_settings() -> str:
    """Return the token of the web UI. Raise InvalidSetting if the settings have none."""
    from feed_assets.settings import settings

    if (token := settings().ui_token) is None:
        raise InvalidSetting("FEED_ASSETS_UI_TOKEN is not set: expected a token, such as `openssl rand -hex 32`.")
    return token.get_secret_value()
