"""Variants: columns for values of a field whose type its column cannot store without loss.

A field `price` that was a long and is a double is in the column `price__double` from then on, and `price` is null.
"""

import re
from collections.abc import Callable, Mapping

from feed_assets.warehouse.shapes import Column, Kind, Shape, Variant, widens

Fits = Callable[[Kind, Kind], bool]
"""A function that returns whether a column of the second kind can store values of the first, perhaps after a change."""


def with_variants(table: Shape, other: Shape, columns: Mapping[str, Column], fits: Fits) -> Shape:
    """Return a schema's shape, with variants in the place of fields that their columns cannot store.

    `columns` has the table's column of each field, and `fits` says whether it can store both kinds. Key fields have no
    variants, because a key has one type, and neither has the column of `newest_by`, which orders all rows. If the name
    of a variant is taken, the field stays as it is, so the table refuses it.
    """
    fields, variants = dict[str, Column](), list[Variant]()
    for each in other.columns:
        column = columns.get(each.name)
        if column is None or column.name in (*table.key, table.newest_by) or fits(each.kind, column.kind):
            fields[each.name] = each
            continue
        variant = _variant(table, other, each, column)
        fields[each.name] = each if variant is None else _column(each, variant)
        variants += [variant] if variant else []
    return other.model_copy(update={"columns": tuple(fields.values()), "variants": (*other.variants, *variants)})


def fields_of(shape: Shape) -> Mapping[str, str]:
    """Return the column of each field in the files, for a schema's shape."""
    fields = {each.column: each.field for each in shape.variants}
    return {fields.get(each.name, each.name): each.name for each in shape.columns}


def merged_variants(table: Shape, other: Shape, new_names: Mapping[str, str]) -> tuple[Variant, ...]:
    """Return the variants of a table after a schema. `new_names` has the new names of columns by their old ones."""
    variants = {each.column: each for each in (*table.variants, *other.variants)}
    return tuple(each._replace(of=new_names.get(each.of, each.of)) for each in variants.values())


def kept_for_variants(shape: Shape) -> frozenset[str]:
    """Return the columns that are never dropped: variants, and the columns with the first types."""
    return frozenset(name for each in shape.variants for name in (each.column, each.of))


def loose(column: Column) -> Column:
    """Return a column that may be null, without a default: a row has a value in one of the variants, or in none."""
    return column.model_copy(update={"is_nullable": True, "default": None})


def fits(kind: Kind, other: Kind) -> bool:
    """Return whether one of two kinds can store the values of both."""
    return widens(kind, other) or widens(other, kind)


def _variant(table: Shape, other: Shape, field: Column, column: Column) -> Variant | None:
    """Return the variant for a field: one that the table has, or a new one. Return None if its name is taken."""
    kinds = {each.name: each.kind for each in table.columns}
    for each in table.variants:
        if each.of == column.name and fits(field.kind, kinds[each.column]):
            return each._replace(field=field.name)
    name = f"{column.name}__{re.sub('[^0-9a-z]+', '_', str(field.kind)).strip('_')}"
    names = {*kinds, *(each.name for each in other.columns)}
    return None if name in names else Variant(name, field.name, column.name)


def _column(field: Column, variant: Variant) -> Column:
    return loose(field).model_copy(update={"name": variant.column, "aliases": ()})
