"""Migrations between shapes of a table: which are done, which are refused, and that no data is lost."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.errors import NotMigratable
from feed_assets.warehouse.migrations import (
    AddColumn,
    DropColumn,
    MakeNullable,
    RenameColumn,
    SetComment,
    SetDefault,
    WidenColumn,
    grown,
    migrate,
    places,
)
from feed_assets.warehouse.shapes import Column, Kind, Shape, widens
from feed_assets_tests.support.each_case import each_case

INTEGER, BIGINT, TEXT, UUID = (Kind(name=name) for name in ("integer", "bigint", "text", "uuid"))
ID = Column(name="id", kind=BIGINT, is_nullable=False)


def shape(*columns):
    return Shape(columns=(ID, *columns), key=("id",))


def column(name="n", kind=INTEGER, is_nullable=False, **more):
    return Column(name=name, kind=kind, is_nullable=is_nullable, **more)


N = column()


@each_case(
    ("old", "new", "steps"),
    [
        ([N], [N], []),
        ([], [N], [AddColumn(N.model_copy(update={"is_nullable": True}))]),
        ([], [column(default="5")], [AddColumn(column(is_nullable=True, default="5"))]),
        ([N], [], [DropColumn("n")]),
        ([N], [column("m", aliases=("n",))], [RenameColumn("n", "m")]),
        ([N], [column(kind=BIGINT)], [WidenColumn("n", BIGINT, INTEGER)]),
        ([N], [column(is_nullable=True)], [MakeNullable("n")]),
        ([N], [column(default="")], [SetDefault(column(default=""))]),
        ([column(default="1")], [N], [SetDefault(N)]),
        ([column(default="1")], [column(kind=BIGINT, default="1")],
         [WidenColumn("n", BIGINT, INTEGER), SetDefault(column(kind=BIGINT, default="1"))]),
        ([N], [column(comment="how many")], [SetComment("n", "how many")]),
        ([column(kind=BIGINT)], [N], []),
        ([column(is_nullable=True)], [N], []),
        ([N, column("m")], [column("m"), N], []),
        ([N], [N, column("m", aliases=("n",))], [AddColumn(column("m", is_nullable=True, aliases=("n",)))]),
        ([N], [column("m", aliases=("n",)), column("k", aliases=("n",))],
         [RenameColumn("n", "m"), AddColumn(column("k", is_nullable=True, aliases=("n",)))]),
    ],
)  # fmt: skip
def test_a_migration_has_the_expected_steps(old, new, steps):
    assert [*migrate(shape(*old), shape(*new)).steps] == steps


@each_case(
    ("new", "said"),
    [
        (shape(column(kind=Kind(name="json"))), "n was integer and is json, which would lose data"),
        (shape(column("m", kind=UUID, aliases=("n",))), "m was integer and is uuid"),
        (Shape(columns=(ID, N), key=("n",)), "the key is n, not id"),
    ],
)
def test_a_migration_that_would_lose_data_is_refused_with_both_shapes(new, said):
    with pytest.raises(NotMigratable, match=said) as refused:
        migrate(shape(N), new)
    assert f"The table is {shape(N)}, the schema {new}." in str(refused.value)


def test_the_owners_are_those_of_the_newer_schema():
    ours, theirs = (shape(N).model_copy(update={"owners": each}) for each in (("team:ads",), ("team:shop",)))
    assert migrate(ours, theirs) == ((), theirs)
    assert grown(ours, theirs).owners == ("team:ads",)


def test_an_older_file_goes_where_its_columns_are_now():
    found = migrate(
        migrate(shape(N), shape(column("m", aliases=("n",)))).shape, shape(column("k", aliases=("m",)))
    ).shape
    assert places(found, shape(N)) == {"id": "id", "n": "k"}
    assert places(found, shape(column("other"))) == {"id": "id"}
    renamed_before = shape(column("m", aliases=("n",)), column("n"))
    found = migrate(renamed_before, shape(column("m"), column("k", aliases=("m",)))).shape
    assert places(found, renamed_before) == {"id": "id", "m": "m"}, "the column n beside m is another one"


def test_an_older_file_that_the_table_cannot_hold_is_refused():
    with pytest.raises(NotMigratable, match="n is text, which integer cannot store"):
        places(shape(N), shape(column(kind=TEXT)))


def test_texts_grow_with_those_of_a_newer_and_of_an_older_schema():
    def text(length, name="n", *aliases):
        return column(name, Kind(name="text", length=length), aliases=aliases)

    table = shape(text(256), column("m"))
    assert grown(table, shape(text(1024))) == shape(text(1024), column("m"))
    assert grown(table, shape(text(1024, "k", "n"))) == shape(text(1024), column("m"))
    assert grown(shape(text(256, "k", "n")), shape(text(1024))) == shape(text(1024, "k", "n"))
    assert grown(table, shape(text(0), text(9, "other"))) == table
    assert migrate(table, shape(text(0), column("m"))).steps == ()


NAMES = st.sampled_from("abcd")
KINDS = st.sampled_from([INTEGER, BIGINT, TEXT, UUID, Kind(name="decimal", precision=20, scale=1)])
COLUMNS = st.builds(
    Column, name=NAMES, kind=KINDS, is_nullable=st.booleans(), default=st.none() | st.just("1"),
    comment=st.sampled_from(["", "c"]), aliases=st.lists(NAMES, max_size=2).map(tuple),
)  # fmt: skip
SHAPES = st.lists(COLUMNS, max_size=4, unique_by=lambda each: each.name).map(lambda found: shape(*found))


@given(SHAPES, SHAPES)
def test_the_steps_lead_to_the_shape_and_what_the_table_held_it_still_holds(old, new):
    try:
        steps, result = migrate(old, new)
    except NotMigratable:
        return
    assert {each.name: facts(each) for each in result.columns} == done(old, steps)
    assert {each.name for each in result.columns} == {each.name for each in new.columns}
    assert migrate(result, new).steps == ()
    kinds = {each.name: each.kind for each in result.columns}
    for source in (old, new):
        where = places(result, source)
        assert all(widens(each.kind, kinds[where[each.name]]) for each in source.columns if each.name in where)


def facts(column):
    return {name: value for name, value in asdict_of(column).items() if name != "aliases"}


def asdict_of(column):
    return {name: getattr(column, name) for name in Column.model_fields}


def done(table, steps):
    """Apply the steps in order; return the resulting columns."""
    found = {each.name: facts(each) for each in table.columns}
    for step in steps:
        match step:
            case AddColumn(column):
                assert column.name not in found
                found[column.name] = facts(column)
            case DropColumn(name):
                del found[name]
            case RenameColumn(name, new):
                assert new not in found
                found[new] = {**found.pop(name), "name": new}
            case SetDefault(column):
                found[column.name]["default"] = column.default
            case MakeNullable(name):
                found[name]["is_nullable"] = True
            case _:
                changes = asdict(step)
                found[changes.pop("name")] |= {"kind": step.kind} if isinstance(step, WidenColumn) else changes
    return found
