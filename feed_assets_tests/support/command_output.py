"""The output of a command that runs in this process."""

from typer.testing import CliRunner

from feed_assets.cli import app


def printed(*command):
    """Call the program with these arguments. Return its stdout."""
    return CliRunner().invoke(app, command, catch_exceptions=False).stdout
