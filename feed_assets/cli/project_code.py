"""A module that Dagster's processes load instead of the user's module.

The processes request an attribute whose name contains the name of the user's module. Dagster itself would put the
user's folder before the installed packages. A file in that folder could then hide a library.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from dagster._core.workspace.autodiscovery import loadable_targets_from_loaded_module

from feed_assets.cli.loaded_location import reach
from feed_assets.cli.project import loading
from feed_assets.core.errors import InvalidDefinition


def attribute_for(module: str, attribute: str | None, folder: str) -> str:
    """Return a name that `__getattr__` resolves to one attribute of a user's module, or to all its definitions."""
    return f"{module}:{attribute or ''}:{folder}"


def __getattr__(name: str) -> object:
    """Return what `name` encodes: an attribute of the user's module, or all its definitions.

    Raise ModuleNotLoaded if the module has a mistake.

    Dagster would report an AttributeError as a missing attribute, without the reason.
    """
    module, *parts = name.split(":", 2)
    if not parts:
        raise AttributeError(name)
    attribute, folder = parts
    reach(Path(folder))
    with loading(module):
        loaded = import_module(module)
        return getattr(loaded, attribute) if attribute else _only(loaded)


def _only(module: ModuleType) -> object:
    """Return the definitions that Dagster finds in a module. Raise InvalidDefinition unless there is exactly one."""
    targets = loadable_targets_from_loaded_module(module)
    if len(targets) != 1:
        names = ", ".join(each.attribute for each in targets)
        raise InvalidDefinition(f"module {module.__name__} defines {names}: name one of them as `attribute`.")
    return targets[0].target_definition
