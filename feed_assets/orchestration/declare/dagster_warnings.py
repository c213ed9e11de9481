"""Dagster's beta and preview warnings. They do not concern users: we pin Dagster's version and test what we use."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager

import dagster as dg


@contextmanager
def without_dagsters_notes() -> Generator[None]:
    """Suppress beta and preview warnings within the block, which are not about the user's code."""
    with warnings.catch_warnings():
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        yield
