"""`feed-assets init`: a new project that works at once."""

import os
from pathlib import Path
from typing import Annotated

import typer

from feed_assets.cli.terminal import echo

ELSEWHERE = ("DAGSTER_HOME", "FEED_ASSETS_BLACKBOARD", "FEED_ASSETS_LEDGER")
"""Settings that make commands use something outside the project's folder."""

_NEXT = """\
made {name}: the feed {feed} with {sample}, the dataset {dataset} and its tests

  cd {name}
  feed-assets run --until-idle      build what is ready
  feed-assets ui                    the web UI, and a daemon that builds by itself
  pip install pytest && pytest      the tests\
"""


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new folder and Python package.")],
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Sample file of your own feed, instead of ours; more may follow, as in --from data/*/*.csv.",
        ),
    ] = None,
    more: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, readable=True, hidden=True),
    ] = None,
) -> None:
    """Make a project of your own in a new folder NAME: a foreign feed, a dataset with checks, and its tests.

    With --from, the feed has the declaration that `feed-assets feed infer` prints for your files. The files become its
    sample. Nothing is written into a folder that is not empty.
    """
    from feed_assets.cli.new_project import Content, make_project
    from feed_assets.infer.declaration import infer

    if more and not files:
        raise typer.BadParameter(f"{more[0]} comes after the name {name}: write --from before that file.")
    content = Content.of(infer([*files, *(more or ())], above=name)) if files else Content()
    make_project(name, Path.cwd(), content)
    echo(_NEXT.format(name=name, **content.named(name)))
    if variables := [variable for variable in ELSEWHERE if os.environ.get(variable)]:
        echo(_elsewhere(name, content.feed, variables), err=True)


def _elsewhere(name: str, feed: str, variables: list[str]) -> str:
    """Return a note for users whose settings point to other places, where commands would not find the sample."""
    are = f"{' and '.join(variables)} {'are' if len(variables) > 1 else 'is'} set"
    return (
        f"feed-assets: {are}, so commands do not use {name}/.feed_assets alone, where the sample is. Unset "
        f"{'them' if len(variables) > 1 else 'it'}, or publish the sample where they look, in the project's folder: "
        f"feed-assets feed publish {name}/{feed}/v1.0 --tree sample/{feed}"
    )
