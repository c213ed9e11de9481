"""Projects whose `defs/` folder a test writes."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import with_automation

Project = Callable[[Mapping[str, str]], dg.Definitions]


@contextmanager
def new_project(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Yield a function that writes files below `defs/` of a fresh project and loads it."""
    monkeypatch.syspath_prepend(str(root))

    def load(files: Mapping[str, str]) -> dg.Definitions:
        (root / name / "defs").mkdir(parents=True)
        (root / name / "__init__.py").touch()
        (root / "pyproject.toml").write_text(
            f'[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "{name}"\n'
            f'code_location_name = "{name}"\n'
        )
        for path, text in files.items():
            (root / name / "defs" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / name / "defs" / path).write_text(text)
        return with_automation(dg.load_from_defs_folder(path_within_project=root / name))

    yield load
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]
