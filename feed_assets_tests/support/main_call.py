"""The command line called in this process."""

import pytest

from feed_assets.cli import main


def exit_and_errors(monkeypatch, capsys, *args):
    """Call the program with these arguments. Return its exit code and the lines of its stderr."""
    monkeypatch.setattr("sys.argv", ["feed-assets", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr().err.splitlines()
