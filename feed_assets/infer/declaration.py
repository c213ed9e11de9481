"""Python declarations of feeds, inferred from sample files."""

import keyword
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.schemas import check_schema
from feed_assets.infer.paths import PathPartitions, feed_name, name_with_two_dates, partitions_of
from feed_assets.infer.python_text import comment, literal
from feed_assets.infer.sample_facts import Sample
from feed_assets.infer.sample_files import sample_of

LINE = 88
"""Maximum number of characters of a line of code."""

UNNAMED = "feed"
"""Name of the feed if the paths contain no name."""

RESERVED = {"checks", "dg", "feed_asset", "foreign_feed", "partition", "previous", "run_spec"}
"""Names that a module of declarations uses already, and function parameters that are not inputs."""


@dataclass(frozen=True)
class Inferred:
    """A feed inferred from sample files."""

    feed: Feed
    is_named: bool
    files: tuple[Path, ...]
    sample: Sample
    partitions: PathPartitions | None

    @property
    def name(self) -> str:
        """Return the name of the Python variable for the feed."""
        last = self.feed.name.rpartition("/")[2]
        is_free = last.isidentifier() and not keyword.iskeyword(last) and last not in RESERVED
        return last if is_free else f"feed_{last}" if f"feed_{last}".isidentifier() else "feed"

    @property
    def keys(self) -> list[str]:
        """Return the partition path of each file."""
        return self.partitions.keys if self.partitions else [""] * len(self.files)

    @property
    def imports(self) -> str:
        """Return the imports of the declaration."""
        return ("import dagster as dg\n" if self.partitions else "") + "from feed_assets import foreign_feed\n"

    @property
    def code(self) -> str:
        """Return the declaration in Python, without its imports."""
        unnamed = [] if self.is_named else [comment("The paths do not name the feed: give it a name.", indent=4)]
        lines = [*unnamed, f"    {literal(str(self.feed))},", *self._partitions()]
        lines += [f'    format="{self.sample.format}",'] if self.sample.format != "csv" else []
        lines += [f"    {name}={literal(value)}," for name, value in self.sample.dialect.non_defaults.items()]
        lines += self._schema()
        notes = [f"{comment(note)}\n" for note in self.sample.notes]
        body = "\n".join(lines)
        return f"{''.join(notes)}{self.name} = foreign_feed(\n{body}\n)\n"

    def _partitions(self) -> list[str]:
        if self.partitions is not None:
            return [
                comment(self._guess(self.partitions.every), indent=4),
                f"    partitions_def={self.partitions.code},",
            ]
        if name_with_two_dates(self.files):
            return [comment("A file's name has two dates: declare the partitions yourself.", indent=4)]
        note = comment("The paths have no date: the feed is one partition.", indent=4)
        return [note] if len(self.files) > 1 else []

    @staticmethod
    def _guess(every: str) -> str:
        if every != "hour":
            return "A guess from the paths."
        return "A guess from the paths: the number after the date is an hour. If the number counts files, declare days."

    def _schema(self) -> list[str]:
        line = f"    schema={literal(self.sample.schema)},"
        if len(line) > LINE or any(column.note for column in self.sample.columns):
            return ["    schema=(", *self._columns(), "    ),"]
        return [line]

    def _columns(self) -> list[str]:
        last = len(self.sample.columns) - 1
        lines: list[str] = []
        for number, column in enumerate(self.sample.columns):
            lines += [comment(f"{column.name}: {column.note}", indent=8)] if column.note else []
            lines.append(f"        {literal(column.ddl + (', ' if number < last else ''))}")
        return lines


def infer(files: Sequence[Path], *, above: str = "") -> Inferred:
    """Infer a feed from files. `above` is the first part of the feed's name.

    Raise InvalidName for unusable or differing files or partitions, and InvalidDefinition for columns without a valid
    schema.
    """
    sample = sample_of(files)
    name = feed_name(files)
    feed = Feed.parse("/".join(filter(None, (above, f"{name or UNNAMED}/v1.0"))))
    check_schema(feed, sample.schema, sample.format)
    inferred = Inferred(feed, name is not None, tuple(files), sample, partitions_of(files))
    for key in inferred.keys:
        Partition(feed, key)  # This raises InvalidName for an invalid key.
    return inferred
