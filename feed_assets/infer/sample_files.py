"""Inference from sample files of one feed, in the format that their names show."""

import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feed_assets.core.errors import FeedAssetsError, InvalidName
from feed_assets.core.file_checks import Format
from feed_assets.core.message_words import sentence
from feed_assets.infer.columns import NO_VALUE, InferredColumn
from feed_assets.infer.csv_sample import csv_sample
from feed_assets.infer.json_sample import json_sample
from feed_assets.infer.sample_facts import Sample

_SUFFIXES: Mapping[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}


def sample_of(files: Sequence[Path]) -> Sample:
    """Infer the format and columns of sample files. Raise InvalidName for unusable files, or if they differ in form."""
    if empty := [file for file in files if not file.stat().st_size]:
        raise InvalidName(f"{empty[0]} is empty: expected a file with records. Leave it out.")
    formats = {_format_of(file) for file in files}
    if len(formats) > 1:
        raise InvalidName(
            f"the files are {' and '.join(sorted(formats))}: expected one format. Give the files of one feed."
        )
    import duckdb

    try:
        return {"csv": csv_sample, "json": json_sample, "parquet": _parquet}[formats.pop()](files)
    except FeedAssetsError:
        raise
    except (duckdb.Error, ValueError, OSError, EOFError, zlib.error) as error:  # pyarrow's errors are among these.
        raise InvalidName(
            f"{files[0]}: {sentence(str(error).splitlines()[0].strip())} Correct the file, or declare it by hand."
        ) from error


def _format_of(file: Path) -> Format:
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    form = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if form is None:
        raise InvalidName(
            f"{file}: its name does not show its format: expected a name that ends in {', '.join(_SUFFIXES)}, or in "
            "one of these and .gz. Rename a copy."
        )
    return form


def _parquet(files: Sequence[Path]) -> Sample:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]
    from pyspark.sql.pandas import types as spark_types

    from feed_assets.feeds.parquet_columns import columns_of

    read: Any = pq.read_metadata  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    footers = [read(file) for file in files]
    types = [columns_of(str(file), footer).types for file, footer in zip(files, footers, strict=True)]
    if differing := [file for file, each in zip(files, types, strict=True) if {*each} != {*types[0]}]:
        raise InvalidName(
            f"{differing[0]} has other columns than {files[0]}: expected equal columns. Give the files of one feed."
        )
    in_spark: Any = spark_types  # The stubs lack Arrow's types.
    fields = in_spark.from_arrow_schema(types[0], prefer_timestamp_ntz=True).fields
    empty = set[str].intersection(*map(_without_type, footers))
    kinds = {field.name: field.dataType.simpleString() for field in fields}
    return Sample(
        "parquet",
        tuple(
            InferredColumn(name, kind, NO_VALUE if name in empty else _map_note(kind)) for name, kind in kinds.items()
        ),
    )


def _without_type(footer: Any) -> set[str]:
    """Return the names of the columns without a type. Such columns contain only NULLs."""
    return {field.name for field in footer.schema.to_arrow_schema() if str(field.type) == "null"}


def _map_note(kind: str) -> str | None:
    """Return a note on how a dataset must handle a column with a map. Return None for other columns."""
    if not re.search(r"(?:^|[<,:])map<", kind):
        return None
    return "a dataset cannot return a map: write array_sort(map_entries(…)) in its place, or drop it"
