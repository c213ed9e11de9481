"""`feed-assets demo`: real data, from raw files to results, with what goes wrong on the way."""

from feed_assets.cli.location import DEFAULT_MODULE, load, open_instance


def demo() -> None:
    """Run a week of real ads and some days of a web shop, in two to three minutes, and check that it is right."""
    from rich.console import Console

    from feed_assets.cli.demo import ads, retail
    from feed_assets.cli.demo.stage import Stage, fresh_home

    folder = fresh_home()
    definitions = load(DEFAULT_MODULE)
    with open_instance() as instance:
        stage = Stage(Console(highlight=False), definitions, instance, folder)
        ads.play(stage)
        retail.play(stage)
        stage.tell(f"\n{stage.where_next}")
