"""Events of another team in a table of its own: pairs by correlation, some late, some twice."""

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from feed_assets_tests.reliability.schedule import act, begins, below, one_of, settles
from feed_assets_tests.reliability.world import World

TABLES = ("a", "b")
COLUMNS = "table_name, partition_key, correlation_id, marker, event_marker, write_operation, context"


def database(world: World) -> Path:
    """Return the team's database."""
    return world.folder / "team.db"


def publish(world: World, table: str, correlation: int) -> None:
    """Insert an event with the next marker of its table."""
    marker = world.state["marker", table] = world.state.get(("marker", table), 0) + 10
    values = (table, "", f"X{correlation}", f"{marker}", _text(world.now), "UPSERT", "{}")
    insert(world, values)
    world.state.setdefault("events", []).append(values)


def insert(world: World, values: tuple[str, ...]) -> None:
    """Insert a row."""
    with closing(sqlite3.connect(database(world))) as connection, connection:
        connection.execute(f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)  # noqa: S608


@begins
def create_the_table(world: World) -> None:
    """Make the table of events."""
    with closing(sqlite3.connect(database(world))) as connection, connection:
        connection.execute(f"CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, {COLUMNS})")
    world.state["half"] = []


@act(4, is_together=one_of(True, False))
def publish_events(world: World, is_together: bool) -> None:
    """Publish the event of one table, and that of the other now or later."""
    correlation = world.step
    publish(world, "a", correlation)
    if is_together:
        publish(world, "b", correlation)
    else:
        world.state["half"].append(correlation)


@act(3, number=below(100))
def publish_late_event(world: World, number: int) -> None:
    """Publish the event that is missing of an earlier pair, in any order of the pairs."""
    if half := world.state["half"]:
        publish(world, "b", half.pop(number % len(half)))


@act(2, is_fault=True, number=below(100))
def repeat_event(world: World, number: int) -> None:
    """Insert an event once more."""
    if found := world.state.get("events"):
        insert(world, found[number % len(found)])


@settles
def complete_all_pairs(world: World) -> bool:
    """Publish all missing events."""
    is_missing = bool(world.state["half"])
    while world.state["half"]:
        publish(world, "b", world.state["half"].pop(0))
    return is_missing


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.000000Z"
