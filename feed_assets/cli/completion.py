"""Shell completion: the script for the shell, and the answers to the shell's requests.

Other commands do not load Typer's code for this.
"""

import os
from typing import Annotated, Literal

import typer

VARIABLE = "_FEED_ASSETS_COMPLETE"
"""The environment variable in which the shell passes its request to Typer."""


def completion(
    shell: Annotated[Literal["bash", "fish", "zsh"], typer.Argument(metavar="SHELL", help="bash, fish or zsh.")],
) -> None:
    """Print a script that lets your shell complete commands and options: `eval "$(feed-assets completion bash)"`."""
    from typer.completion import get_completion_script  # pyright: ignore[reportPrivateImportUsage]

    typer.echo(get_completion_script(prog_name="feed-assets", complete_var=VARIABLE, shell=shell))


def prepare() -> None:
    """Load Typer's completion if the shell requests it."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]

        completion_init()
