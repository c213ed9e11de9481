"""Names that the docs must mention, and existence of the names that they do."""

import inspect
import re
import sys
import tomllib
from pathlib import Path

import dagster as dg
import sqlalchemy as sa
import typer.main

import feed_assets
from feed_assets.cli import app
from feed_assets.cli.new_project import make_project
from feed_assets.core.readiness import State
from feed_assets.core.report_lines import parse_report
from feed_assets.ledger.tables import metadata
from feed_assets.orchestration.location import with_automation
from feed_assets.runs import checks
from feed_assets.settings import Settings
from feed_assets.testing import Harness
from feed_assets_tests.support.documented_code import unknown_arguments, unknown_classes, unknown_options
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.public_declarations import DECLARED, parameters

ROOT = Path(__file__).parents[1]
PAGES = {path.relative_to(ROOT).as_posix(): path for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
ALL = "\n".join(TEXTS.values())
README, DATASETS, AUTOMATION = TEXTS["README.md"], TEXTS["docs/datasets.md"], TEXTS["docs/automation.md"]


def commands(group, names=()):
    """Yield the names of every command below a group, such as ('feed', 'ls')."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*names, name))
        else:
            yield (*names, name)


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def without_code(text):
    return re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """Return the anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


COMMANDS = [" ".join(names) for names in commands(typer.main.get_command(app))]
FACTORIES = [
    name
    for name, found in inspect.getmembers(checks, inspect.isfunction)
    if not name.startswith("_") and inspect.signature(found).return_annotation is checks.Check
]
DECLARATIONS = {name: parameters(name) for name in DECLARED if name.removeprefix("checks.") not in FACTORIES}
DECLARATIONS |= {
    component.__name__: [*component.model_fields]
    for component in (
        feed_assets.ForeignFeedsComponent,
        feed_assets.EventTableComponent,
        feed_assets.FeedAssetComponent,
        feed_assets.PartnerComponent,
        feed_assets.SubscriptionsComponent,
    )
}


def documented(name):
    """Return the documented arguments of a declaration: rows of its table, or those of its call if it has none."""
    (table,) = re.findall(rf"^\| `{re.escape(name)}\(…\)` \|.*\n\|[-|]+\n((?:\|.*\n?)+)", ALL, re.MULTILINE) or [None]
    if table is None:
        return re.search(rf"`{name}\((\w+)\)`", ALL).groups()
    return [word for row in table.splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[1])]


@each_case("name", feed_assets.__all__)
def test_a_public_name_is_in_the_docs(name):
    assert re.search(rf"`{name}\b|import .*\b{name}\b", DATASETS)


@each_case("name", DECLARATIONS)
def test_the_table_of_a_declaration_has_its_arguments_and_no_others(name):
    assert sorted(documented(name)) == sorted(DECLARATIONS[name])


@each_case("name", FACTORIES)
def test_a_check_is_in_the_docs(name):
    assert f"| `checks.{name}(" in DATASETS


def test_every_check_factory_is_found_in_the_code():
    assert {"not_empty", "not_null", "unique", "within", "references", "accounted"} <= set(FACTORIES)


@each_case("name", Settings.model_fields)
def test_a_setting_is_in_the_docs(name):
    assert f"## `FEED_ASSETS_{name.upper()}`\n" in TEXTS["docs/reference/settings.md"]


def test_every_setting_in_the_docs_exists():
    named = {name.lower() for name in re.findall(r"FEED_ASSETS_([A-Z0-9_]+[A-Z0-9])(?!_…|[A-Z0-9_])", ALL)}
    assert named
    assert named <= set(Settings.model_fields)


@each_case("command", COMMANDS)
def test_a_command_is_in_the_reference(command):
    assert f"\n## feed-assets {command}\n" in TEXTS["docs/reference/commands.md"]


def test_every_page_is_in_the_index():
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in [*docs.glob("*.md"), *docs.glob("reference/*.md")]}
    assert len(pages) > 30
    assert pages - {"index.md"} <= set(re.findall(r"\]\(([\w/-]+\.md)\)", TEXTS["docs/index.md"]))


def test_every_command_option_argument_and_class_in_the_docs_exists():
    groups = "connector|events|feed|kafka|late|ledger|receive keys|replicate|state|subscriptions|warehouse"
    named = {*re.findall(rf"`feed-assets ((?:(?:{groups}) )?[a-z][a-z-]*)", ALL)}
    assert named
    assert named - {"feed", "receive", "replicate"} <= set(COMMANDS)
    lines = re.findall(r"`feed-assets ([^`]+)`", ALL)
    assert [line for line in lines if unknown_options(line)] == []
    guides = "".join(TEXTS[name] for name in TEXTS if not name.startswith("docs/decisions/"))  # these reject some
    calls = re.findall(r"`([^`\n]*\([^`\n]*)`", guides)
    assert [call for call in calls if unknown_arguments(call)] == []
    questions = "".join(TEXTS[name] for name in TEXTS if name.startswith("docs/questions/"))
    assert unknown_classes(questions) - {"ExternalTaskSensor", "FileSensor", "RetryPolicy"} == set()


@each_case("state", State)
def test_a_state_is_in_the_docs(state):
    assert f"| **`{state.value}`** |" in TEXTS["docs/reference/states.md"]


def test_the_docs_name_exactly_the_existing_extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = TEXTS["docs/operations.md"].partition("| extra | ")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [*project["optional-dependencies"]]
    named = {extra for some in re.findall(r"feed-assets\[([\w,]+)\]", ALL) for extra in some.split(",")}
    assert named <= {*project["optional-dependencies"]}


def test_every_sensor_is_in_the_docs():
    sensors = with_automation(dg.Definitions()).get_repository_def().sensor_defs
    assert {"feeds", "watch", "late_data", "orphans"} == {sensor.name for sensor in sensors}
    assert all(f"- `{sensor.name}` " in AUTOMATION for sensor in sensors)


@each_case("table", metadata.tables)
def test_a_table_of_the_ledger_is_in_the_docs(table):
    assert f"- `{table}`, " in TEXTS["docs/reference/ledger.md"]


def test_the_docs_repeat_the_table_of_accepted_texts():
    code = (ROOT / "feed_assets" / "spark" / "parse.py").read_text(encoding="utf-8")
    rows = [line for line in code.splitlines() if line.startswith("| ")]
    assert len(rows) > 8
    assert [row for row in rows if row not in TEXTS["docs/spark.md"]] == []


@each_case("name", TEXTS)
def test_relative_links_resolve(name):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(TEXTS[name])):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (PAGES[name].parent / path).resolve() if path else PAGES[name]
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def test_source_files_in_the_docs_exist():
    named = set(re.findall(r"`((?:feed_assets/)?[a-z_]+/[a-z_/]+\.py)`", ALL)) - {"my_project/defs/ads.py"}
    assert len(named) > 10
    missing = [name for name in named if not (ROOT / name).exists() and not (ROOT / "feed_assets" / name).exists()]
    assert [name for name in missing if not name.startswith(("my_project/", "shop/"))] == []


@each_case("name", TEXTS)
def test_lines_are_not_too_long(name):
    long = [line for line in TEXTS[name].splitlines() if len(line) > 150]
    assert long == []


def test_the_title_of_a_decision_begins_with_its_number():
    titles = {name: TEXTS[name].partition("\n")[0] for name in TEXTS if re.match(r"docs/decisions/\d{4}-", name)}
    assert len(titles) > 50
    numbers = {name: int(name.rpartition("/")[2][:4]) for name in titles}
    assert {name: title for name, title in titles.items() if not title.startswith(f"# {numbers[name]}. ")} == {}


RUN_BY_ITS_OWN_TEST = "docs/reading.md"
"""Pages whose code needs a lake: `test_reading_page.py` runs it."""


@each_case(
    ("name", "code"),
    [(name, code) for name in TEXTS if name != RUN_BY_ITS_OWN_TEST for code in blocks(TEXTS[name], "python")],
)
def test_python_in_the_docs_runs(name, code):
    # The file name does not exist: from Python 3.13 on, inspect fails on a page that it takes for the source.
    exec(compile(code, f"<{name}>", "exec"), {"__name__": "an_example", "__file__": str(PAGES[name])})  # noqa: S102


@each_case("line", "".join(blocks(TEXTS["docs/state.md"], "json")).splitlines())
def test_every_report_in_the_docs_is_valid(line):
    assert parse_report(line)


@each_case("query", blocks(TEXTS["docs/state.md"], "sql"))
def test_a_query_in_the_docs_runs(query, ledger):
    with ledger.read() as connection:
        assert connection.exec_driver_sql(query).all() == []


def test_the_views_have_the_columns_that_the_docs_say(ledger):
    page = TEXTS["docs/reference/ledger.md"]
    sections = dict(re.findall(r"^## The view `(\w+)`\n(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL))
    assert [*sections] == ["partition_state", "replica_state"]
    for view, section in sections.items():
        rows = section.partition("|---|---|\n")[2].splitlines()
        named = [word for row in rows if row for word in re.findall(r"`(\w+)`", row.split("|")[1])]
        with ledger.read() as connection:
            assert named == [each["name"] for each in sa.inspect(connection).get_columns(view)]


def test_the_dataset_of_the_readme_and_the_yaml_of_the_docs_load_as_one_project(tmp_path, monkeypatch):
    files = {
        "my_project/defs/ads.py": blocks(README, "python")[0],
        "my_project/defs/foreign/defs.yaml": blocks(DATASETS, "yaml")[0],
        "my_project/items.py": next(text for text in blocks(DATASETS, "python") if "def risen" in text),
        "my_project/defs/items/defs.yaml": next(text for text in blocks(DATASETS, "yaml") if "risen" in text),
    }
    project = make_project("my_project", tmp_path)
    (project / "my_project/defs/sold.py").unlink()
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(project)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    try:
        from my_project.definitions import defs  # pyright: ignore[reportMissingImports]

        keys = {key.to_user_string() for key in defs().resolve_asset_graph().get_all_asset_keys()}
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "my_project"]:
            del sys.modules[name]
    assert keys == {"ads/shown", "ads/clicked", "ads/effectiveness", "ads/effectiveness_rejects", "ads/risen"}


@each_case("name", ["drop", "run_until_idle", "tick", "ask", "reported", "checks", "invalidate", "newest", "rows"])
def test_the_harness_has_the_documented_members(name):
    assert callable(getattr(Harness, name))
    assert re.search(rf"(harness\.|`){name}\(", DATASETS)


def test_the_map_of_rooms_names_each_module_where_it_is():
    block = TEXTS["docs/architecture.md"].partition("## Rooms\n")[2].partition("\nA room imports")[0]
    rooms = re.findall(r"^ {4}feed_assets/(\S*).*\n((?: {8}.*\n)*)", block, re.MULTILINE)
    named = [f"{room}{module}" for room, modules in rooms for module in modules.split()]
    package = Path(feed_assets.__file__).parent
    modules = [path.relative_to(package).with_suffix("").as_posix() for path in package.rglob("*.py")]
    assert sorted(named) == sorted(each for each in modules if not re.search("__init__$|^ledger/migrations/", each))
