"""`feed-assets warehouse refused`: the rows that a warehouse's tables have refused."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson
from feed_assets.cli.show import Below, View, show
from feed_assets.core.errors import InvalidName
from feed_assets.home import say
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.warehouse.engines import Engine


class RefusedView(View):
    """A refused message by its place, with the reason, and its row as JSON."""

    topic: str
    partition: int | str
    offset: int
    refused_at: datetime | None
    reason: Annotated[str, Below]
    row: Annotated[str | None, Below]
    """The chunk's texts by column name, up to 16,000 characters. Redshift's rows have none: the chunk has them."""


def refused(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A warehouse of FEED_ASSETS_WAREHOUSES.")],
    table: Annotated[str | None, typer.Argument(metavar="TABLE", help="A topic; by default all.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Print up to this number of rows.")] = 100,
    drop: Annotated[bool, typer.Option("--drop", help="Count the topic's rows as handled: delete them there.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Without --apply, --drop deletes nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show rows that a table could not take, newest first: their place, the reason, and the row.

    They are open until --drop --apply, and so is the alert `not_loaded:<table>`.
    """
    from feed_assets.warehouse import load_state, refused_rows, reset, union_topics

    now, engine = datetime.now(UTC), _engine(name)
    if drop and table is None:
        raise InvalidName("--drop deletes the refused rows of one table: name it.")
    if why := engine.absence():
        show([], as_json, f"nothing was loaded into {name} yet: {why}")
        return
    with engine.open() as connection:
        if not load_state.exists(connection, engine):
            show([], as_json, f"nothing was loaded into {name} yet")
            return
        if table is not None:
            reset.check_table(connection, engine, table)
        rows, topics = refused_rows.newest(connection, table, limit), union_topics.topics_of(connection)
        count = refused_rows.drop(connection, table, now) if drop and apply and table else 0
    names = [union_topics.name_of(topics.get(each.topic), each.partition) for each in rows]
    views = [
        RefusedView.model_validate(each._asdict() | {"partition": name if each.topic in topics else each.partition})
        for each, name in zip(rows, names, strict=True)
        if name is not None
    ]
    show(views, as_json, "" if views else "no rows are refused")
    if drop:
        say(f"warehouse {name}: {f'{count:,} rows are dropped' if apply else 'add --apply to drop the rows'}")


def _engine(name: str) -> "Engine":
    from feed_assets.warehouse.target import engine_at

    place = settings().warehouse(name)
    return engine_at(place, name)
