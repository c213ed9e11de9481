"""Private names of Dagster that the launcher uses: if a new Dagster moves one, this test names it."""

import ast
import inspect
from importlib import import_module

import dagster as dg

from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import ROOT

FILE = ROOT / "feed_assets" / "orchestration" / "launcher" / "dagster_private.py"
USED = {
    "dagster._cli.api._execute_run_command_body": ["run_id", "instance", "write_stream_fn", "set_exit_code_on_failure"],
    "dagster._core.launcher.base.CheckRunHealthResult": ["status", "msg", "transient", "run_worker_id"],
    "dagster._core.launcher.base.LaunchRunContext": ["dagster_run", "workspace"],
    "dagster._utils.hosted_user_process.recon_repository_from_origin": ["origin"],
}
"""Functions that are called, and fields that are read, by these names."""

_TREE = ast.parse(FILE.read_text())
_IMPORTS = [node for node in ast.walk(_TREE) if isinstance(node, ast.ImportFrom) and node.module.startswith("dagster")]
NAMES = [f"{node.module}.{each.name}" for node in _IMPORTS for each in node.names]


def found(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name, None)


@each_case("path", NAMES)
def test_private_names_of_dagster_exist(path: str) -> None:
    assert found(path) is not None, f"Dagster {dg.__version__} has no {path}: see {FILE}"


@each_case("path", USED)
def test_private_functions_of_dagster_keep_their_parameters(path: str) -> None:
    assert path in NAMES
    assert [*inspect.signature(found(path)).parameters] == USED[path], f"Dagster {dg.__version__}, {path}: see {FILE}"


def test_only_one_launcher_module_imports_private_names_of_dagster() -> None:
    others = [each for each in FILE.parent.glob("*.py") if each != FILE]
    assert others
    assert [each.name for each in others if "dagster._" in each.read_text()] == []
