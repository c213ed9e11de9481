"""`feed-assets feed infer`: a feed's declaration, made from sample files."""

from pathlib import Path
from typing import Annotated

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.show import Values, show
from feed_assets.cli.terminal import echo

Samples = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", exists=True, dir_okay=False, readable=True, help="CSV, JSON lines or Parquet."),
]


def infer(files: Samples, as_json: AsJson = False) -> None:
    """Print the `foreign_feed` that fits the files of one feed: format, delimiter, columns and partitions.

    The command reads the first 32 MiB of CSV and JSON files, and the footers of Parquet files. Comments in the code
    name what a person must decide, and which records a run would reject.
    """
    from feed_assets.infer.declaration import infer as inferred_of

    inferred = inferred_of(files)
    declaration = f"{inferred.imports}\n{inferred.code}"
    if not as_json:
        return echo(declaration, nl=False)
    at = inferred.partitions.code if inferred.partitions else ""
    named = {"feed": str(inferred.feed), "format": inferred.sample.format, "schema": inferred.sample.schema}
    return show(Values.of(**named, partitions_def=at, declaration=declaration), as_json)
