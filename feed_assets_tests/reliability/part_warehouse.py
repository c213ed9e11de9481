"""A loader that keeps a table of `clean` in a DuckDB file, and its deaths."""

from feed_assets_tests.reliability.processes import load
from feed_assets_tests.reliability.schedule import act, death, settles
from feed_assets_tests.reliability.world import World


@act(4, dies_at=death(60, share=0.5))
def load_table(world: World, dies_at: int | None) -> None:
    """Load what is new into the table. The loader may be killed at one of its statements."""
    world.run(load, f"{world.folder / 'warehouse.duckdb'}", dies_at=dies_at)


@settles
def load_everything(world: World) -> bool:
    """Load the last updates. Return whether there were any."""
    return bool(world.run(load, f"{world.folder / 'warehouse.duckdb'}"))
