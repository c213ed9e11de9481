"""Suppression of libraries' log lines while they send our requests. These lines show URLs and answers with secrets."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_SILENT = ContextVar("_IS_SILENT", default=False)
"""True while a library works for us, also in the threads that it starts with our context."""

_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.connection", "urllib3.util.retry")
"""The loggers of a request: apprise's, and those of urllib3, which log the paths and queries of URLs."""


class _OursAreSilent(logging.Filter):
    """A filter that drops the log lines of our requests."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return not _IS_SILENT.get()


_OURS_ARE_SILENT = _OursAreSilent()


@contextmanager
def silent() -> Generator[None]:
    """Suppress log lines of our requests until the block ends."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_OURS_ARE_SILENT)  # logging adds a filter at most once
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)
