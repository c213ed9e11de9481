"""Isolation of failures: one feed, source or sink that fails must not stop the others."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from feed_assets.core.errors import FeedAssetsError, in_short

_logger = logging.getLogger(__name__)


@contextmanager
def failing_alone(problems: dict[str, str], whom: str) -> Generator[None]:
    """Catch an error of the block and store it in `problems` under `whom`. Also log an unexpected error."""
    try:
        yield
    except FeedAssetsError as error:
        problems[whom] = in_short(error)
    except Exception as error:  # A user's function, a mapping or a driver may raise anything.
        _logger.exception("%s failed", whom)
        problems[whom] = in_short(error)
