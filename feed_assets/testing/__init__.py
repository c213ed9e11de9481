"""Tools to test datasets, including your own: drop files as a foreign producer would, tick, and check the results."""

from feed_assets.testing.harness import Harness
from feed_assets.testing.homes import fresh_home
from feed_assets.testing.plain import Given, PlainMaker, by_inputs, rows_of
from feed_assets.testing.results import Ran, Reported, RequestedTick

__all__ = ["Given", "Harness", "PlainMaker", "Ran", "Reported", "RequestedTick", "by_inputs", "fresh_home", "rows_of"]
