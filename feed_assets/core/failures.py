"""What fails for one must not stop the others."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from feed_assets.core.errors import FeedAssetsError, in_short

_logger = logging.getLogger(__name__)


@contextmanager
def failing_alone(problems: dict[str, str], whom: str) -> Generator[None]:
    """Note in `problems` what is raised within, by whom it concerns; the log has what nobody expected."""
    try:
        yield
    except FeedAssetsError as error:
        problems[whom] = in_short(error)
    except Exception as error:  # Of a user's function, a mapping, a driver: it may be anything.
        _logger.exception("%s failed", whom)
        problems[whom] = in_short(error)
