"""The command `feed-assets warehouse`, called in this process."""

import pytest

from feed_assets.cli import main
from feed_assets.settings import settings


def run_warehouse(monkeypatch, capsys, *arguments: str, code: int = 0) -> str:
    settings.cache_clear()
    monkeypatch.setattr("sys.argv", ["feed-assets", "warehouse", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    found = capsys.readouterr()
    assert ended.value.code == code, found.err
    return found.out + found.err
