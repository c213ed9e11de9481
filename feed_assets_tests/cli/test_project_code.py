"""Modules that Dagster's processes load: named in `feed-assets ui -m`, and in a `workspace.yaml`."""

import sys
import warnings
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.workspace.load_target import WorkspaceFileTarget

from feed_assets.cli import project_code
from feed_assets.cli.processes import NOWHERE
from feed_assets.cli.project import location_of
from feed_assets.cli.project_code import attribute_for
from feed_assets.cli.web import workspace
from feed_assets.core.errors import InvalidDefinition, ModuleNotLoaded

MODULES = {
    "whole": "import dagster as dg\nimport psutil\ndefs = dg.Definitions()\nother = 1",
    "two": "import dagster as dg\none = dg.Definitions()\n",
    "wrong": "import dagster as dg\nNone.nothing",
    "beta": "import dagster as dg\ndg.MultiToSingleDimensionPartitionMapping('a')\ndefs = dg.Definitions()\n",
    "jobs": "import dagster as dg\n@dg.job\ndef a(): ...\n@dg.job\ndef b(): ...\n@dg.repository\ndef r(): return [a]\n"
    "@dg.repository\ndef s(): return [b]\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Provide a folder with modules, and a stranger's file with the name of a library that is not loaded yet."""
    for name, text in MODULES.items():
        (tmp_path / f"here_{name}.py").write_text(text)
    (tmp_path / "psutil.py").write_text("raise ImportError('a stranger')\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "psutil", raising=False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("here_")]:
        del sys.modules[name]


def test_a_module_is_found_in_its_folder_after_what_is_installed(folder):
    found = getattr(project_code, attribute_for("here_whole", None, str(folder)))
    assert isinstance(found, dg.Definitions)
    assert sys.path[-1] == str(folder)
    assert "site-packages" in sys.modules["psutil"].__file__


def test_beta_warnings_of_dagster_are_hidden(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(project_code, attribute_for("here_beta", None, str(folder)))


def test_a_named_attribute_is_loaded(folder):
    assert getattr(project_code, attribute_for("here_whole", "other", str(folder))) == 1


def test_a_module_with_several_definitions_needs_an_attribute(folder):
    with pytest.raises(ModuleNotLoaded, match="defines r, s: name one of them as `attribute`") as caught:
        getattr(project_code, attribute_for("here_jobs", None, str(folder)))
    assert isinstance(caught.value.__cause__, InvalidDefinition)


def test_a_missing_attribute_of_a_module_is_a_mistake_with_its_line(folder):
    with pytest.raises(ModuleNotLoaded, match=r"here_wrong.py:2: AttributeError: 'NoneType' object has no attribute"):
        getattr(project_code, attribute_for("here_wrong", None, str(folder)))


def test_project_code_has_no_other_attributes():
    assert not hasattr(project_code, "__path__")
    assert not hasattr(project_code, "nothing")


def test_workspace_modules_are_loaded_under_the_same_names(folder):
    """Keep the same names, by which Dagster stores the state of sensors."""
    (folder / "workspace.yaml").write_text(
        "load_from:\n- python_module: {module_name: here_whole}\n"
        "- python_module: {module_name: here_whole, attribute: other, location_name: named}\n"
        "- python_module: {module_name: here_two, executable_path: /their/python}\n"
        "- python_file: here_two.py\n- grpc_server: {host: localhost, port: 4266}\n"
    )
    theirs, ours = WorkspaceFileTarget(["workspace.yaml"]).create_origins(), workspace().create_origins()
    assert [each.location_name for each in ours] == [each.location_name for each in theirs]
    first, second = (each.loadable_target_origin for each in ours[:2])
    assert {first.module_name, second.module_name} == {"feed_assets.cli.project_code"}
    assert {first.working_directory, second.working_directory} == {NOWHERE}
    assert first.attribute == attribute_for("here_whole", None, str(folder))
    assert second.attribute == attribute_for("here_whole", "other", str(folder))
    assert list(ours[2:]) == list(theirs[2:])


PROJECT = '[tool.dg.project]\nroot_module = "shop"\n'


@pytest.mark.parametrize(
    ("text", "module", "named"),
    [
        (PROJECT + 'code_location_name = "sales"\n', "shop.definitions", "sales"),
        (PROJECT, "shop.definitions", "folder"),
        (PROJECT, "other.definitions", "other.definitions"),
        (None, "shop.definitions", "shop.definitions"),
    ],
)
def test_a_code_location_is_called_as_its_project_says(tmp_path, monkeypatch, text, module, named):
    """Set the same name, or Dagster warns for each asset that it loads from YAML."""
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    if text:
        Path("pyproject.toml").write_text(text)
    assert location_of(module) == named
