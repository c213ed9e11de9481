"""A second data center, which gets copies of `clean`."""

import json

from feed_assets_tests.reliability.schedule import begins
from feed_assets_tests.reliability.shop import CLEAN
from feed_assets_tests.reliability.world import World


@begins
def make_the_place(world: World) -> None:
    """Make the folder of the second place."""
    (place := world.folder / "place").mkdir()
    datasets = [f"{CLEAN.rpartition('/')[0]}/*"]
    centers = {"b": {"url": place.as_uri(), "datasets": datasets, "deadline": 3600}}
    world.variables["FEED_ASSETS_DATA_CENTERS"] = json.dumps(centers)
