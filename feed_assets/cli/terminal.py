"""Lines for people. Control characters in foreign text never reach a terminal."""

import typer

from feed_assets.core.control_characters import printable


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, on stderr if `err`. Escape control characters, except line ends and tabs."""
    typer.echo(printable(text), err=err, nl=nl)
