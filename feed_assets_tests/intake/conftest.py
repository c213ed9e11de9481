"""A partner on local disk."""

from pathlib import Path

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import Ledger
from feed_assets_tests.support.pull_partners import Partner


@pytest.fixture
def on_disk(ledger: Ledger, tmp_path: Path) -> Partner:
    """Return a partner and a feed on local disk, where a renamed file keeps its inode."""
    theirs, ours = [Blackboard.open((tmp_path / name).as_uri(), create=True) for name in ("theirs", "ours")]
    return Partner(theirs, ours, ledger)
