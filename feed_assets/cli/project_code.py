"""What Dagster's processes load where a module is named: its attribute `shop.definitions` is what that module defines.

Dagster itself would put the project's folder before what is installed, where a file may stand in for a library.
"""

from feed_assets.cli.location import declared
from feed_assets.cli.project import loading


def __getattr__(name: str) -> object:
    """The definitions of a module, as they stand there. Raises ModuleNotLoaded, not AttributeError, for a mistake."""
    if name.startswith("__"):
        raise AttributeError(name)
    with loading(name):
        return declared(name)
