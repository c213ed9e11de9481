"""Sources that a test gives to a Harness. Other external sources are refused before the first tick."""

import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import dagster as dg

from feed_assets.core.errors import SourceNotGiven
from feed_assets.core.pulls import Pull
from feed_assets.core.secrets import masked
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.orchestration.declare.by_events import LineageFile, LineageTable
from feed_assets.orchestration.declare.declarations import (
    Dataset,
    Declaration,
    EventTable,
    Foreign,
    declaration_of,
    declarations_of,
    metadata_of,
    specs_of,
)
from feed_assets.settings import PREFIX, settings
from feed_assets.sources.declared import EventFiles, EventSource, EventTopic, LoadedTables, SqlTable
from feed_assets.sources.event_rows import Columns
from feed_assets.testing.environment import is_of_the_test
from feed_assets.testing.selection import with_specs

Rows = Sequence[Mapping[str, Any]]
Source = Rows | Path | str | EventSource | LineageTable | LineageFile
"""A source that a test gives: rows, the path of a file or folder, a URL, or another declaration."""

_NO_ROWS = (Path, str, EventSource, LineageTable, LineageFile)

FOLDER = "given_to_the_harness"
"""The folder on the test's blackboard that holds given rows and files."""

BOARDS = f"{PREFIX}BLACKBOARDS"


@contextmanager
def given_boards(sources: Mapping[str, Source], declared: Sequence[Declaration]) -> Generator[None]:
    """Add the test's named blackboards to the settings, until the block ends. Those of our datasets are ours.

    An event source may have the same name as a blackboard. Then a path or URL replaces the blackboard too, and rows or
    a declaration replace only the event source.
    """
    events = {each.source.name for each in declared if isinstance(each, EventTable)}
    named = {name for each in declared for name in _boards_of(each)} & sources.keys()
    names = {name for name in named if name not in events or isinstance(sources[name], Path | str)}
    own = {each.blackboard for each in declared if isinstance(each, Dataset)}
    places = {name: {"url": _url_of(name, sources[name]), "writable": name in own} for name in sorted(names)}
    if not places:
        yield
        return
    before = os.environ.get(BOARDS)
    _set(BOARDS, json.dumps(json.loads(before or "{}") | places))
    try:
        yield
    finally:
        _set(BOARDS, before)


def _set(variable: str, value: str | None) -> None:
    os.environ.pop(variable, None)
    os.environ.update({variable: value} if value else {})
    settings.cache_clear()


def refuse_what_is_not_given(sources: Mapping[str, Source], declared: Sequence[Declaration]) -> None:
    """Raise SourceNotGiven if an external source is not given, or a given source is not declared."""
    __tracebackhide__ = True
    names = sorted({name for each in declared for name in _names_of(each)})
    for name, source in sources.items():
        if of_others := [url for url in _urls_of(source) if _is_variable_of_others(url)]:
            raise SourceNotGiven(
                f"sources gives {name!r} as {of_others[0]}, a variable that the test has not set: expected the URL of "
                "a database of the test. Give this URL, or set the variable within `with fresh_home(…):`."
            )
    for name in sources.keys() - {*names}:
        near = get_close_matches(name, names, 1) or [", ".join(names) or "none"]
        raise SourceNotGiven(f"sources has {name!r}: expected a source of these definitions, {near[0]}.")
    missing = {name: where for each in declared for name, where in _reached(each) if name not in sources}
    if missing:
        listed = ", ".join(f"{name} ({missing[name]})" for name in sorted(missing))
        example = "folder" if BOARDS in missing[min(missing)] else "rows"
        raise SourceNotGiven(
            f"a Harness reads only what the test gives, and not {listed}. Give rows, a path or a URL, as in "
            f"`Harness(definitions, sources={{{min(missing)!r}: {example}}})`, or leave out what reads it by "
            "`selection=`."
        )


def with_sources(definitions: dg.Definitions, sources: Mapping[str, Source], board: Blackboard) -> dg.Definitions:
    """Return definitions that read the given sources. Put given rows and files on the blackboard."""
    declared = declarations_of(definitions)
    tables = {each.source.name: each.source for each in declared if isinstance(each, EventTable)}
    events = {name: _event_source(tables[name], sources[name], board) for name in tables.keys() & sources.keys()}
    lineages = {
        str(each.feed): lineage for each in declared if isinstance(each, Dataset) and (lineage := _lineage_of(each))
    }
    pipelines = {
        name: _lineage(lineages[name], name, sources[name], board) for name in lineages.keys() & sources.keys()
    }
    return with_specs(definitions, partial(_with_sources, events=events, pipelines=pipelines))


def _with_sources(
    spec: dg.AssetSpec, events: Mapping[str, EventSource], pipelines: Mapping[str, LineageTable | LineageFile]
) -> dg.AssetSpec:
    declared = declaration_of(spec)
    replaced = declared
    if isinstance(declared, EventTable) and events.get(declared.source.name, declared.source) != declared.source:
        # The test gives the events, so there is no broker or warehouse to watch.
        replaced = replace(declared, source=events[declared.source.name], topic=None, lag=None, loaded=None)
    elif isinstance(declared, Dataset) and declared.by_events and str(declared.feed) in pipelines:
        replaced = replace(declared, by_events=replace(declared.by_events, pipelines=pipelines[str(declared.feed)]))
    return spec if replaced is None or replaced is declared else spec.merge_attributes(metadata=metadata_of(replaced))


def given_rows(sources: Mapping[str, Source], declared: Iterable[Declaration]) -> dict[str, Rows]:
    """Return the event sources for which the test gives rows, with these rows."""
    names = {each.source.name for each in declared if isinstance(each, EventTable)} & sources.keys()
    given_sources = {name: sources[name] for name in sorted(names)}
    return {name: rows for name, rows in given_sources.items() if not isinstance(rows, _NO_ROWS)}


def columns_of(source: EventSource) -> Columns:
    """Return the columns that an event source declares: those of its first part that can declare columns."""
    return next(
        (part.columns for part in source.parts if isinstance(part, SqlTable | EventFiles | EventTopic)), Columns()
    )


def source_named(definitions: dg.Definitions, name: str) -> EventSource:
    """Return the event source with this name. Raise SourceNotGiven if there is none."""
    tables = [each for each in declarations_of(definitions) if isinstance(each, EventTable)]
    for table in tables:
        if table.source.name == name:
            return table.source
    names = ", ".join(sorted({table.source.name for table in tables})) or "none"
    raise SourceNotGiven(f"there is no event source {name!r}: expected one of these definitions, {names}.")


def put_rows(board: Blackboard, name: str, rows: Rows, columns: Columns, number: int | None = None) -> str:
    """Write rows of an event source to the blackboard as one file, and return its folder.

    The file's name is `number`. Without one, the file follows all existing files of the source.
    """
    needed = [each for each in (columns.table_name, columns.marker, columns.correlation_id) if isinstance(each, str)]
    for row in rows:
        if missing := [column for column in needed if column not in row]:
            raise SourceNotGiven(f"a row of {name} is {dict(row)}: expected {', '.join(missing)}, too.")
    folder = f"{FOLDER}/{name}"
    number = len(board.files_from(folder, "")) if number is None else number
    board.put(f"{folder}/{number:06d}.jsonl", _lines(rows))
    return folder


def dynamic_partitions(definitions: dg.Definitions, name: str, rows: Rows) -> dict[str, list[str]]:
    """Return the partition keys in an event source's rows, by the name of their dynamic partitions."""
    column = columns_of(source_named(definitions, name)).partition_key or ""
    keys = sorted({str(row[column]) for row in rows if row.get(column)})
    specs = [spec for spec in specs_of(definitions) if _source_of(spec) == name]
    parts = [each.partitions_def for each in specs if isinstance(each.partitions_def, dg.DynamicPartitionsDefinition)]
    return {each.name: keys for each in parts if each.name and keys}


def _source_of(spec: dg.AssetSpec) -> str | None:
    declared = declaration_of(spec)
    return declared.source.name if isinstance(declared, EventTable) else None


def _lines(rows: Rows) -> bytes:
    return "".join(f"{json.dumps(dict(row), default=_as_text)}\n" for row in rows).encode()


def _as_text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _is_variable_of_others(url: str) -> bool:
    return url.startswith("env:") and not is_of_the_test(url.removeprefix("env:"))


def _urls_of(source: Source) -> Iterator[str]:
    """Yield the URLs of a given source."""
    if isinstance(source, EventSource):
        yield from (part.url for part in source.parts if isinstance(part, SqlTable))
    elif isinstance(source, str | LineageTable):
        yield source if isinstance(source, str) else source.url


def _names_of(declared: Declaration) -> Iterator[str]:
    """Yield the names under which a test may give the sources of a declaration."""
    yield from _boards_of(declared)
    if isinstance(declared, EventTable):
        yield declared.source.name
    if isinstance(declared, Dataset) and _lineage_of(declared):
        yield str(declared.feed)


def _reached(declared: Declaration) -> Iterator[tuple[str, str]]:
    """Yield the name and location of each source of a declaration that the test has not replaced by its own."""
    boards = settings().blackboards.get_secret_value()
    yield from ((name, f"a blackboard of {BOARDS}") for name in _boards_of(declared) if name not in boards)
    if isinstance(declared, EventTable):
        for place in filter(None, map(_place_of, declared.source.parts)):
            yield declared.source.name, place
    lineage = _lineage_of(declared) if isinstance(declared, Dataset) else None
    if isinstance(lineage, LineageTable) and (place := _sql(lineage)):
        yield str(declared.feed), f"its pipelines, {place}"


def _lineage_of(declared: Dataset) -> LineageTable | LineageFile | None:
    pipelines = declared.by_events.pipelines if declared.by_events else None
    return pipelines if isinstance(pipelines, LineageTable | LineageFile) else None


def _boards_of(declared: Declaration) -> Iterator[str]:
    """Yield the names of the blackboards that a declaration reads or writes, other than the default one."""
    named: list[str | None] = []
    if isinstance(declared, Foreign):
        named = [declared.blackboard, declared.intake.blackboard if isinstance(declared.intake, Pull) else None]
    elif isinstance(declared, EventTable):
        named = [part.blackboard for part in declared.source.parts if isinstance(part, EventFiles)]
    elif isinstance(declared, Dataset):
        lineage = _lineage_of(declared)
        named = [declared.blackboard, lineage.blackboard if isinstance(lineage, LineageFile) else None]
    yield from filter(None, named)


def _place_of(part: object) -> str | None:
    """Return the real location that a part of an event source reads. Return None if the test provides the data."""
    if isinstance(part, SqlTable):
        return _sql(part)
    if isinstance(part, EventFiles):
        return None
    if isinstance(part, LoadedTables):
        is_set = part.warehouse in settings().warehouses.get_secret_value()
        return None if is_set else f"the warehouse {part.warehouse} of {PREFIX}WAREHOUSES"
    return None if settings().kafka.get_secret_value() else f"a Kafka topic of {PREFIX}KAFKA"


def _sql(table: SqlTable | LineageTable) -> str | None:
    if table.url.startswith("env:") and not _is_variable_of_others(table.url):
        return None
    return f"the SQL table {table.table} at {masked(table.url)}"


def _url_of(name: str, source: Source) -> str:
    if isinstance(source, Path):
        return source.absolute().as_uri()
    if isinstance(source, str):
        return source
    raise SourceNotGiven(f"{name} is a blackboard: expected its folder as a Path, or its URL.")


def _event_source(declared: EventSource, source: Source, board: Blackboard) -> EventSource:
    """Return the declared event source, changed so that it reads the source that the test gives."""
    if isinstance(source, EventSource):
        return source
    if isinstance(source, LineageTable | LineageFile):
        raise SourceNotGiven(f"{declared.name} is an event source: expected rows, a path, a URL or an EventSource.")
    if isinstance(source, str):
        parts = [replace(part, url=source) for part in declared.parts if isinstance(part, SqlTable)]
        if not parts:
            raise SourceNotGiven(f"{declared.name} does not read a SQL database: expected rows or a path, and no URL.")
        return replace(declared, parts=tuple(parts))
    columns = columns_of(declared)
    if isinstance(source, Path):
        part = _put_files(board, f"{FOLDER}/{declared.name}", source, columns)
    else:
        part = EventFiles(put_rows(board, declared.name, source, columns, number=0), "jsonl", columns)
    return replace(declared, parts=(part,))


def _put_files(board: Blackboard, folder: str, path: Path, columns: Columns) -> EventFiles:
    """Copy a file, or all files of a folder, to the blackboard. Return a declaration of events in these files."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    kinds = {file.suffix.removeprefix(".") for file in files}
    if not path.exists() or len(kinds) != 1 or not kinds <= {"csv", "jsonl", "parquet"}:
        raise SourceNotGiven(f"{path}: expected a file, or a folder of files, that end with .csv, .jsonl or .parquet.")
    for file in files:
        board.put(f"{folder}/{file.name}", file.read_bytes())
    return EventFiles(folder, cast(Literal["csv", "jsonl", "parquet"], kinds.pop()), columns)


def _lineage(
    declared: LineageTable | LineageFile, dataset: str, source: Source, board: Blackboard
) -> LineageTable | LineageFile:
    """Return the table or file from which a dataset reads its pipelines in the test."""
    if isinstance(source, LineageTable | LineageFile):
        return source
    if isinstance(source, str) and isinstance(declared, LineageTable):
        return replace(declared, url=source)
    if isinstance(source, str | EventSource):
        raise SourceNotGiven(f"{dataset} reads its pipelines from a file: expected rows, a path or a LineageFile.")
    lines = source.read_bytes() if isinstance(source, Path) else _lines(source)
    board.put(key := f"{FOLDER}/pipelines of {dataset.replace('/', '_')}.jsonl", lines)
    return LineageFile(key, declared.pipeline, declared.table_name)
