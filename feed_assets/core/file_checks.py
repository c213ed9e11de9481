"""Checks of files before they are opened: a reader must not silently skip a file or read no rows."""

from collections.abc import Iterable
from typing import Literal

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import PACKED, File, Update

Format = Literal["csv", "json", "parquet"]

_ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}


def check_readable(update: Update, form: Format) -> None:
    """Raise UnreadableUpdate for a file that Spark would skip, or for an empty file that this format does not allow."""
    _check_names(update)
    _check_sizes(update.files, form)


def format_of(key: str) -> Format | None:
    """Return the format that a file's name shows, packed or not. Return None if the name shows no format."""
    name = key.rpartition("/")[2].lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    return next((form for ending, form in _ENDINGS.items() if name.endswith(ending)), None)


def formats_of(files: Iterable[File]) -> list[Format]:
    """Return the distinct formats that the names of files show."""
    formats: dict[Format, None] = {form: None for file in files if (form := format_of(file.key))}
    return [*formats]


def _check_names(update: Update) -> None:
    for file in update.files:
        name = file.key.removeprefix(f"{update.path}/")
        if any(segment.startswith(("_", ".")) for segment in name.split("/")):
            raise UnreadableUpdate(
                f"{file.key} would be read as no rows: Spark skips names that begin with '_' or '.'. "
                "Have the producer rename its files."
            )


def _check_sizes(files: Iterable[File], form: Format) -> None:
    for file in files:
        if file.size == 0 and (form != "json" or file.key.endswith(PACKED)):
            raise UnreadableUpdate(
                f"{file.key} is empty (0 bytes), which is not a valid {form} file: its writer was interrupted. "
                "Invalidate the update, and have it published again."
            )
