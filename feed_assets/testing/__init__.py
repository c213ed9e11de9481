"""For tests of datasets, yours too: drop files as a foreign producer would, tick, and look at what was built."""

from feed_assets.testing.harness import Asked, Harness, Ran, Told

__all__ = ["Asked", "Harness", "Ran", "Told"]
