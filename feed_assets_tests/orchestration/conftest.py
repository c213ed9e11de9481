"""Every test has a home of its own, and leaves no instance open."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from feed_assets.settings import settings
from feed_assets_tests.orchestration import worlds


@pytest.fixture(autouse=True)
def world(home: Path) -> Iterator[Path]:
    """A fresh home, and at the end the instances of the test's harnesses disposed of."""
    yield home
    worlds.opened.close()


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change settings: `setting(max_requests=2)`."""

    def change(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(f"FEED_ASSETS_{name.upper()}", str(value))
        settings.cache_clear()

    return change
