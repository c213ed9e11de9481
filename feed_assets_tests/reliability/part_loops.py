"""The sensors and runs of both code locations, and their deaths."""

from feed_assets_tests.reliability import published
from feed_assets_tests.reliability.part_orders import HOURS, hour_key
from feed_assets_tests.reliability.processes import LOCATIONS, build, run_count, tick, until_idle
from feed_assets_tests.reliability.reports import JOINED
from feed_assets_tests.reliability.schedule import SKEWS, act, begins, below, death, one_of, settles
from feed_assets_tests.reliability.shop import CLEAN, CODES
from feed_assets_tests.reliability.world import World

OUTPUTS = {"clean": ("shop", CLEAN), "joined": ("reports", JOINED)}
"""Code location and feed of each dataset that is built by hand."""


@begins
def tick_first(world: World) -> None:
    """Evaluate each code location once: a subscription begins with the changes after its first tick."""
    for location in LOCATIONS:
        world.run(tick, location, 1)


@act(16, location=one_of(*LOCATIONS), times=one_of(1, 2), dies_at=death(400, share=0.5), skew=one_of(*SKEWS))
def tick_location(world: World, location: str, times: int, dies_at: int | None, skew: int) -> None:
    """Evaluate the sensors of a code location and run what they request. The process may be killed on the way."""
    world.counts["clock jumps"] += bool(skew)
    world.run(tick, location, times, dies_at=dies_at, skew=skew)


@act(3, hour=below(HOURS), output=one_of(*OUTPUTS), dies_at=death(200, share=0.3))
def build_by_hand(world: World, hour: int, output: str, dies_at: int | None) -> None:
    """Build a partition as the web UI does: what is current must stay as it is."""
    world.run(build, *OUTPUTS[output], hour_key(hour), dies_at=dies_at)


@act(1, code=one_of(*CODES))
def deploy(world: World, code: str) -> None:
    """Deploy another version of the code."""
    world.code = code
    world.note("deployed", code=code)


@settles
def run_everything(world: World) -> bool:
    """Run both code locations until they are idle. Return whether a run was made."""
    before = world.run(run_count)
    for location in LOCATIONS:
        world.run(until_idle, location)
    if has_run := world.run(run_count) != before:
        return has_run
    is_first = "built once more" not in world.state
    if is_first:
        build_once_more(world)
    return is_first


def build_once_more(world: World) -> None:
    """Build every output by hand once all is at rest: each must stay as it is."""
    world.state["built once more"] = True
    for location, feed in OUTPUTS.values():
        if keys := sorted(published.newest(world.store, feed)):
            world.run(build, location, feed, *keys)
