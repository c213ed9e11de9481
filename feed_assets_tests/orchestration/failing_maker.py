"""A maker that fails as long as a test wants."""

from feed_assets.runs.maker import Task
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import given


class Outage:
    """A maker whose store or engine is down while `error` says so."""

    def __init__(self, error: Exception):
        self.error: Exception | None = error

    def __call__(self, task: Task) -> Given:
        if self.error:
            raise self.error
        return given(task)
