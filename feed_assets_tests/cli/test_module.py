"""Choice of a command's module, and errors of a module that does not load."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.errors import InvalidDefinition, InvalidSetting, ModuleNotLoaded
from feed_assets_tests.support.each_case import each_case

FEED = "ice/orders/v1.0"
PROJECT = '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "ice"\n'
DEFINITIONS = dedent(
    """
    from pathlib import Path
    import dagster as dg
    from feed_assets import with_automation

    @dg.definitions
    def defs():
        return with_automation(dg.load_from_defs_folder(path_within_project=Path(__file__).parent))
    """
)
PLAIN = dedent(
    """
    import dagster as dg
    from feed_assets import with_automation
    from ice.defs.orders import orders

    defs = with_automation(dg.Definitions(assets=[orders]))
    """
)
DECLARED = 'import feed_assets as f\norders = f.foreign_feed("ice/orders/v1.0", schema="k string")\n'


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Provide a project as `dg` makes it, in the current folder."""
    folder = tmp_path / "project"
    for path, text in {
        "pyproject.toml": PROJECT,
        "ice/__init__.py": "",
        "ice/definitions.py": DEFINITIONS,
        "ice/plain.py": PLAIN,
        "ice/defs/orders.py": DECLARED,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(folder)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "ice"]:
        del sys.modules[name]


def explained(*args: str) -> Exception:
    """Return the error of a command that loads the module: the feed is no dataset, or the reason why loading fails."""
    error = CliRunner().invoke(app, ["explain", FEED, *args]).exception
    assert isinstance(error, Exception)
    return error


def test_the_module_is_that_of_the_project(project):
    assert f"{FEED} is a foreign feed" in str(explained())


def test_the_project_s_module_is_found_from_its_subfolders(project, monkeypatch):
    monkeypatch.chdir(project / "ice" / "defs")
    assert f"{FEED} is a foreign feed" in str(explained())


@pytest.mark.parametrize(
    "text",
    [
        '[tool.dg.project]\nroot_module = "other"\ncode_location_target_module = "ice.plain"\n',
        '[tool.dagster]\nmodule_name = "ice.plain"\n',
    ],
)
def test_the_module_setting_is_read_like_dagster_reads_it(project, text):
    (project / "pyproject.toml").write_text(text)
    assert f"{FEED} is a foreign feed" in str(explained())


def test_a_module_option_takes_precedence_over_the_project(project):
    (project / "pyproject.toml").write_text('[tool.dagster]\nmodule_name = "no.such"\n')
    assert f"{FEED} is a foreign feed" in str(explained("-m", "ice.plain"))


@pytest.mark.parametrize("text", ["", '[project]\nname = "x"\n'])
def test_a_project_without_a_module_is_refused_and_samples_are_not_used(project, text):
    (project / "pyproject.toml").write_text(text)
    error = explained()
    assert isinstance(error, InvalidSetting)
    assert str(error).startswith("which module? -m MODULE is not given, and no pyproject.toml here or above has one")


def test_an_invalid_pyproject_toml_is_reported(project):
    (project / "pyproject.toml").write_text("[tool")
    assert str(explained()).startswith("pyproject.toml is not TOML: ")


@pytest.mark.parametrize("module", ["ice.definitons", "no.such"])
def test_a_missing_module_is_reported(project, module):
    error = explained("-m", module)
    assert isinstance(error, InvalidDefinition)
    assert str(error).startswith(f"there is no module {module}: ")
    assert str(project) in str(error)


MISTAKES = {
    "x = (": "ice/defs/orders.py:1: SyntaxError: '(' was never closed",
    "import nosuch": "ice/defs/orders.py:1: ModuleNotFoundError: No module named 'nosuch'",
    "\nfrom feed_assets import nosuch": "ice/defs/orders.py:2: ImportError: cannot import name 'nosuch' from",
    "raise SystemExit(0)": "ice/defs/orders.py:1: SystemExit: 0",
    "\n\nprint(unknown)": "ice/defs/orders.py:3: NameError: name 'unknown' is not defined",
    "import feed_assets as f\nf.Late(grwth=1)": "ice/defs/orders.py:2: Late(): there is no parameter grwth",
    "import feed_assets as f\nf.Late(growth=5)": "ice/defs/orders.py:2: Late(): growth is 5 (int), expected a share",
    "import dagster as dg\ndg.DailyPartitionsDefinition('01.02.2026')": (
        "ice/defs/orders.py:2: the date is '01.02.2026': expected the form %Y-%m-%d, such as '2026-01-31'. Correct it."
    ),
    "import dagster as dg\ndg.StaticPartitionsDefinition([1, 2])": (
        "ice/defs/orders.py:2: a value is 1 (int): expected a text. Write '1'."
    ),
    "import dagster as dg\ndg.DailyPartitionsDefinition('2021-01-01', timezone='Europe/Berlinn')": (
        "ice/defs/orders.py:2: there is no time zone Europe/Berlinn: expected Europe/Berlin. Correct it."
    ),
    "import dagster as dg\ndg.AssetSpec('a b', group_name='?')": "ice/defs/orders.py:2: DagsterInvalidDefinition",
}


@each_case("text", MISTAKES)
def test_a_mistake_is_two_lines_with_file_and_line(project, text):
    (project / "ice" / "defs" / "orders.py").write_text(text)
    error = explained()
    assert isinstance(error, ModuleNotLoaded)
    what, how = str(error).splitlines()
    assert what.startswith(MISTAKES[text])
    assert how.startswith("module ice.definitions does not load: `dagster definitions validate -m ice.definitions`")


DATASET = dedent(
    """
    import dagster as dg
    import feed_assets as f

    raw = f.foreign_feed("ice/raw/v1.0", schema="k string")

    @f.feed_asset("ice/orders/v1.0", inputs={"raw": raw}, partitions_def=dg.StaticPartitionsDefinition(["a"]))
    def orders(raw):
        return raw
    """
)


def test_an_invalid_setting_used_by_declarations_is_reported_like_any_other(project, monkeypatch):
    (project / "ice" / "defs" / "orders.py").write_text(DATASET)
    monkeypatch.setenv("FEED_ASSETS_PARTITIONS_PER_RUN", "0")
    error = explained()
    assert isinstance(error, InvalidSetting)
    assert str(error).startswith("FEED_ASSETS_PARTITIONS_PER_RUN is '0': expected")


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            "{start_date: '2024-01-01', format: jsonl, feeds: []}",
            "Error while loading component yaml[0]: format: ",
        ),
        (
            "{start_date: '2024-01-01', feeds: [{feed: a b/v1.0, schema: k int}]}",
            "ice/defs/yaml/defs.yaml: feed 'a b/v1.0': Dagster's names have only letters",
        ),
    ],
)
def test_a_mistake_in_yaml_is_two_lines_with_file_and_line(project, attributes, said):
    (project / "ice" / "defs" / "yaml").mkdir()
    text = f"type: feed_assets.ForeignFeedsComponent\nattributes: {attributes}\n"
    (project / "ice" / "defs" / "yaml" / "defs.yaml").write_text(text)
    what, _ = str(explained()).splitlines()
    assert what.startswith(said)


def test_a_mistake_in_a_partner_component_is_reported_with_line_and_key(project):
    (project / "ice" / "defs" / "men").mkdir()
    text = "type: feed_assets.PartnerComponent\nattributes: {feed: a/b/v1.0, schema: n int, start: x, intake: push}\n"
    (project / "ice" / "defs" / "men" / "defs.yaml").write_text(text)
    what, _ = str(explained()).splitlines()
    assert what.startswith("ice/defs/men/defs.yaml:2: attributes.start: it is 'x' (str), expected a valid date")


def test_a_mistake_that_only_the_asset_graph_shows_is_reported(project):
    """Declare two assets of one key: Dagster finds this when it makes the graph, not when it loads a file."""
    text = "import dagster as dg\ndef asset():\n    @dg.asset(key='x')\n    def one(): ...\n    return one\n"
    (project / "ice" / "plain.py").write_text(text + "defs = dg.Definitions(assets=[asset(), asset()])\n")
    error = explained("-m", "ice.plain")
    assert isinstance(error, ModuleNotLoaded)
    assert len(str(error).splitlines()) == 2


def test_the_command_says_it_and_ends(project):
    (project / "ice" / "defs" / "orders.py").write_text("print(unknown)")
    command = [Path(sys.executable).with_name("feed-assets"), "run", "--until-idle"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    doing, *said = done.stderr.splitlines()
    assert doing == "feed-assets: loading the definitions"
    assert said[0] == "feed-assets: ice/defs/orders.py:1: NameError: name 'unknown' is not defined"
    assert len(said) == 2


def test_the_web_ui_of_a_module_that_does_not_load_ends_before_anything_is_started(project, home):
    (project / "ice" / "defs" / "orders.py").write_text("print(unknown)")
    (project / "workspace.yaml").write_text("load_from: []\n")
    error = CliRunner().invoke(app, ["ui", "--port", "0", "-m", "ice.definitions"]).exception
    assert isinstance(error, ModuleNotLoaded)
    assert not (home / "dagster.yaml").exists()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("v1", "v2"), "ice/more/v1.0 and ice/more/v2.0 have the same asset key, ice/more, which has the history"),
        (
            ("v1", "v1"),
            "ice/more is declared twice, and differs in schema: schema is 'k string' (ice/defs/more.py:2) and",
        ),
    ],
)
def test_a_key_declared_twice_in_one_file_is_reported_with_the_line(project, names, says):
    """Declare one key twice in a file: Dagster names neither line."""
    kinds = zip(("a", "b"), names, ("string", "int"), strict=True)
    declared = [f'{name} = f.foreign_feed("ice/more/{at}.0", schema="k {kind}")' for name, at, kind in kinds]
    (project / "ice/defs/more.py").write_text("\n".join(["import feed_assets as f", *declared]))
    said, _ = str(explained()).splitlines()
    assert said.startswith(f"ice/defs/more.py:3: {says}")
