"""Dagster's beta and preview warnings.

Users need not see them, because feed_assets pins Dagster's version and tests the features that it uses.
"""

import warnings
from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg


@contextmanager
def without_dagsters_notes() -> Generator[None]:
    """Suppress Dagster's beta and preview warnings within the block. They are not about the user's code."""
    with warnings.catch_warnings():
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        yield
