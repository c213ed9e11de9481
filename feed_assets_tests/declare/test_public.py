"""Public names: sufficient for the samples, and not loaded before use."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import feed_assets
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.public_declarations import DECLARED, parameters

ROOT = Path(feed_assets.__file__).parent
SAMPLES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.glob("defs/**/*.py"))}


def imported(path: Path) -> set[str]:
    """Return the names that a file imports from us: `feed_assets.checks` for `from feed_assets import checks`."""
    found = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in found for alias in node.names}
    plain = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Import)]
    return {name for name in names | {alias.name for node in plain for alias in node.names} if "feed_assets" in name}


@each_case("name", SAMPLES)
def test_a_sample_imports_public_names_and_other_samples_alone(name):
    allowed = {f"feed_assets.{public}" for public in feed_assets.__all__}
    assert {each for each in imported(SAMPLES[name]) if not each.startswith("feed_assets.defs.")} <= allowed


def test_the_samples_were_found():
    assert "feed_assets.feed_asset" in imported(SAMPLES["defs/ads/effectiveness.py"])
    assert "feed_assets.reject" in imported(SAMPLES["defs/ads/effectiveness.py"])


def loaded_by(statement: str) -> set[str]:
    """Return the packages that a fresh interpreter has loaded after a statement."""
    shown = "import sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", f"{statement}; {shown}"], capture_output=True, text=True, check=True)
    return {*done.stdout.split()}


def test_the_package_alone_loads_nothing_heavy():
    assert loaded_by("import feed_assets").isdisjoint({"dagster", "pyspark", "sqlalchemy", "pydantic"})


def test_declaring_a_dataset_loads_no_spark():
    statement = "import feed_assets as f; f.feed_asset('a/b/v1.0', inputs={}, checks=[f.checks.not_empty()])(lambda: 1)"
    assert "pyspark" not in loaded_by(statement)


def test_every_public_name_exists():
    for name in feed_assets.__all__:
        assert getattr(feed_assets, name) is not None


def test_dir_lists_public_names_and_imports_nothing_heavy():
    assert {*feed_assets.__all__, "__version__"} <= {*dir(feed_assets)}
    assert loaded_by("import feed_assets; dir(feed_assets)").isdisjoint(
        {"dagster", "pyspark", "sqlalchemy", "pydantic"}
    )


def test_importing_public_names_triggers_no_collection_and_keeps_gc_settings():
    import_all = "import dagster, feed_assets, gc; before = gc.get_stats()[2]['collections']; feed_assets.Input"
    shown = "print(gc.get_stats()[2]['collections'] - before, gc.isenabled())"
    for switch, is_on in (("enable", True), ("disable", False)):
        command = f"import gc; gc.{switch}(); {import_all}; {shown}"
        done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
        assert done.stdout == f"0 {is_on}\n"


def test_the_package_version_is_read_lazily():
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["project"]
    assert feed_assets.__version__ == project["version"]


def test_type_checkers_read_the_package():
    assert (ROOT / "py.typed").read_bytes() == b""


def test_an_unknown_attribute_is_refused_with_the_public_names():
    with pytest.raises(AttributeError, match=r"has no attribute 'feed_aset': it has .*feed_asset"):
        _ = feed_assets.feed_aset


def sections(docstring: str) -> dict[str, list[str]]:
    """Return the sections of a docstring in Google form, with the names at the start of their lines."""
    parts = re.split(r"^(Args|Returns|Raises):\n", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return {
        title: re.findall(r"^    (\w+): \S", text, re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


@each_case("name", DECLARED)
def test_a_docstring_describes_every_parameter_and_nothing_else(name):
    declaration, _ = DECLARED[name]
    assert sections(declaration.__doc__).get("Args", []) == parameters(name)


@each_case("name", DECLARED)
def test_public_docstrings_have_returns_and_raises(name):
    declaration, _ = DECLARED[name]
    found = sections(declaration.__doc__)
    assert ("Returns" in found) == inspect.isfunction(declaration)
    assert ("InvalidDefinition" in found.get("Raises", [])) == bool(parameters(name))


@each_case("function", [feed_assets.reject, feed_assets.reject_duplicates, feed_assets.is_clean, feed_assets.read])
def test_docstrings_of_functions_for_user_code_have_returns_and_raises(function):
    found = sections(function.__doc__)
    assert found.get("Args", []) == [*inspect.signature(function).parameters]
    assert "Returns" in found
