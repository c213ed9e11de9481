"""The script that makes the files of deploy/, as a module: scripts are no package."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from feed_assets_tests.support.servers import ROOT


def deployment() -> ModuleType:
    """Return scripts/deployment.py, loaded once."""
    name = "deployment_script"
    if name not in sys.modules:
        sys.path.append(str(ROOT / "scripts"))  # the script imports its parts from beside it
        spec = spec_from_file_location(name, ROOT / "scripts" / "deployment.py")
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
