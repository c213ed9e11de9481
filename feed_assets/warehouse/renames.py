"""Columns of a table that a schema's fields continue, by their names or by aliases."""

from collections.abc import Mapping

from feed_assets.warehouse.shapes import Column, Shape


def sources_of(table: Shape, newer: Shape) -> Mapping[str, Column]:
    """Return the table's present column for each column of a newer shape, found by the newer column's name or alias.

    Names may shift: field b has the alias a, and field c the alias b. Then c comes first in the result, so that the
    column b is renamed to c before a is renamed to b.
    """
    columns, fields = ({each.name: each for each in shape.columns} for shape in (table, newer))
    sources: dict[str, Column] = {}
    tried = set[str]()
    for name in [each for each in fields if each not in columns]:
        moved = _moved(name, columns, fields, tried)
        sources |= {each: columns[alias] for each, alias in moved.items()}
    used_names = {each.name for each in sources.values()}
    return sources | {name: columns[name] for name in fields if name in columns.keys() - sources.keys() - used_names}


def _moved(name: str, columns: Mapping[str, Column], fields: Mapping[str, Column], tried: set[str]) -> dict[str, str]:
    """Find the table's column of the field `name` by an alias. Return the alias by field name; {} if no alias fits.

    If another new field has the alias as its name, that field must find a column by an alias of its own. Then the
    result has the aliases of both fields.

    Each alias is tried only once for all fields, and added to `tried`: a second attempt could not find a free column.
    Skip an alias if the table has a column `name` with the same alias. That column was renamed from the alias earlier,
    so a column that has the alias as its name today is a different one.
    """
    was_renamed = columns[name].aliases if name in columns else ()
    for alias in fields[name].aliases:
        if alias not in columns or alias in tried or alias in was_renamed:
            continue
        tried.add(alias)
        if alias not in fields:
            return {name: alias}
        if further_moves := _moved(alias, columns, fields, tried):
            return {name: alias, **further_moves}
    return {}
