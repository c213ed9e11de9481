"""Dagster's notes that something is beta or a preview: feed_assets pins Dagster's version, and tests what it uses."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg


@contextmanager
def without_dagsters_notes() -> Generator[None]:
    """Suppress the notes about what the block calls: they are about code that is not the user's."""
    with warnings.catch_warnings():
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        yield
