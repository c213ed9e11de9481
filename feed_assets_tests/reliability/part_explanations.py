"""Somebody who asks why an output is as it is; the world notes what was true at that moment."""

from feed_assets_tests.reliability import published
from feed_assets_tests.reliability.part_loops import OUTPUTS
from feed_assets_tests.reliability.part_orders import HOURS, hour_key
from feed_assets_tests.reliability.processes import explain
from feed_assets_tests.reliability.schedule import act, below, one_of
from feed_assets_tests.reliability.world import World


@act(5, hour=below(HOURS), output=one_of(*OUTPUTS))
def ask_why(world: World, hour: int, output: str) -> None:
    """Ask for an explanation, and note it with the paths of everything that is valid now."""
    location, feed = OUTPUTS[output]
    verdict = world.run(explain, location, feed, hour_key(hour))
    valid = {
        each: (found[hour_key(hour)].path if hour_key(hour) in found else None)
        for each in published.FEEDS
        for found in [published.newest(world.store, each)]
    }
    world.note("explained", feed=feed, key=hour_key(hour), **verdict, valid=valid)
