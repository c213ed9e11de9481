"""Completion in a shell: the script that asks for it, and its answers. Nobody else pays for it."""

import os
from typing import Annotated, Literal

import typer

VARIABLE = "_FEED_ASSETS_COMPLETE"
"""Where the shell puts what it wants, as Typer reads it."""


def completion(
    shell: Annotated[Literal["bash", "fish", "zsh"], typer.Argument(metavar="SHELL", help="bash, fish or zsh.")],
) -> None:
    """Print the script by which a shell completes commands and options: `eval "$(feed-assets completion bash)"`."""
    from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

    typer.echo(get_completion_script(prog_name="feed-assets", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """Load what answers a shell, if one asks."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]

        completion_init()
