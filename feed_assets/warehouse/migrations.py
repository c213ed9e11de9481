"""Typed steps from a table's shape to the shape of a newer schema. No remaining column loses a value.

Columns only get wider: a column that a newer schema makes narrower, or not nullable, stays as it is. Renamed columns
are found by Avro's aliases. A column is dropped if the newer schema no longer has its field.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from feed_assets.core.errors import NotMigratable
from feed_assets.warehouse.record_changes import changed_record, with_kept
from feed_assets.warehouse.renames import sources_of
from feed_assets.warehouse.shapes import TEXT, Column, Kind, Shape, widens
from feed_assets.warehouse.variants import fits, kept_for_variants, loose, merged_variants, with_variants


@dataclass(frozen=True)
class AddColumn:
    """Step that adds a column. Existing rows get its default."""

    column: Column


@dataclass(frozen=True)
class DropColumn:
    """Step that drops a column."""

    name: str


@dataclass(frozen=True)
class RenameColumn:
    """Step that gives a column another name."""

    name: str
    new: str


@dataclass(frozen=True)
class WidenColumn:
    """Step that gives a column a wider kind, which can store all its values. `was` is the kind before the step."""

    name: str
    kind: Kind
    was: Kind


@dataclass(frozen=True)
class MakeNullable:
    """Step that allows NULL in a column."""

    name: str


@dataclass(frozen=True)
class SetDefault:
    """Step that sets a column's default, for rows without a value."""

    column: Column


@dataclass(frozen=True)
class SetComment:
    """Step that sets a column's comment."""

    name: str
    comment: str


_OF_MANY_TEXTS = frozenset({"uuid", "decimal"})
"""Kinds in which different texts may stand for the same value."""

ORDERED = frozenset({"integer", "bigint", "decimal", "date", "timestamp", "local_timestamp"})
"""Kinds of columns for `newest_by`: every warehouse compares their values alike, also after they were widened."""

Step = AddColumn | DropColumn | RenameColumn | WidenColumn | MakeNullable | SetDefault | SetComment


class Migration(NamedTuple):
    """Steps in order, and the table's shape after them."""

    steps: tuple[Step, ...]
    shape: Shape


def migrate(table: Shape, newer: Shape) -> Migration:
    """Return the steps from a table's shape to a newer schema's shape. Raise NotMigratable if there are none."""
    _check_key(table, newer)
    sources = sources_of(table, newer)
    kept = {each.name for each in sources.values()}
    new_names = {each.name: name for name, each in sources.items()}
    if table.newest_by and table.newest_by not in new_names:
        raise _refused(f"there is no field {table.newest_by}, by which newest_by orders the rows", table, newer)
    variants = merged_variants(table, newer, new_names)
    kept_names = {new_names.get(each, each) for each in table.kept} | {*newer.kept}
    stays = kept_for_variants(newer.model_copy(update={"variants": variants})) | kept_names
    if newer.is_history or newer.is_union:  # Old rows, or rows of another topic, keep their values.
        stays |= {each.name for each in table.columns} - {*newer.key}
    retained = {each.name: each for each in table.columns if each.name not in kept and each.name in stays}
    dropped = [DropColumn(each.name) for each in table.columns if each.name not in {*kept, *retained}]
    _check_records(table, newer, {each.name for each in dropped}, {each.name for each in newer.columns})
    columns = (
        *(
            _merged(sources[each.name], each, table, newer) if each.name in sources else _added(each)
            for each in newer.columns
        ),
        *retained.values(),
    )
    columns = tuple(loose(each) if each.name in stays else each for each in columns)
    renamed = [RenameColumn(each.name, name) for name, each in sources.items() if each.name != name]
    sources = {**sources, **retained}
    added = [AddColumn(each) for each in columns if each.name not in sources]
    changed = [step for each in columns if each.name in sources for step in _changes(sources[each.name], each)]
    names = {each.name for each in columns}
    gone = tuple(name for name in (*table.dropped, *(each.name for each in dropped)) if name not in names)
    order = new_names.get(table.newest_by, "")
    update = {"columns": columns, "dropped": gone, "variants": variants, "newest_by": order}
    shape = newer.model_copy(update={**update, **_flat(table, newer, kept_names)})
    _check_order(shape, table, newer)
    return Migration((*dropped, *renamed, *added, *changed), shape)


def loosened(table: Shape, older: Shape) -> Migration:
    """Return the steps after which a table can also store rows of an older schema without loss.

    The schema with the higher id counts as newer. But a registry may assign ids in another order, and chunks of both
    schemas may alternate. So columns become wider or nullable, and fields that the table never had are added.
    """
    sources = sources_of(older, table)
    variants = merged_variants(table, older, {})
    kept_names = {*table.kept, *older.kept}
    stays = kept_for_variants(table.model_copy(update={"variants": variants})) | kept_names
    gone = {each.name for each in table.columns} - sources.keys() - stays
    _check_records(table, older, gone, {each.name for each in older.columns} - {*table.dropped})
    columns = [_loosened(each, sources.get(each.name), table) for each in table.columns]
    columns = [loose(each) if each.name in stays else each for each in columns]
    existing_names = {each.name for each in sources.values()} | {*table.dropped}
    added = [_added(each) for each in older.columns if each.name not in existing_names]
    added = [loose(each) if each.name in stays else each for each in added]
    changed = [step for old, new in zip(table.columns, columns, strict=True) for step in _changes(old, new)]
    steps = (*map(AddColumn, added), *changed)
    update = {"columns": (*columns, *added), "variants": variants, **_flat(table, older, kept_names)}
    shape = table.model_copy(update=update)
    _check_order(shape, table, older)
    return Migration(steps, shape)


def projected(table: Shape, other: Shape, is_newer: bool) -> Shape:
    """Return a schema's shape with variants for the fields that the table's columns cannot store."""
    names, fields_of_other = {each.name for each in table.columns}, {each.name for each in other.columns}
    if is_newer:
        sources = sources_of(table, other)
        other = with_kept(table, other, names - {each.name for each in sources.values()}, fields_of_other)
        return with_variants(table, other, sources, fits)
    older_sources = sources_of(other, table)
    other = with_kept(table, other, names - older_sources.keys(), fields_of_other - {*table.dropped})
    fields = {source.name: name for name, source in older_sources.items()}
    columns = {each.name: each for each in table.columns}
    is_stored = partial(_fits_older, becomes_text=_may_become_text(table))
    return with_variants(table, other, {field: columns[name] for field, name in fields.items()}, is_stored)


def _fits_older(kind: Kind, column: Kind, *, becomes_text: bool) -> bool:
    """Return whether a column can store an older schema's values.

    It becomes a text for these only in a union: there the ids do not say which topic's schema is older.
    """
    return widens(kind, column) or ((becomes_text or kind != TEXT) and widens(column, kind))


def _loosened(column: Column, source: Column | None, table: Shape) -> Column:
    if column.name in table.key:
        return column
    if source is None:
        return column.model_copy(update={"is_nullable": column.is_nullable or column.default is None})
    may_widen = source.kind != TEXT or _may_become_text(table)
    is_wider = may_widen and not widens(source.kind, column.kind) and widens(column.kind, source.kind)
    kind = source.kind if is_wider else column.kind
    return column.model_copy(update={"kind": kind, "is_nullable": column.is_nullable or source.is_nullable})


def _may_become_text(table: Shape) -> bool:
    """Return whether columns become texts for schemas with a lower id: in a union, unless such texts have variants."""
    return table.is_union and not table.variants


def places(table: Shape, older: Shape) -> dict[str, str]:
    """Return the table's column for each column in files of an older schema. Columns that were dropped are left out.

    Raise NotMigratable if the table cannot store a column's values.
    """
    _check_key(table, older)
    column_by_field = {source.name: name for name, source in sources_of(older, table).items()}
    kinds = {each.name: each.kind for each in table.columns}
    for each in older.columns:
        if each.name in column_by_field and not widens(each.kind, kinds[column_by_field[each.name]]):
            raise _refused(
                f"{each.name} is {each.kind}, which {kinds[column_by_field[each.name]]} cannot store", table, older
            )
    return column_by_field


def grown(table: Shape, other: Shape) -> Shape:
    """Return a table's shape in which texts are at least as long as in the shape of another schema."""
    lengths = [(name, source.kind.length) for name, source in sources_of(other, table).items()]
    length_by_field = {each.name: each.kind.length for each in other.columns}
    lengths += [(source.name, length_by_field[name]) for name, source in sources_of(table, other).items()]
    most = {name: max(length for other, length in lengths if other == name) for name, _ in lengths}
    return table.model_copy(update={"columns": tuple(_longer(each, most.get(each.name, 0)) for each in table.columns)})


def _longer(column: Column, length: int) -> Column:
    kind = column.kind
    if kind.name != "text" or kind.length >= length:
        return column
    return column.model_copy(update={"kind": kind.model_copy(update={"length": length})})


def _check_key(table: Shape, other: Shape) -> None:
    if table.key != other.key:
        raise _refused(f"the key is {', '.join(other.key)}, not {', '.join(table.key)}", table, other)


def _flat(table: Shape, other: Shape, kept: Iterable[str]) -> Mapping[str, object]:
    """Return the attributes of a table with columns that are fields of records."""
    return {"kept": tuple(sorted(kept)), "is_flat": table.is_flat or other.is_flat}


def _check_records(table: Shape, other: Shape, gone: Collection[str], names: Collection[str]) -> None:
    """Raise NotMigratable if a field is a record whose fields are columns in one shape, and not in the other one."""
    if record := changed_record(table, other, gone, names):
        kinds = [{each.name: str(each.kind) for each in shape.columns} for shape in (table, other)]
        was, now = (each.get(record, "a record with columns") for each in kinds)
        raise _refused(f"{record} was {was} and is {now}, which would lose data", table, other)


def _check_order(after: Shape, table: Shape, other: Shape) -> None:
    """Raise NotMigratable if the column of `newest_by` would get a kind whose values have another order, or none."""
    kinds = {each.name: each.kind for each in after.columns}
    if after.newest_by and kinds[after.newest_by].name not in ORDERED:
        raise _refused(
            f"newest_by orders the rows by {after.newest_by}, which would become {kinds[after.newest_by]}: expected "
            f"one of {', '.join(sorted(ORDERED))}",
            table,
            other,
        )


def _merged(old: Column, new: Column, table: Shape, newer: Shape) -> Column:
    """Return a column that can store the values of both. Raise NotMigratable if no kind can store them without loss."""
    if not (widens(old.kind, new.kind) or widens(new.kind, old.kind)):
        raise _refused(f"{new.name} was {old.kind} and is {new.kind}, which would lose data", table, newer)
    kind = new.kind if widens(old.kind, new.kind) else old.kind
    if old.name in table.key and kind == TEXT and old.kind.name in _OF_MANY_TEXTS:
        raise _refused(f"{new.name} was {old.kind} and is text, which would change keys", table, newer)
    had = dict.fromkeys((*new.aliases, *old.aliases, *([old.name] if old.name != new.name else [])))
    is_nullable = old.is_nullable or new.is_nullable
    return new.model_copy(update={"kind": kind, "is_nullable": is_nullable, "aliases": tuple(had)})


def _added(column: Column) -> Column:
    """Return the column as nullable, because existing rows may have no value for it."""
    return column.model_copy(update={"is_nullable": True})


def _changes(old: Column, new: Column) -> Iterator[Step]:
    if old.kind != new.kind:
        yield WidenColumn(new.name, new.kind, old.kind)
    if new.is_nullable and not old.is_nullable:
        yield MakeNullable(new.name)
    if old.default != new.default or (old.kind != new.kind and new.default is not None):
        yield SetDefault(new)
    if old.comment != new.comment:
        yield SetComment(new.name, new.comment)


def _refused(why: str, table: Shape, other: Shape) -> NotMigratable:
    noun = "topic" if table.key else "dataset"
    return NotMigratable(
        f"{why}. The table is {table}, the schema {other}. Give the {noun} a schema that fits the table, or make "
        "the table anew by `feed-assets warehouse reset`: see 'Made anew' in docs/warehouse.md."
    )
