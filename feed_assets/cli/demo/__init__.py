"""`feed-assets demo`: real data, from raw files to results, with the faults that happen on the way."""

from feed_assets.cli.loaded_location import load, open_instance

SAMPLES = "feed_assets.definitions"
"""The module with the bundled sample datasets."""


def demo() -> None:
    """Run a week of ads, days of a shop, increments of its CRM, a day of regions and late data; check the results."""
    from feed_assets.cli.demo.stage import Stage, fresh_home

    folder = fresh_home()
    definitions = load(SAMPLES)
    from feed_assets.cli.demo import (
        ads,
        customers,
        partners,
        regions,
        retail,
    )  # Imported here, because these modules read the settings of the demo's home.

    with open_instance() as instance:
        stage = Stage(definitions, instance, folder)
        ads.play(stage)
        retail.play(stage)
        customers.play(stage)
        regions.play(stage)
        partners.play(stage)
        stage.say(f"\n{stage.where_next}")
